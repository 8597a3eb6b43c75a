"""Photos, and what the script before the page's has built."""

from tests.documents.material import ROLLOUT, photo_file, rows, short_runs
from tests.images import photo

short_runs(GRPO=ROLLOUT)
photo_file()
first, second = photo("cat", (112, 112)), photo("coffee", (112, 112))
dataset = rows()


def reward(completions, **_):
    return [float(len(messages[0]["content"])) for messages in completions]
