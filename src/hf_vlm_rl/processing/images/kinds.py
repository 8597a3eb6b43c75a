"""The kinds of files in a store, by the end of their names."""

# An image, the note of a row, what a video is made of, a prompt without an image.
IMAGE, NOTE, VIDEO, PROMPT = ".png", ".json", ".video.json", ".prompt.json"
# What the hash of a text begins with, so that a note cannot pass for a video.
TEXT_HASHES = {NOTE: b"note", VIDEO: b"video", PROMPT: b""}
