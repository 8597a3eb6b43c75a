"""Training methods by trainer: the Hub's tag, the paper, and the metric that shows learning."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Method:
    """What a card says about a training method.

    Attributes:
        name: Name for people.
        tags: Tags of the Hub.
        metrics: Names in the trainer's log, the most telling first.
        paper: arXiv id; None where there is no single paper.
        citation: BibTeX.
    """

    name: str
    tags: tuple[str, ...]
    metrics: tuple[str, ...]
    paper: str | None = None
    citation: str | None = None


def _arxiv(key: str, title: str, authors: str, year: int, eprint: str) -> str:
    return (
        f"@misc{{{key},\n"
        f"  title         = {{{{{title}}}}},\n"
        f"  author        = {{{authors}}},\n"
        f"  year          = {{{year}}},\n"
        f"  eprint        = {{{eprint}}},\n"
        "  archivePrefix = {arXiv}\n"
        "}"
    )


TRL_CITATION = """@software{vonwerra2020trl,
  title  = {{TRL: Transformers Reinforcement Learning}},
  author = {von Werra, Leandro and Belkada, Younes and Tunstall, Lewis and Beeching, Edward and Thrush, \
Tristan and Lambert, Nathan and Huang, Shengyi and Rasul, Kashif and Gallouédec, Quentin},
  year   = {2020},
  url    = {https://github.com/huggingface/trl}
}"""

METHODS: dict[str, Method] = {
    "grpo": Method(
        "Group Relative Policy Optimization (GRPO)",
        ("grpo",),
        ("reward",),
        "2402.03300",
        _arxiv(
            "shao2024deepseekmath",
            "DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models",
            "Shao, Zhihong and Wang, Peiyi and Zhu, Qihao and Xu, Runxin and Song, Junxiao and others",
            2024,
            "2402.03300",
        ),
    ),
    "rloo": Method(
        "REINFORCE Leave-One-Out (RLOO)",
        ("rloo",),
        ("reward",),
        "2402.14740",
        _arxiv(
            "ahmadian2024back",
            "Back to Basics: Revisiting REINFORCE Style Optimization for Learning from Human Feedback "
            "in LLMs",
            "Ahmadian, Arash and Cremer, Chris and Gallé, Matthias and Fadaee, Marzieh and others",
            2024,
            "2402.14740",
        ),
    ),
    "dpo": Method(
        "Direct Preference Optimization (DPO)",
        ("dpo",),
        ("rewards/margins", "rewards/accuracies", "loss"),
        "2305.18290",
        _arxiv(
            "rafailov2023direct",
            "Direct Preference Optimization: Your Language Model is Secretly a Reward Model",
            "Rafailov, Rafael and Sharma, Archit and Mitchell, Eric and Ermon, Stefano and others",
            2023,
            "2305.18290",
        ),
    ),
    "kto": Method(
        "Kahneman-Tversky Optimization (KTO)",
        ("kto",),
        ("rewards/margins", "loss"),
        "2402.01306",
        _arxiv(
            "ethayarajh2024kto",
            "KTO: Model Alignment as Prospect Theoretic Optimization",
            "Ethayarajh, Kawin and Xu, Winnie and Muennighoff, Niklas and Jurafsky, Dan and Kiela, Douwe",
            2024,
            "2402.01306",
        ),
    ),
    "ppo": Method(
        "Proximal Policy Optimization (PPO)",
        ("ppo",),
        ("objective/scores", "objective/rlhf_reward"),
        "1707.06347",
        _arxiv(
            "schulman2017proximal",
            "Proximal Policy Optimization Algorithms",
            "Schulman, John and Wolski, Filip and Dhariwal, Prafulla and Radford, Alec and Klimov, Oleg",
            2017,
            "1707.06347",
        ),
    ),
    "sft": Method("supervised fine-tuning (SFT)", ("sft",), ("mean_token_accuracy", "loss")),
}


def method_of(trainer: str) -> str:
    """Key of `METHODS` for a trainer's class name.

    Args:
        trainer: E.g. "GRPOTrainer".

    Raises:
        ValueError: If the trainer is of none of the known kinds.
    """
    for key in METHODS:
        if trainer.lower().startswith(key):
            return key
    raise ValueError(
        f"Got a {trainer}. Expected one of {', '.join(key.upper() + 'Trainer' for key in METHODS)}. "
        "For another trainer, pass its model: push_adapter(trainer.model, ...)."
    )
