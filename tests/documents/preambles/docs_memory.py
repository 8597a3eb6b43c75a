"""A checkpoint by the page's name; tiny, where the page's example has 8 billion parameters."""

from tests.documents.material import model_at

model_at("internvl-8b", "internvl")
