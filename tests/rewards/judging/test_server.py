"""A server that fails: what is asked again, what is not, and what becomes of the row."""

import email.utils
import json
import time

import pytest

from hf_vlm_rl import RewardError
from hf_vlm_rl.rewards.calling import call
from hf_vlm_rl.rewards.judging import server as chat
from hf_vlm_rl.rewards.judging.server import retry_after
from tests.rewards.judging.stand_in import content, cut, drop, hang, raw, said, status

CAT = ["A cat."]


@pytest.mark.parametrize(
    "act",
    [status(500), status(503), status(429), status(429, Retry_After="0"), drop, cut],
    ids=["500", "503", "429", "429 with Retry-After", "dropped", "cut"],
)
def test_what_may_pass_is_asked_again(act, judging):
    judge, judging.server.acts = judging.score(), [act, act]
    assert judge(CAT, **judging.rows("cat")) == [0.5]
    assert (judge.usage.requests, judge.usage.retries, judge.usage.tokens) == (3, 2, 7)
    assert not judge.usage.failures


def test_a_server_that_hangs_is_asked_again(judging):
    judge, judging.server.acts = judging.score(timeout=0.5), [hang]
    assert judge(CAT, **judging.rows("cat")) == [0.5]
    assert judge.usage.retries >= 1  # a machine under load may be slow once more


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (status(400, "too long a context"), "status 400"),
        (status(422), "status 422"),
        (raw("<html>"), "no completion"),
        (raw("[]"), "no completion"),
        (raw('{"choices": []}'), "no completion"),
        (raw('{"choices": [7]}'), "no completion"),
        (raw('{"choices": [{"message": {}}]}'), "no completion"),
        (content(None), "no completion"),
        (content('{"reason": "so', finish_reason="length"), "cut off"),
        (raw("[" * 100_000), "no completion"),
        (raw("a" * (2 << 20)), "too long"),
    ],
)
def test_what_would_come_again_is_asked_once(act, reason, judging, caplog):
    judge, judging.server.acts = judging.score(failed="row"), [act]
    rows = judging.rows("coffee", "cat")
    judging.server.acts.append(content('{"reason": "", "score": 10}'))
    assert sorted(map(str, judge(["A cup.", "A cat."], **rows))) == ["1.0", "None"]
    assert judge.usage.failures == {reason: 1}
    assert judge.usage.requests == 2
    assert f"1 of 2 completions have no verdict of 'judge' ({reason}: 1)" in caplog.text


def test_after_the_last_retry_the_row_has_failed(judging):
    judge = judging.score(retries=2)
    assert judge(CAT, **judging.rows("cat")) == [0.5]
    judging.server.acts = [drop, status(500), status(429)]
    assert judge(["A dog."], **judging.rows("cat")) == [None]
    assert judge.usage.failures == {"status 429": 1}
    assert judge.usage.requests == 4


def test_who_is_told_to_wait_longer_than_the_longest_pause_gives_up(judging):
    judge = judging.score()
    assert judge(CAT, **judging.rows("cat")) == [0.5]
    for wait in ("61", "9" * 400, email.utils.formatdate(time.time() + 3600, usegmt=True)):
        judging.server.acts = [status(429, Retry_After=wait)]
        before = judge.usage.requests
        assert judge([wait], **judging.rows("cat")) == [None]
        assert judge.usage.requests == before + 1


def test_a_pause_is_as_long_as_the_server_asks(judging, monkeypatch):
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)

    monkeypatch.setattr(chat.asyncio, "sleep", sleep)
    judging.server.acts = [status(503, Retry_After="7"), status(429, Retry_After="soon")]
    assert judging.score()(CAT, **judging.rows("cat")) == [0.5]
    told, own = (pause for pause in pauses if pause)
    assert told == 7
    assert 0 < own <= 0.02


def test_retry_after_is_a_number_or_a_date():
    def wait(value):
        return retry_after({"Retry-After": value})

    assert [wait(value) for value in ("0", " 12 ", "", "soon", "-3", "1e3", "²")] == [0, 12, 0, 0, 0, 0, 0]
    assert wait(email.utils.formatdate(time.time() + 600, usegmt=True)) == pytest.approx(600, abs=60)
    assert wait(email.utils.formatdate(time.time() - 600, usegmt=True)) == 0


@pytest.mark.parametrize("code", [301, 401, 403, 404])
def test_what_every_request_would_meet_ends_the_run(code, judging):
    judging.server.acts = [status(code, "wrong", Location="http://127.0.0.1:9/")] * 2
    judge = judging.score()
    with pytest.raises(RewardError, match=f"answers with status {code}: wrong.*check url, model"):
        judge(["A cat.", "A dog."], **judging.rows("cat", "coffee"))
    assert judge.usage.retries == 0


def test_a_server_that_has_never_answered_ends_the_run(judging):
    judge = judging.score(retries=0)
    judging.server.acts = [status(500)] * 2
    with pytest.raises(RewardError, match=r"2 of 2 completions have no verdict.*status 500: no"):
        judge(["A cat.", "A dog."], **judging.rows("cat", "coffee"))


def test_a_judge_that_failed_is_not_asked_about_each_row_again(judging):
    judging.server.acts = [status(401)] * 4
    arguments = {"completions": ["A cat.", "A dog."], **judging.rows("cat", "coffee")}
    with pytest.raises(RewardError, match=r"^The judge at .* answers with status 401"):
        call(judging.score(), "judge", arguments)
    assert len(judging.server.asked) == 2


def test_nobody_listens(judging):
    judge = judging.score(retries=1)
    object.__setattr__(judge, "url", "http://127.0.0.1:9/v1")
    with pytest.raises(RewardError, match="no connection"):
        judge(CAT, **judging.rows("cat"))
    assert judge.usage.requests == 2


def test_the_key_goes_to_the_server_and_nowhere_else(judging, monkeypatch, tmp_path, caplog):
    key = "sk-that-nobody-may-see"
    monkeypatch.setenv("JUDGE_API_KEY", f"{key}\n")
    judge = judging.score(cache=tmp_path, failed="row")
    judging.server.acts = [content(f'{{"reason": "{key}", "score": 1}}')]
    assert judge(CAT, **judging.rows("cat")) == [0.1]
    judging.server.acts = [status(400, f"Bearer {key} is no key")]
    assert judge(["A dog."], **judging.rows("cat")) == [None]
    judging.server.acts = [status(401, f"Bearer {key} is no key")]
    with pytest.raises(RewardError) as error:
        judge(["A cow."], **judging.rows("cat"))
    assert judging.server.keys == [f"Bearer {key}"] * 3
    kept = [path.read_text() for path in tmp_path.rglob("*.json")]
    assert len(kept) == 1
    told = [caplog.text, str(error.value), repr(judge), repr(judge.usage), *kept]
    assert "Bearer *** is no key" in caplog.text
    assert not [text for text in told if key in text]


def test_without_a_key_none_is_sent(judging):
    judging.score()(CAT, **judging.rows("cat"))
    assert judging.server.keys == [None]


def test_another_variable_may_have_the_key(judging, monkeypatch):
    monkeypatch.setenv("JUDGE_API_KEY", "mine")
    monkeypatch.setenv("OTHER_KEY", "other")
    judging.score(key_variable="OTHER_KEY")(CAT, **judging.rows("cat"))
    assert judging.server.keys == ["Bearer other"]


def test_an_answer_without_usage_counts(judging):
    answer = said('{"reason": "", "score": 10}') | {"usage": {"total_tokens": "many"}}
    judging.server.acts = [raw(json.dumps(answer))]
    judge = judging.score()
    assert judge(CAT, **judging.rows("cat")) == [1.0]
    assert judge.usage.tokens == 0
