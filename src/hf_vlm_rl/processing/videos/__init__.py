"""Videos: what a field says, which frames the model sees, and what its processor makes of them."""
