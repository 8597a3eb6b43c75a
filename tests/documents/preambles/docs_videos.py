"""A clip of three seconds; GRPO of one step."""

from pathlib import Path

from tests.documents.material import ROLLOUT, short_runs
from tests.videos import encoded

short_runs(GRPO=ROLLOUT)
Path("clip.mp4").write_bytes(encoded("astronaut"))
