"""Photos by what is on them; a photo; one step of each trainer."""

from pathlib import Path

from tests.documents.material import photo_file, short_runs
from tests.images import photo

SIZES = ((112, 112), (112, 84), (84, 112), (98, 112))
for name in ("cat", "coffee", "rocket"):
    folder = Path("photos") / name
    folder.mkdir(parents=True)
    for number, size in enumerate(SIZES):
        photo(name, size).save(folder / f"{number}.jpg")
short_runs(SFT={}, GRPO={}, DPO={})
photo_file()
