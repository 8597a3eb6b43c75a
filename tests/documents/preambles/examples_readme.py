"""A model by the name that stands for one, a photo, what the scripts read, and an adapter that has learnt."""

import shutil

from huggingface_hub import snapshot_download

from tests.documents.material import data_of, model_at, photo_file

model_at("MODEL", "qwen2_5_vl")
photo_file("a.jpg")


def before_line(words):
    if "--data" in words:
        data_of(words)
    if "out/adapter" in words:  # one step of GRPO may have taught nothing, and then it is refused
        shutil.rmtree("out/adapter")
        shutil.copytree(snapshot_download("user/adapter"), "out/adapter")
