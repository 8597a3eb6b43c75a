"""What the scripts read, as each line has it."""

from tests.documents.material import data_of


def before_line(words):
    if "--data" in words:
        data_of(words)
