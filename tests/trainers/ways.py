"""How images reach each trainer of TRL, and which test shows it: what docs/trainers.md is made of.

`test_ways.py` compares the names with the trainers that TRL has, and the tests with those that there are.
"""

from dataclasses import dataclass

COLUMN = "in an `image(s)` column"
COLUMN_OR_BLOCKS = "in an `image(s)` column or in message blocks"
TICKETS = "in its texts: `with_tickets`"
PROMPT = "inside ids: `encode_prompt`"

ALL, TWO, ONE = "all", "two", "one"
NUMBERS = {1: ONE, 2: TWO, 3: "three"}
NEWEST, LAST, FIRST = "newest", "1.12", "1.0"


@dataclass(frozen=True)
class Way:
    """How images reach a trainer.

    Attributes:
        images: Where they are in a row.
        gets: Its `processing_class`.
        cells: By TRL version, on how many families a test trains it, or why it is refused. Of a version that
            is missing, TRL has no such trainer (1.0: or it was not run).
        test: The file.
    """

    images: str
    gets: str
    cells: dict[str, str]
    test: str


def column(test: str, families: str = ALL, images: str = COLUMN, **cells: str) -> Way:
    return Way(images, "`policy.processing_class`", {LAST: families, NEWEST: families} | cells, test)


def tickets(*versions: str) -> Way:
    return Way(TICKETS, "`policy.tokenizer`", dict.fromkeys(versions, TWO), "tests/trainers/test_ids.py")


def refused(why: str, *versions: str) -> Way:
    return Way("-", "-", dict.fromkeys(versions, f"refused: {why}"), "tests/trainers/test_ways.py")


BOTH = (LAST, NEWEST)
PROCESSING = "`policy.processing_class`"
WAYS_TEST = "tests/trainers/test_ways.py"
# Families that asynchronous trainers are tested with, by the id of a model.
ASYNC_GRPO = ("internvl", "qwen2_5_vl", "gemma3")
BY_ID = "by the id of the model after `register()`"
ASYNC_FAILS = "fails by itself: its metrics know no config with parts"
ASYNC_DISTILLATION_TEST = "tests/trainers/test_async_distillation.py"
TEACHER = "its teacher's server is sent ids, and no image; a [front](vllm.md#a-front) takes its requests"
TEACHERS = "tests/trainers/test_teachers.py"
# By the class, and by the package below trl.experimental where that has it.
WAYS: dict[str, Way] = {
    "DPOTrainer": column("tests/trainers/test_dpo.py"),
    "DistillationTrainer": column(TEACHERS, TWO),
    "GRPOTrainer": column("tests/trainers/test_grpo.py", images=COLUMN_OR_BLOCKS),
    "KTOTrainer": column("tests/trainers/test_kto.py"),
    "RLOOTrainer": column("tests/trainers/test_blocks.py", TWO),
    "RewardTrainer": Way(
        PROMPT,
        "`reward_model.processing_class`",
        dict.fromkeys((FIRST, *BOTH), ALL),
        "tests/trainers/test_reward.py",
    ),
    "SFTTrainer": column("tests/trainers/test_stock.py", TWO),
    "a2po.A2POTrainer": tickets(*BOTH),
    "async_distillation.AsyncDistillationTrainer": Way(
        TICKETS,
        "`policy.tokenizer`",
        {LAST: ASYNC_FAILS, NEWEST: f"{TWO}, {BY_ID}"},
        ASYNC_DISTILLATION_TEST,
    ),
    "async_grpo.AsyncGRPOTrainer": Way(
        TICKETS,
        "`policy.tokenizer`",
        {LAST: ASYNC_FAILS, NEWEST: f"{NUMBERS[len(ASYNC_GRPO)]}, {BY_ID}"},
        "tests/trainers/test_async_grpo.py",
    ),
    "bco.BCOTrainer": tickets(LAST),
    "bema_for_ref_model.DPOTrainer": column(WAYS_TEST, ONE),
    "cpo.CPOTrainer": tickets(*BOTH),
    "gkd.GKDTrainer": tickets(*BOTH),
    "gmpo.GMPOTrainer": tickets(*BOTH),
    "gold.GOLDTrainer": column(TEACHERS, TWO),
    "grpo_with_replay_buffer.GRPOWithReplayBufferTrainer": tickets(LAST),
    "gspo_token.GRPOTrainer": Way(COLUMN, PROCESSING, {LAST: ONE}, WAYS_TEST),
    "iw_opd.IWOPDTrainer": tickets(*BOTH),
    "minillm.MiniLLMTrainer": tickets(LAST),
    "nash_md.NashMDTrainer": tickets(LAST),
    "online_dpo.OnlineDPOTrainer": tickets(*BOTH),
    "orpo.ORPOTrainer": tickets(*BOTH),
    "ppo.PPOTrainer": Way(
        PROMPT, "`policy.processing_class`", dict.fromkeys((FIRST, LAST), ALL), "tests/scoring/test_ppo.py"
    ),
    "prm.PRMTrainer": refused("it takes a model that classifies tokens, which no policy is", LAST),
    "sdft.SDFTTrainer": tickets(*BOTH),
    "sdpo.SDPOTrainer": tickets(*BOTH),
    "server_distillation.ServerDistillationTrainer": refused(TEACHER, *BOTH),
    "ssd.SSDTrainer": tickets(LAST),
    "tpo.TPOTrainer": tickets(*BOTH),
    "xpo.XPOTrainer": tickets(LAST),
}
