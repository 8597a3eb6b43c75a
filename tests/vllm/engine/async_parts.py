"""What the programs of the asynchronous trainers have in common."""

import math
import tempfile

import requests

from hf_vlm_rl import save_adapter
from hf_vlm_rl.policy.scored import logprobs_of


def load_adapter(front: str, model, processing_class) -> str:
    """Let the server have a model's adapter as it is now; gives the name to ask it by."""
    directory = tempfile.mkdtemp()
    save_adapter(model, directory, processing_class=processing_class)
    given = {"lora_name": "last", "lora_path": directory}
    requests.post(f"{front}/v1/load_lora_adapter", json=given).raise_for_status()
    return "last"


def unload_adapters(front: str) -> None:
    """Let the server forget all adapters: TRL gives those of each run the same names."""
    models = requests.get(f"{front}/v1/models").json()["data"]
    for name in [model["id"] for model in models if model["parent"] is not None]:
        requests.post(f"{front}/v1/unload_lora_adapter", json={"lora_name": name}).raise_for_status()


def differences(front: str, name: str, policy, tokenizer, ids: list[int], *others: list[int]) -> list[float]:
    """How far the log-probs of 16 tokens that the server samples are from the policy's, at most.

    Args:
        front: Its address.
        name: What the server calls the model.
        policy: The policy that the server should have.
        tokenizer: Of the policy.
        ids: The prompt.
        others: Further prompts that the policy is given in its place.
    """
    asked = {"model": name, "prompt": ids, "max_tokens": 16, "temperature": 1.0, "logprobs": 0}
    answer = requests.post(f"{front}/v1/completions", json=asked | {"return_token_ids": True})
    answer.raise_for_status()
    (choice,) = answer.json()["choices"]
    given, largest = choice["logprobs"]["token_logprobs"], []
    for prompt in (ids, *others):
        clean, places = tokenizer.places(prompt)
        own = logprobs_of(policy, clean, [(ticket, None) for ticket, _, _ in places], choice["token_ids"])
        largest.append(max(abs(a - b) for a, b in zip(own, given, strict=True)))
    return largest


def logged(trainer, *names: str) -> dict[str, list[float | None]]:
    """What a trainer logged under some names at each step."""
    logs = [log for log in trainer.state.log_history if "loss" in log]
    assert all(math.isfinite(log["loss"]) for log in logs)
    return {name: [log.get(name) for log in logs] for name in names}


def stayed(model, before: dict) -> list[str]:
    """Names of trained weights that are as they were, but for LoRA's A.

    A has a gradient once B is not 0, so it moves where two steps have groups of unequal rewards.
    """
    trained = {
        name: weight
        for name, weight in model.named_parameters()
        if weight.requires_grad and "lora_A" not in name
    }
    return sorted(name for name, weight in trained.items() if weight.equal(before[name]))
