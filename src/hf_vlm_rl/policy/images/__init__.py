"""Tickets become image features: where they stand in a batch, what the vision tower makes of their images."""
