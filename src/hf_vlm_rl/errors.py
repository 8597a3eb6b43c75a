"""The errors users see. Each inherits the standard exception a caller would already catch.

Every message says what was given, what was expected and how to fix it, and names the row.
"""


class CheckpointError(OSError):
    """Files of a checkpoint are missing, damaged or do not fit its config."""


class ColumnError(ValueError):
    """A column that a reward reads is missing, or a row of it holds something else than expected."""


class DataError(ValueError):
    """A file of rows, or one row of a file or dataset, cannot be used; names file and line or row."""


class ImageError(ValueError):
    """An image cannot be read, or the images of a row do not fit its placeholders.

    Args:
        message: What is wrong.
        row: Index of the row that it is wrong in, where rows are known.
        place: In that row, such as "image 0".
    """

    def __init__(self, message: str, row: int | None = None, place: str = ""):
        at = f"{row}, {place}" if place else f"{row}"
        super().__init__(message if row is None else f"Row {at}: {message}")
        self.message, self.row, self.place = message, row, place

    def at_row(self, row: int) -> "ImageError":
        """The same error for whoever knows the row by another index."""
        return ImageError(self.message, row, self.place)


class PushError(OSError):
    """The Hub refused an upload or could not be reached; the local files are complete."""


class RewardError(RuntimeError):
    """A reward function raised, or returned something other than one number or None per row."""


class TicketError(LookupError):
    """A ticket cannot be turned back into an image."""


class UnsupportedModelError(ValueError):
    """It is no vision-language model, or none that can be made a policy; the message says why."""


class SelfCheckError(UnsupportedModelError):
    """A policy does not compute what its stock model computes."""
