"""Images: read from a path, a URL or bytes, measured, converted to RGB, and stored under a ticket."""
