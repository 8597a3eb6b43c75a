"""Records of files become a dataset: checked, counted and typed in a first pass, written in a second."""
