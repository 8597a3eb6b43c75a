"""Rows counted in tokens, as trainers will make them."""
