"""Random weights under which images, positions and words all move the logits."""

import math

import torch
from transformers import PreTrainedModel

# Parameters that are looked up or added to activations rather than multiplied with them. Several of
# them start at zero (InternVL's class token and position embeddings) or very small.
_TABLES = ("embed", "cls_token", "image_newline")


def randomise(model: PreTrainedModel, seed: int) -> None:
    """Redraw every parameter of `model` from `seed`.

    Stock initialisation leaves zeros behind (layer scales, position tables, Gemma's projection)
    and matrices so small that a tiny model hardly sees its input. Here a matrix keeps the scale of
    what it is multiplied with, a table has entries of about a half, and a vector moves a little
    from its start.
    """
    words = model.get_input_embeddings().weight
    output = model.get_output_embeddings()
    # Models that wrap a whole language model name no output embeddings of their own.
    tied = output is not None and output.weight is words
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter is words:
                # Large tied rows would make every token predict itself.
                parameter.copy_(noise * (0.0625 if tied else 0.25))
            elif any(word in name for word in _TABLES) and "patch_embed" not in name:
                parameter.copy_(noise * 0.5)
            elif parameter.numel() == 1:
                # A gate: some start closed.
                parameter.copy_(0.7 + noise * 0.1)
            elif parameter.dim() == 1:
                parameter.add_(noise * 0.1)
            elif parameter.dim() == 3 and "experts" in name:
                # One matrix an expert, stored as input by output or the other way round.
                parameter.copy_(noise * (1.2 / parameter[0].numel() ** 0.25))
            else:
                parameter.copy_(noise * (1.2 / math.sqrt(parameter[0].numel())))
            if tied and name.endswith("language_model.norm.weight"):
                parameter.add_(2.0)
