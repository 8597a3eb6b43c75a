"""Two processes and one server: the main process asks, and no other waits for an answer that never comes."""

import pytest

from tests.trainers.distributed.launch import on_two_ranks

pytestmark = pytest.mark.slow


def test_the_answer_and_the_error_of_the_main_process_reach_the_other(tmp_path):
    on_two_ranks("tests.vllm.ranked", tmp_path, timeout=120)
    first, second = ((tmp_path / f"rank-{rank}").read_text().splitlines() for rank in (0, 1))
    assert first[0] == second[0] == "[3, 0]"
    assert first[1].startswith("ConnectionError: The vLLM server at URL answered 500 to /reset_encoder_cache")
    assert second[1] == f"RuntimeError: The rollout failed in process 0: {first[1]}"
