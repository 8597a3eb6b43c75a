"""The errors users see. Each inherits the standard exception a caller would already catch.

- `CheckpointError`: files of a checkpoint are missing, damaged or do not fit its config.
- `ImageError`: an image cannot be used, or images and placeholders do not match.
- `RewardError`: a reward function failed, or returned something that is no reward.
- `TicketError`: a ticket is damaged, or the store has no image for it.
- `UnsupportedModelError`: no family row describes the model.

Every message says what was given, what was expected and how to fix it, and names the row.
"""


class CheckpointError(OSError):
    """Files of a checkpoint are missing, damaged or do not fit its config."""


class ImageError(ValueError):
    """An image cannot be read, or the images of a row do not fit its placeholders."""


class RewardError(RuntimeError):
    """A reward function raised, or returned something other than one number or None per row."""


class TicketError(LookupError):
    """A ticket cannot be turned back into an image."""


class UnsupportedModelError(ValueError):
    """No `VLMFamily` describes this kind of model."""
