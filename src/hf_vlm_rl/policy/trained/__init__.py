"""What is trained: parts of a model, adapters, and a fingerprint of the weights below them."""
