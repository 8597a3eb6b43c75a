"""Conversation templates of the InternVL generations, as Jinja chat templates.

A checkpoint names its template in config.json. All of them write `role, text, separator` for every
turn and always open with a system turn, the template's own unless the conversation brings one.
"""

from dataclasses import dataclass
from importlib import resources

from ...errors import UnsupportedModelError

IMAGE_TOKEN = "<IMG_CONTEXT>"

# What the models were trained with; another wording is another prompt.
_INTERNVL2 = (
    "你是由上海人工智能实验室联合商汤科技开发的书生多模态大模型，"  # noqa: RUF001
    "英文名叫InternVL, 是一个有用无害的人工智能助手。"
)
_INTERNVL2_5 = (
    "你是书生·万象，英文名是InternVL，"  # noqa: RUF001
    "是由上海人工智能实验室、清华大学及多家合作单位联合开发的多模态大语言模型。"
)


@dataclass(frozen=True)
class Conversation:
    """How a generation writes a conversation.

    Attributes:
        open: Written before a role's name.
        close: Written after it.
        separator: Written after every turn.
        system: The default system message.
    """

    open: str
    close: str
    separator: str
    system: str

    @property
    def stop(self) -> str:
        """The token that ends an answer."""
        return self.separator.strip()

    def jinja(self, system: str | None, bos: str = "") -> str:
        """The chat template, with a system message of the checkpoint's config or the template's own.

        `bos` is written before a conversation: the token that the tokenizer puts before a text. The original
        tokenizes whole conversations with it, and trainers tokenize a template's text without.
        """
        values = {
            "BOS": bos,
            "OPEN": self.open,
            "CLOSE": self.close,
            "SEPARATOR": self.separator,
            "SYSTEM": self.system if system is None else system,
            "IMAGE": IMAGE_TOKEN + "\n",
        }
        template = resources.files(__package__).joinpath("conversation.jinja").read_text().strip()
        for name, value in values.items():
            template = template.replace(name, repr(value))
        return template


CONVERSATIONS: dict[str, Conversation] = {
    "Hermes-2": Conversation("<|im_start|>", "\n", "<|im_end|>", _INTERNVL2),
    "internlm2-chat": Conversation("<|im_start|>", "\n", "<|im_end|>", _INTERNVL2),
    "phi3-chat": Conversation("<|", "|>\n", "<|end|>", _INTERNVL2),
    "internvl2_5": Conversation("<|im_start|>", "\n", "<|im_end|>\n", _INTERNVL2_5),
}


def conversation_for(name: str | None, source: str) -> Conversation:
    """The conversation template that config.json names.

    Raises:
        UnsupportedModelError: If it is not one of the known ones.
    """
    if name not in CONVERSATIONS:
        raise UnsupportedModelError(
            f"config.json of {source!r} has template {name!r}. Known: {', '.join(CONVERSATIONS)}."
        )
    return CONVERSATIONS[name]
