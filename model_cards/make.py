"""Renders the example cards of this folder: `python -m model_cards.make`, or `make cards`.

The numbers are invented: what is shown is the template, not a model.
"""

from pathlib import Path

from hf_vlm_rl.hub.cards import AdapterCardData, Evaluation
from hf_vlm_rl.hub.cards.facts import AdapterFacts, BaseFacts, CardFacts, Curve, PartFacts, RunFacts
from hf_vlm_rl.hub.cards.render import render

FOLDER = Path(__file__).parent
COMMIT = "0123456789abcdef0123456789abcdef01234567"
VERSIONS = {
    "hf-vlm-rl": "0.2.0",
    "trl": "1.12.0",
    "transformers": "5.23.0",
    "peft": "0.21.2",
    "torch": "2.15.0",
}
DECODER = {
    "down_proj": 36,
    "gate_proj": 36,
    "k_proj": 36,
    "o_proj": 36,
    "q_proj": 36,
    "up_proj": 36,
    "v_proj": 36,
}
INVENTED = "An example of a card: its numbers are invented."


def adapter(kind: str = "adapter", **settings) -> AdapterFacts:
    """Facts of a LoRA adapter on a model of 3.8 billion parameters."""
    parts = (
        PartFacts("vision tower", 668_690_432, "frozen"),
        PartFacts("projector", 44_571_136, kind),
        PartFacts("decoder", 3_085_938_688, "adapter"),
    )
    settings = {"rank": 16, "alpha": 32, "dropout": 0.0} | settings
    return AdapterFacts("LORA", settings, DECODER, 37_404_672, 3_754_622_976, parts)


def grpo() -> AdapterCardData:
    """Everything that a card can show."""
    evaluation = Evaluation(
        dataset="Brands, held out",
        metric="accuracy",
        n=500,
        before=0.596,
        after=0.808,
        before_ci=(0.552, 0.639),
        after_ci=(0.771, 0.842),
        dataset_id="user/brands",
        split="test",
    )
    run = RunFacts(
        trainer="GRPOTrainer",
        method="grpo",
        steps=300,
        seconds=5400.0,
        hardware="2 x NVIDIA RTX 4090",
        rewards=(("accuracy_reward", 1.0), ("format_reward", 0.2)),
        data={"training": 4000, "evaluation": 500},
        hyperparameters={"learning_rate": 1e-5, "num_generations": 8, "beta": 0.04, "loss_type": "dapo"},
        curve=Curve("reward", ((1, 0.61), (150, 0.83), (300, 0.97))),
    )
    card = AdapterCardData(
        title="Brands by GRPO",
        summary=f"Names the brand on a photograph of a product.\n\n{INVENTED}",
        prompt="Which brand is this? Answer with its name.",
        datasets=["user/brands"],
        data_notes="Photographs from shops, one product each.",
        evaluations=[evaluation],
        limits=["Knows the 120 brands of its training data."],
        language=["en"],
    )
    base = BaseFacts(
        "Qwen/Qwen2.5-VL-3B-Instruct", COMMIT, "other", "qwen-research", quantization="4-bit nf4"
    )
    card.repo_id = "user/brands-grpo"
    card.facts = CardFacts(base, adapter(), run, VERSIONS)
    return card


def dpo() -> AdapterCardData:
    """No evaluation, streamed data, a projector trained in full."""
    run = RunFacts(
        trainer="DPOTrainer",
        method="dpo",
        steps=1200,
        seconds=11_000.0,
        hardware="8 x NVIDIA H100 80GB HBM3",
        data={"training": None},
        hyperparameters={"learning_rate": 5e-6, "beta": 0.1, "loss_type": ["sigmoid"]},
    )
    card = AdapterCardData(
        summary=f"Prefers answers that the image supports.\n\n{INVENTED}", license="apache-2.0"
    )
    card.repo_id = "user/faithful-dpo"
    saved = {"trained in full": "model.visual.merger"}
    card.facts = CardFacts(
        BaseFacts("Qwen/Qwen2.5-VL-3B-Instruct"), adapter("in full", **saved), run, VERSIONS
    )
    return card


def ppo() -> AdapterCardData:
    """A base in its authors' own format, which only this package reads."""
    run = RunFacts(
        trainer="PPOTrainer",
        method="ppo",
        steps=500,
        rewards=(("digit_reward", 1.0),),
        data={"training": 1277},
        hyperparameters={"learning_rate": 3e-6, "kl_coef": 0.05},
        curve=Curve("objective/scores", ((1, 0.24), (500, 0.47))),
    )
    card = AdapterCardData(
        summary=f"Reads handwritten digits.\n\n{INVENTED}", language=["en", "de"], tags=["digits"]
    )
    card.repo_id = "user/digits-ppo"
    base = BaseFacts("OpenGVLab/InternVL2_5-4B", COMMIT, "mit", stock=False)
    card.facts = CardFacts(base, adapter(), run, VERSIONS)
    return card


EXAMPLES = {"grpo.md": grpo, "dpo.md": dpo, "ppo.md": ppo}


def pages() -> dict[str, str]:
    """File name to card."""
    return {name: render(make()) for name, make in EXAMPLES.items()}


if __name__ == "__main__":
    for name, page in pages().items():
        (FOLDER / name).write_text(page, encoding="utf-8")
