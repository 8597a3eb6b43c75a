"""Whether the servers that a trainer sends ids to read the tickets in them: `policy.serving` does."""

import json
import zlib
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

from ...compat import require_trl_with_tools_on_servers
from ..callers import server_addresses
from ..images.bounds import settings_of

SECONDS = 10.0


def handshake(processing: Any) -> dict[str, int]:
    """What a front and a trainer must have in common: how tickets are spelled, and what becomes of images."""
    settings = json.dumps(settings_of(processing.image_processor), sort_keys=True, default=str)
    return {"salt": processing.codec.salt, "images": zlib.crc32(settings.encode())}


def check_servers(trainer: Any, processing: Any, known: set[str]) -> None:
    """Refuse a trainer whose server knows nothing of this tokenizer's tickets, or reads other images.

    Addresses that answer are added to `known`.

    Raises:
        ValueError: If nobody at such an address reads this tokenizer's tickets.
    """
    for setting, address in server_addresses(trainer).items():
        if address in known:
            continue
        own, salt = handshake(processing), processing.codec.salt
        reply = {"salt": _salt_in_process(trainer)} if address is None else _reply_of(address)
        answer = reply["salt"]
        if answer == salt and reply.get("images", own["images"]) != own["images"]:
            raise ValueError(
                f"{type(trainer).__name__} has {setting} set, and the front at {address} processes images "
                "with other settings than this tokenizer. Expected the same: give hf-vlm-rl vllm-front the "
                "--max-pixels, --max-tiles, ... that from_pretrained got, or use policy.serving."
            )
        if answer != salt:
            raise ValueError(
                f"{type(trainer).__name__} has {setting} set and this tokenizer, whose tickets in ids nobody "
                f"reads at {address} (asked for its salt {salt}, got {answer}). Expected the address that "
                "`with policy.serving('http://gpu:8000') as url` or hf-vlm-rl vllm-front gives, of the same "
                "policy; with vLLM in the trainer's process, read_tickets(trainer) before trainer.train(): "
                "from hf_vlm_rl.vllm import read_tickets."
            )
        if address is not None:
            known.add(address)


def check_tools(trainer: Any) -> None:
    """Refuse a trainer whose loop for tools would not run with a policy and this tokenizer.

    Raises:
        ImportError: If it has a vLLM server, and its TRL asks that with other rows' conversations.
        ValueError: If the loop would ask the policy's config for what only configs of language models have.
    """
    attributes, addresses = vars(trainer), server_addresses(trainer)  # not every trainer has tools
    # Inside its `__init__`, a trainer has no model yet; in its own process, vLLM's config is asked.
    if not attributes.get("tools") or attributes.get("model") is None or None in addresses.values():
        return
    if addresses:
        require_trl_with_tools_on_servers()
    if not hasattr(trainer.model.config, "max_position_embeddings"):
        raise ValueError(
            f"{type(trainer).__name__} has tools and a tokenizer, and then asks the model's config for "
            "max_position_embeddings, which is in its text part. Expected before the trainer is made: "
            "policy.config.max_position_embeddings = policy.config.get_text_config().max_position_embeddings"
        )


def _salt_in_process(trainer: Any) -> int | str:
    """The salt of the engine that `read_tickets` gave the trainer."""
    engine = getattr(trainer, "vllm_generation", None)  # TRL's trainers name it alike, where they have it
    return getattr(getattr(engine, "llm", None), "ticket_salt", "no server")


def _reply_of(address: str) -> dict[str, Any]:
    """What a front answers; as its salt, what else happened."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https"):
        return {"salt": f"the address {address!r}"}
    host = parts.netloc.rpartition("@")[2]  # without a token
    try:
        with urlopen(f"{parts.scheme}://{host}/tickets", timeout=SECONDS) as response:
            reply = json.load(response)
            return {name: reply[name] for name in ("salt", "images")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        return {"salt": f"{type(error).__name__}: {error}"}
