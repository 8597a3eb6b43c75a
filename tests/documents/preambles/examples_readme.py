"""A model by the name that stands for one."""

from tests.documents.material import model_at

model_at("MODEL", "qwen2_5_vl")
