"""Mathematics that never ends, in threads, daemons, forks and at the end of the program."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from hf_vlm_rl.rewards import math_process, math_reward

# Python loops, which signals could end, and sums of integers, which only the end of the process ends.
ENDLESS = [
    "9^9^9^9",
    "10^{10^{10}}",
    "9999999!",
    r"\sum_{i=1}^{10^9} i",
    "(a+b+c+d)^{99}",
    r"\Gamma(10^9)",
]


def is_right(answer: str, key: str) -> bool:
    return math_reward([answer], answer=[key]) == [1.0]


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(math_process, "SECONDS", 0.3)


@pytest.mark.slow
def test_what_never_ends_is_wrong_in_any_thread_and_the_next_answers_are_judged(impatient):
    assert is_right("0.5", "1/2")
    with ThreadPoolExecutor(3) as threads:
        endless = [threads.submit(math_reward, [text], answer=["1/3"]) for text in ENDLESS]
        assert [future.result(timeout=60) for future in endless] == [[0.0]] * len(ENDLESS)
        halves = [threads.submit(is_right, f"{number}/{2 * number}", "0.5") for number in range(1, 30)]
        thirds = [threads.submit(is_right, f"{number}/{3 * number}", "0.5") for number in range(1, 30)]
        assert all(future.result() for future in halves)
        assert not any(future.result() for future in thirds)
    assert math_reward(ENDLESS, answer=ENDLESS) == [1.0] * len(ENDLESS)


def test_a_process_that_was_killed_is_replaced():
    assert is_right("0.2", "1/5")
    math_process._process.kill()
    math_process._process.wait()
    assert is_right("0.20", "1/5")


def test_an_answer_that_took_too_long_is_remembered(impatient):
    text = r"\Gamma(10^9 + 1)"
    assert not is_right(text, "1/3")
    assert is_right("0.2", "1/5")
    process = math_process._process  # one that is asked too long is replaced
    assert not is_right(text, "1/3")
    assert math_process._process is process


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="Windows has no such signals")
def test_after_an_interrupt_no_question_gets_the_reply_of_another():
    class Interrupt(Exception):
        pass

    def interrupt(*_):
        raise Interrupt

    assert is_right("0.25", "1/4")
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(Interrupt):
            is_right(r"\Gamma(10^9 + 2)", "1/3")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not is_right("0.26", "1/4")
    assert is_right("0.250", "1/4")


def pids(output: str) -> list[int]:
    return [int(line) for line in output.splitlines()]


def end_soon(processes: list[int]) -> bool:
    """Whether all of them end within ten seconds."""
    for _ in range(100):
        if not any(os.path.exists(f"/proc/{pid}") for pid in processes):
            return True
        time.sleep(0.1)
    return False


on_linux = pytest.mark.skipif(not os.path.isdir("/proc"), reason="looks for processes in /proc")

SCRIPT = """
import multiprocessing, os, sys
from hf_vlm_rl.rewards import math_process, math_reward

def judge(queue):
    said = math_reward(["0.5", "0.6"], answer=["1/2", "1/2"])
    queue.put((said, math_process._process.pid))

if __name__ == "__main__":
    before = math_reward(["0.75"], answer=["3/4"])
    own = math_process._process.pid
    found = [own]
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        children = [context.Process(target=judge, args=(queue,), daemon=True) for _ in range(2)]
        for child in children:
            child.start()
        for child in children:
            said, pid = queue.get()
            assert said == [1.0, 0.0], said
            found.append(pid)
        for child in children:
            child.join()
    assert len(set(found)) == 5, found
    assert math_reward(["0.3", "0.4"], answer=["3/10", "3/10"]) == [1.0, 0.0]
    assert math_process._process.pid == own
    print(*found, sep="\\n")
"""


@on_linux
def test_daemons_and_forks_have_one_of_their_own_and_none_is_left_at_the_end(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    ended = subprocess.run(
        [sys.executable, "-W", "error", str(script)], capture_output=True, text=True, timeout=120
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert end_soon(pids(ended.stdout))


@on_linux
@pytest.mark.parametrize("busy", [False, True])
def test_none_is_left_when_the_program_is_killed(busy):
    code = f"""
import threading, time
from hf_vlm_rl.rewards import math_process, math_reward
math_process.SECONDS = 0.5
math_reward(["0.5"], answer=["1/2"])
print(math_process._process.pid, flush=True)
if {busy}:
    math_reward([{ENDLESS[-1]!r}], answer=["1"])
time.sleep(60)
"""
    program = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    worker = int(program.stdout.readline())
    time.sleep(0.2)
    program.kill()
    program.communicate()
    assert end_soon([worker])


def test_a_process_that_does_not_start_is_an_error(monkeypatch):
    monkeypatch.setattr(math_process, "_PROGRAM", "/no/such/program.py")
    math_process._stop()
    with pytest.raises(RuntimeError, match=r"did not start: .*/no/such/program\.py.*import math_verify"):
        math_reward(["0.123"], answer=["1"])
