"""What an image field says, read, measured, kept: from a path, URL or bytes to a stored image."""
