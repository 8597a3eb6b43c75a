"""Records of files, checked and typed, become a dataset."""
