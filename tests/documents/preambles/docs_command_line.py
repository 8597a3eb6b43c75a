"""A photo, held-out rows, and an adapter in a folder."""

from huggingface_hub import snapshot_download

from tests.documents.material import jsonl, photo_file

photo_file()
jsonl("held_out.jsonl")
snapshot_download("user/adapter", local_dir="adapter")
