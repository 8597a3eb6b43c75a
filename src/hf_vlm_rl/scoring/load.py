"""`AutoVLMValueModel` and `AutoVLMRewardModel`: from a checkpoint to a backbone with a scalar head."""

import os
import warnings
from typing import Any, NoReturn

from transformers import PreTrainedConfig, PreTrainedModel

from ..errors import CheckpointError, UnsupportedModelError
from ..families.derive_inputs import image_token_id
from ..loading.adapters import find_adapter
from ..loading.formats import ORIGINAL_FORMATS
from ..loading.location import HUB_ARGUMENTS, file_arguments, read_config
from ..loading.quantization import decoder_only, finish_quantised
from ..loading.stock import complete_family, load_config, load_processor, skeleton
from ..policy.backbone import make_backbone
from ..processing.make import make_processing_class
from ..processing.tokenizer import VLMTokenizer
from .head import SCORED, scored_class

HEAD = "score.weight"


class AutoVLMValueModel:
    """Loads value models for PPO: they see the images and score every token.

    ```python
    value_model = AutoVLMValueModel.from_pretrained(model_id, processing_class=policy.processing_class)
    trainer = PPOTrainer(model=policy, value_model=value_model, ...)
    ```
    """

    _new_head = "It is trained together with the policy."

    def __init__(self) -> NoReturn:
        raise OSError(f"Use {type(self).__name__}.from_pretrained(id).")

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | os.PathLike,
        *,
        processing_class: VLMTokenizer | None = None,
        **kwargs: Any,
    ) -> PreTrainedModel:
        """Load a backbone with a scalar head.

        Args:
            pretrained_model_name_or_path: A chat model (`...ForConditionalGeneration`: its language
                head is left out and `score` is new) or what `save_pretrained` of this model wrote.
            processing_class: The policy's, so that both share preprocessed images. Default: the
                checkpoint's own.
            **kwargs: As for `AutoVLMPolicy.from_pretrained`: `dtype`, `quantization_config`,
                `device_map`, `revision`, ...; `num_labels` (default: those of a saved value or
                reward model, else 1).

        Returns:
            A `PreTrainedModel` with `model`, `score`, `processing_class` and `lora_config()`.

        Warns:
            UserWarning: If `score` is not in the checkpoint and starts at random.

        Raises:
            CheckpointError: If other weights are missing or left over.
            UnsupportedModelError: If it is no vision-language model that can be scored, or an adapter.
            ValueError: If `processing_class` belongs to another kind of model.
        """
        source = os.fspath(pretrained_model_name_or_path)
        hub = {key: kwargs.pop(key) for key in HUB_ARGUMENTS if key in kwargs}
        located = file_arguments(hub)
        if find_adapter(source, hub) is not None:
            raise UnsupportedModelError(
                f"{source!r} is an adapter. Expected a chat model or a value model: load its base here and, "
                "if the adapter was trained on a value model, PeftModel.from_pretrained(model, adapter); or "
                "save AutoVLMPolicy.from_pretrained(adapter, merge=True) and load that here."
            )
        config_dict = read_config(source, located)
        model_type = config_dict["model_type"]
        if model_type in ORIGINAL_FORMATS:
            raise UnsupportedModelError(
                f"{source!r} is in the original format {model_type!r}. Save it in transformers' format "
                "first: policy = AutoVLMPolicy.from_pretrained(...), policy.save_pretrained(directory), "
                "policy.processing_class.save_pretrained(directory)."
            )
        config = kwargs.pop("config", None)
        if config is None:
            config = load_config(config_dict, source, hub)
        chat_model = skeleton(config)
        if chat_model.base_model is chat_model:
            raise UnsupportedModelError(
                f"{type(chat_model).__name__} ({source!r}) has no backbone below its language-model head. "
                "Expected one, on which a value or reward head can stand; a RewardFunctionModel needs none."
            )
        processor = load_processor(source, hub) if processing_class is None else processing_class
        family = complete_family(chat_model, processor)
        is_scored = any(name.endswith(SCORED) for name in config.architectures or ())
        config.num_labels = kwargs.pop("num_labels", config.num_labels if is_scored else 1)
        kwargs = decoder_only(kwargs, family, head=HEAD.removesuffix(".weight"))
        processing_class = make_processing_class(processor, config, family)
        _check_same_model(processing_class, config, source)
        stock: Any = type(chat_model)
        backbone: Any = type(chat_model.base_model)
        model_class = scored_class(stock, backbone)
        model, info = model_class.from_pretrained(
            source, config=config, output_loading_info=True, **hub, **kwargs
        )
        _check_loaded(info, source)
        finish_quantised(model, family)
        if HEAD in info["missing_keys"]:
            warnings.warn(
                f"{source!r} has no {HEAD}: it starts with random values. {cls._new_head}", stacklevel=2
            )
        return make_backbone(model, processing_class)


class AutoVLMRewardModel(AutoVLMValueModel):
    """Loads reward models: trained with `RewardTrainer`, used by PPO as `reward_model`.

    Rows for `RewardTrainer` are `encode_prompt` of the conversation with each answer: columns
    `chosen_ids` and `rejected_ids`.
    """

    _new_head = "Train it before its scores are used as rewards."


def _check_same_model(processing_class: VLMTokenizer, config: PreTrainedConfig, source: str) -> None:
    state = processing_class.state
    same_type = state.family.model_type == config.model_type
    image_token = image_token_id(config, processing_class)
    if not same_type or state.placeholder_id != image_token:
        raise ValueError(
            f"{source!r} is a {config.model_type} model with image token {image_token}, but the "
            f"processing class belongs to a {state.family.model_type} model with image token "
            f"{state.placeholder_id}. PPO gives the policy's ids to all its models: use checkpoints of one "
            "family and tokenizer, or RewardFunctionModel around a model of another one."
        )


def _check_loaded(info: dict, source: str) -> None:
    missing, unexpected = set(info["missing_keys"]) - {HEAD}, set(info["unexpected_keys"])
    mismatched = info["mismatched_keys"]
    if missing or unexpected or mismatched:
        raise CheckpointError(
            f"The weights of {source!r} do not fit its config: {len(missing)} missing "
            f"({', '.join(sorted(missing)[:3])}), {len(unexpected)} left over "
            f"({', '.join(sorted(unexpected)[:3])}), {len(mismatched)} of another shape. Expected a whole "
            "chat model or value model; download or save it again."
        )
