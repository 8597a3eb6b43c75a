"""An environment whose tool returns images, for tiny models that have never seen a call."""

from tests.images import photo

CALL = {"type": "function", "function": {"name": "look", "arguments": {}}}
# Two calls, whatever was sampled; six tokens a turn, and room for what the tool says.
TURNS = {"max_tool_calling_iterations": 2, "max_completion_length": 500}
TURN = {"max_tokens": 6}
OWN_TOKENS = 3 * TURN["max_tokens"]


def photo_of(tokenizer):
    """The class of environments for `environment_factory`; images are marks of `tokenizer`."""

    class Photo:
        def reset(self, **row):
            self.number = 0

        def look(self) -> str:
            """Look closer."""
            self.number += 1
            return f"Part {self.number}: {tokenizer.mark(photo('rocket', (56, 28 * (1 + self.number))))}"

    return Photo


def always_calls(policy, monkeypatch) -> None:
    """Let whatever the policy says be read as a call of `look`."""
    policy.processing_class.enable_tools()
    policy.config.max_position_embeddings = policy.config.get_text_config().max_position_embeddings
    template = policy.tokenizer.response_template
    monkeypatch.setitem(template, "defaults", template["defaults"] | {"tool_calls": [CALL]})
