"""`AutoVLMPolicy`: from a checkpoint to a policy and its processing class."""

import difflib
import functools
import os
from collections.abc import Sequence
from typing import Any

from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel, ProcessorMixin

from ..errors import UnsupportedModelError
from ..families import VLMFamily
from ..families.registry import register_family
from ..policy.policy import VLMPolicy
from ..policy.sharing.settings import Mode
from ..processing.chat_template import end_turns
from ..processing.ids.tokenizer import IdsTokenizer
from ..processing.images.store import ImageStore
from ..processing.make import make_processing_class
from .adapters import find_adapter, load_on_base
from .checkpoint import read_checkpoint
from .formats import reader_of
from .location import HUB_ARGUMENTS, file_arguments
from .policy import finish, load_policy, make_processing
from .stock import chat_class, complete_family

# Those of transformers that people mistype.
OF_TRANSFORMERS = ("dtype", "attn_implementation", "device_map", "quantization_config")


class AutoVLMPolicy:
    """Loads vision-language models as policies for stock trainers.

    ```python
    policy = AutoVLMPolicy.from_pretrained("Qwen/Qwen2.5-VL-3B-Instruct", dtype="bfloat16")
    trainer = GRPOTrainer(model=policy, processing_class=policy.processing_class, ...)
    ```
    """

    def __init__(self, *args: Any, **kwargs: Any):
        model = repr(args[0]) if args and isinstance(args[0], str) else "id"
        raise OSError(
            f"AutoVLMPolicy is designed to be instantiated with AutoVLMPolicy.from_pretrained({model}) "
            "or AutoVLMPolicy.from_config(config, processor)."
        )

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | os.PathLike,
        *,
        min_pixels: int | None = None,
        max_pixels: int | None = None,
        min_tiles: int | None = None,
        max_tiles: int | None = None,
        image_store: ImageStore | None = None,
        sharing: Mode = "auto",
        native_inputs: bool | None = None,
        allow_missing: Sequence[str] = (),
        base_model: str | os.PathLike | None = None,
        base_revision: str | None = None,
        trainable: bool = False,
        merge: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Load a checkpoint.

        Args:
            pretrained_model_name_or_path: Hub id or directory of a model that transformers knows, of
                one in an original format that this package reads (`formats.ORIGINAL_FORMATS`), or of a
                PEFT adapter, whose base is then found and loaded.
            min_pixels: Smallest image area after resizing, in pixels (Qwen families).
            max_pixels: Largest image area after resizing, in pixels (Qwen families).
            min_tiles: Fewest tiles per image, thumbnail aside (InternVL); 1 to `max_tiles`.
            max_tiles: Most tiles per image, thumbnail aside (InternVL); up to 256.
            image_store: Where tickets find their images. Default: the process-wide store.
            sharing: Compute the prompt that rows have in common once per forward: "auto" where it
                pays, True wherever it is exact, False never. The results are the same.
            native_inputs: Give the stock model exactly the native processor's tensors for each batch; nothing
                is encoded once or shared. Default: only where the model takes nothing else.
            allow_missing: Names of weights that the checkpoint may lack and that then start at random, or of
                modules with such weights: `["lm_head"]`.
            base_model: For an adapter whose base has moved: its base, as Hub id or directory.
            base_revision: For an adapter: revision of its base. Default: the one it was trained on.
            trainable: For an adapter: train it further.
            merge: For an adapter: add it into the base's weights.
            **kwargs: As for transformers' Auto classes: `dtype`, `attn_implementation`, `device_map`,
                `revision` and `subfolder` (of the adapter, if it is one), `token`, `cache_dir`,
                `local_files_only`, `trust_remote_code` (default False: code that comes with the checkpoint is
                not run, see `loading.remote_code`), ... A `quantization_config`
                for bitsandbytes quantises the decoder alone, unless it has `llm_int8_skip_modules`.

        Returns:
            The stock `PreTrainedModel` of the checkpoint, re-typed in place (see `policy`), with
            `.processing_class` for the trainer. For an adapter, a stock `PeftModel` around the policy,
            whose attributes it forwards (`processing_class`, `chat`, ...); with `merge`, the policy.

        Raises:
            CheckpointError: If there is no such directory or no config.json; if weights are missing; if an
                adapter's files are missing, damaged or pickled, its tensors do not fit its base, or it
                changes nothing and is not to be trained.
            SelfCheckError: If, as a policy, a model that this package's tests do not cover computes something
                else than the stock model (`loading.self_check`).
            UnsupportedModelError: If it is no vision-language model, or none that can be made a policy.
            TypeError: If an argument is unknown.
            ValueError: If an image option does not exist for its family or is out of its bounds; if an
                argument is for adapters and the checkpoint is none, or contradicts another.
        """
        source = os.fspath(pretrained_model_name_or_path)
        hub = {key: kwargs.pop(key) for key in HUB_ARGUMENTS if key in kwargs}
        options = {
            "min_pixels": min_pixels,
            "max_pixels": max_pixels,
            "min_tiles": min_tiles,
            "max_tiles": max_tiles,
        }
        load = functools.partial(
            load_policy,
            options=options,
            image_store=image_store,
            sharing=sharing,
            native_inputs=native_inputs,
            allow_missing=allow_missing,
        )
        for_adapters: dict[str, Any] = {
            "base_model": base_model,
            "base_revision": base_revision,
            "trainable": trainable,
            "merge": merge,
        }
        adapter = find_adapter(source, hub)
        if adapter is None and (named := [key for key, value in for_adapters.items() if value]):
            raise ValueError(
                f"Got {', '.join(named)} for {source!r}, which holds a model and no adapter_config.json. "
                "These arguments are for adapters."
            )
        try:
            if adapter is not None:
                return load_on_base(adapter, load, kwargs, **for_adapters)
            return load(source, hub, kwargs=kwargs)
        except TypeError as error:
            unknown = [key for key in kwargs if f"unexpected keyword argument {key!r}" in str(error)]
            known = {*options, *for_adapters, *load.keywords, *HUB_ARGUMENTS, *OF_TRANSFORMERS}
            if not unknown:
                raise
            close = difflib.get_close_matches(unknown[0], sorted(known), n=1)
            meant = f" Did you mean {close[0]!r}?" if close else " What a config has is set there: config=..."
            raise TypeError(f"from_pretrained got an unknown argument {unknown[0]!r}.{meant}") from error

    @classmethod
    def tokenizer(
        cls,
        pretrained_model_name_or_path: str | os.PathLike,
        *,
        image_store: ImageStore | None = None,
        native_inputs: bool | None = None,
        **options: Any,
    ) -> IdsTokenizer:
        """The `tokenizer` of a policy without its weights, for processes that only write or read tickets.

        Args:
            pretrained_model_name_or_path: As in `from_pretrained`; no adapter.
            image_store: As in `from_pretrained`.
            native_inputs: As in `from_pretrained`.
            **options: Of those of `from_pretrained`, the pixels and tiles of images, and where the files
                are: `revision`, `subfolder`, `token`, `cache_dir`, `trust_remote_code`, ...

        Raises:
            CheckpointError: If there is no such directory or no config.json.
            UnsupportedModelError: If it is an adapter or no vision-language model, or its prompts attend in
                both directions.
            ValueError: If an option does not exist for its family, or is out of its bounds.
        """
        source = os.fspath(pretrained_model_name_or_path)
        hub = {key: options.pop(key) for key in HUB_ARGUMENTS if key in options}
        adapter = find_adapter(source, hub)
        if adapter is not None:
            base = adapter.config.base_model_name_or_path
            raise UnsupportedModelError(f"{source!r} is an adapter. Expected its base, {base!r}.")
        read = read_checkpoint(source, hub)
        processing_class = make_processing(read.processor, read.config, options, image_store, native_inputs)
        if reader_of(read.stored["model_type"]) is None:  # originals stop at the tokenizer's eos alone
            try:
                generation = GenerationConfig.from_pretrained(source, **file_arguments(hub))
            except OSError:  # there is no such file
                generation = GenerationConfig.from_model_config(dict(read.stored))
            end_turns(processing_class, generation)
        return processing_class.as_tokenizer()

    @classmethod
    def from_config(
        cls,
        config: PreTrainedConfig,
        processor: ProcessorMixin,
        *,
        image_store: ImageStore | None = None,
        native_inputs: bool | None = None,
        **kwargs: Any,
    ) -> VLMPolicy:
        """A policy with random weights.

        Args:
            config: Config of a vision-language model.
            processor: The model's native processor; becomes the processing class.
            image_store: As in `from_pretrained`.
            native_inputs: As in `from_pretrained`.
            **kwargs: `dtype`, `attn_implementation`, as for `AutoModel.from_config`.
        """
        model = chat_class(config)._from_config(config, **kwargs)
        return cls.from_model(model, processor, image_store=image_store, native_inputs=native_inputs)

    @classmethod
    def from_model(
        cls,
        model: PreTrainedModel,
        processor: ProcessorMixin,
        *,
        image_store: ImageStore | None = None,
        native_inputs: bool | None = None,
    ) -> VLMPolicy:
        """Make a policy of a loaded model, in place. A policy comes back as it is.

        Args:
            model: A stock `...ForConditionalGeneration` model.
            processor: Its native processor, re-typed in place as well.
            image_store: As in `from_pretrained`.
            native_inputs: As in `from_pretrained`.
        """
        if isinstance(model, VLMPolicy):
            return model
        family = complete_family(model, processor, native_inputs)
        processing_class = make_processing_class(processor, model.config, family, image_store)
        return finish(model, processing_class)

    @staticmethod
    def register_family(family: VLMFamily, exist_ok: bool = False) -> None:
        """Add a family for this process; see `hf_vlm_rl.register_family`."""
        register_family(family, exist_ok)
