"""A folder of photographs; two completions of four tokens, one step."""

from pathlib import Path

from tests.documents.material import ROLLOUT, photo_file, short_runs

short_runs(GRPO=ROLLOUT)
for name in ("cat", "coffee"):
    Path("photos", name).mkdir(parents=True)
    for number in range(2):
        photo_file(f"photos/{name}/{number}.jpg", name)
