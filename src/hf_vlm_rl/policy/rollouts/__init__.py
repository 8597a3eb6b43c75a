"""`generate` without waste: rows that are finished leave the batch."""
