"""One prompt, one forward: rows that begin alike go through the decoder as one packed sequence."""
