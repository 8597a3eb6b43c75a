"""`generate` without waste: each distinct prompt is run once, and rows that are finished leave the batch."""
