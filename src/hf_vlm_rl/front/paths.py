"""What trainers of TRL ask vLLM servers besides completions, and how a front passes it on."""

from typing import NamedTuple

# Asked of one server.
ONE = ("/health", "/server_info", "/v1/models", "/version")


class Command(NamedTuple):
    """A request that goes to all servers."""

    step: str | None = None  # of sending weights, as `Servers.everywhere` knows it
    idle: bool = False  # it is for servers that have no request half answered
    stale: bool = False  # behind it, what a server knows of images may be of older weights


# Asked of all servers.
ALL = {
    "/finish_weight_update": Command("end", idle=True, stale=True),
    "/pause": Command(),
    "/reset_encoder_cache": Command(),
    "/reset_prefix_cache": Command(idle=True, stale=True),
    "/resume": Command(),
    "/start_weight_update": Command("begin", idle=True),
    "/update_weights": Command("part", idle=True),
    "/v1/load_lora_adapter": Command("whole", stale=True),
    "/v1/unload_lora_adapter": Command(),
}


def paused(params: dict[str, str]) -> tuple[dict[str, str], bool]:
    """How to ask servers for a pause, and whether it leaves requests half answered.

    With mode "keep" vLLM drops keys and values and begins its requests anew. But its workers got no pixels of
    images that its prefix cache had when a request began: vLLM 0.30 to 0.32 ends there. So the front lets it
    keep the keys, which is right if an adapter comes: no request has its name yet. Before other weights come,
    the front has vLLM finish what it began.
    """
    frozen = params.get("mode") == "keep"
    return (params | {"clear_cache": "false"} if frozen else params), frozen
