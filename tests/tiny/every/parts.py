"""Parts that several outlines share."""

# Words of the ChatML families; the end of a turn is also the end of an answer.
CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def square(side: int) -> dict[str, int]:
    """The size of a square image, as image processors write it."""
    return {"height": side, "width": side}
