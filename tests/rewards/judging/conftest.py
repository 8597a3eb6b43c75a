"""A judge's server on loopback, and judges that ask it."""

import pytest

from hf_vlm_rl.rewards import PairJudge, ScoreJudge
from hf_vlm_rl.rewards.judging import server as chat
from tests.images import photo
from tests.rewards.judging.stand_in import StandInJudge
from tests.vllm.stand_in import listening

CRITERIA = "It says what the photo shows."


class Judging:
    """A server, and what its judges and rows have in common."""

    def __init__(self, server, url):
        self.server, self.url = server, f"{url}/v1"

    def score(self, **options):
        return ScoreJudge(url=self.url, model="judge", criteria=CRITERIA, **options)

    def pair(self, **options):
        return PairJudge(url=self.url, model="judge", criteria=CRITERIA, **options)

    @staticmethod
    def rows(*names, size=(32, 24)):
        """Columns of rows with a photo each; the prompts differ."""
        return {
            "prompts": [[{"role": "user", "content": f"What is in {name}?"}] for name in names],
            "image": [photo(name, size) for name in names],
        }


@pytest.fixture
def judging(monkeypatch):
    monkeypatch.setattr(chat, "FIRST_PAUSE", 0.01)
    monkeypatch.delenv("JUDGE_API_KEY", raising=False)
    server = StandInJudge()
    with listening(server) as url:
        yield Judging(server, url)
