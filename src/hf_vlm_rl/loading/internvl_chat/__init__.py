"""InternVL checkpoints in OpenGVLab's own format (`model_type: internvl_chat`), loaded natively.

The weights go into transformers' `InternVLForConditionalGeneration`; the config, the tokenizer and
the processor are built from the checkpoint's data files. No code that comes with a checkpoint runs.
"""

from .load import open_checkpoint, read_headers

__all__ = ["open_checkpoint", "read_headers"]
