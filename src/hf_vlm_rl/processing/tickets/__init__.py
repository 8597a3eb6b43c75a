"""Three spellings of a ticket: digits inside the ids, numbers beside the ids, a mark inside a text."""
