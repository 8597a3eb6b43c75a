"""A checkpoint becomes a policy."""
