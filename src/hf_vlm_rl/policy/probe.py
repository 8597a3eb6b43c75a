"""Compares a fast path with stock on a few words, before it is first taken.

The conformance tests compare the paths for every family. A check at run time catches what they cannot know:
an attention kernel, a quantised layer or a release of transformers that reads its arguments otherwise.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from ..compat import DEVICE_ERRORS, float32_is_rounded
from .eval_mode import evaluating
from .ranks import is_sharded
from .report import Refused

# The difference that rounding explains in half precision, as a share of the largest value. Products have few
# digits there, and deep decoders lose most of them: a check still sees a wrong token or a missing one, but
# not more. So a decoder with float32 weights is always compared in float32, too.
HALF = 0.1

# For hidden states of a whole batch whose tokens are grouped otherwise. Rounding changed them by 7e-6 at most
# in 77 classes, and by 7e-7 on pretrained weights; a layer that wrongly begins anew may be off by only 2e-4.
OF_BATCHES = {torch.float64: 1e-9, torch.float32: 5e-5}

# For hidden states of a prompt's last token, computed as a decoding step behind the others.
OF_STEPS = {torch.float64: 1e-9, torch.float32: 2e-5}


class Setting(NamedTuple):
    """What the values of a forward depend on, besides the decoder.

    Attributes:
        weights: Dtype of the decoder's weights.
        autocast: Dtype in which autocast computes products; None where it is off.
        rounded: Whether the device rounds products of float32 (TF32, bfloat16).
        device: Where the decoder is.
        kernel: The name of stock's attention.
    """

    weights: torch.dtype
    autocast: torch.dtype | None
    rounded: bool
    device: torch.device
    kernel: str

    def allowed(self, full: dict[torch.dtype, float]) -> float:
        """The relative difference that rounding explains here; `full`: by dtype, but for half precision."""
        dtype = self.weights if self.autocast is None else self.autocast
        return HALF if self.rounded and dtype is torch.float32 else full.get(dtype, HALF)


@dataclass(frozen=True, eq=False)
class Check:
    """One question: does a fast path of ours give what stock gives?

    Attributes:
        claim: The beginning of a sentence: "where rows share their prompts".
        stock: Takes a decoder and gives stock's values.
        ours: Takes a decoder and gives values that must be equal; it may raise `Refused`.
        rounding: `OF_BATCHES` or `OF_STEPS`.
    """

    claim: str
    stock: Callable[[Any], torch.Tensor]
    ours: Callable[[Any], torch.Tensor]
    rounding: dict[torch.dtype, float]


class Verdicts:
    """Results of the checks of one decoder; each runs once for each setting. One per policy backbone.

    With `only_shapes`, the weights are on the meta device for good, as in `plan`: no numbers can differ.
    """

    def __init__(self) -> None:
        self.only_shapes = False
        self._found: dict[tuple[Check, Setting], str | None] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> "Verdicts":
        copy = Verdicts()
        copy.only_shapes = self.only_shapes
        copy._found.update(self._found)  # results hold for the copy, which may be sharded before it asks
        return copy

    def ask(self, check: Check, decoder: Any) -> None:
        """Compare a fast path with stock, once for each setting, and refuse it if they differ.

        Weights that are spread over ranks are not compared, as ranks would wait for each other. The result
        from when they were whole holds for them: `make_policy` asks then. The decoder's mode and gradients
        are left as they are.

        Raises:
            Refused: If the fast path differs from stock, or cannot be compared.
        """
        if self.only_shapes:
            return
        if decoder.device.type == "meta":
            raise Refused("the weights are offloaded, and were not compared with stock before")
        if is_sharded(decoder):
            self._ask_of_whole_weights(check)
            return
        now = setting_of(decoder)
        for setting in dict.fromkeys((now._replace(autocast=None), now)):
            if (check, setting) not in self._found:
                # Weights of several dtypes may need autocast to be multiplied at all.
                runs = setting == now or _has_full_precision(decoder)
                self._found[check, setting] = _compare(check, decoder, setting) if runs else None
            reason = self._found[check, setting]
            if reason is not None:
                # A difference that only autocast causes ends with autocast.
                raise Refused(reason, lasting=setting.autocast is None)

    def _ask_of_whole_weights(self, check: Check) -> None:
        reasons = [reason for (checked, _), reason in self._found.items() if checked is check]
        if not reasons:
            raise Refused(
                f"{check.claim}, the decoder was not compared with stock before its weights were spread over "
                "ranks",
                lasting=True,
            )
        if any(reasons):
            raise Refused(next(filter(None, reasons)), lasting=True)


def setting_of(decoder: Any) -> Setting:
    """The setting in which a forward of a decoder would run now, in this thread."""
    device = decoder.device
    on = torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type)
    return Setting(
        weights=decoder.dtype,
        autocast=torch.get_autocast_dtype(device.type) if on else None,
        rounded=float32_is_rounded(device.type),
        device=device,
        kernel=decoder.config._attn_implementation,
    )


def ordinary_ids(decoder: Any, count: int) -> torch.Tensor:
    """(count,) different ids from the middle half of a decoder's vocabulary, on its device.

    The first and last ones are often bytes, special tokens or rows that were never trained. On these, trained
    decoders may amplify a rounding error a thousand times as much as on words. The vocabulary needs 2 x count
    words.
    """
    words = decoder.config.vocab_size
    return words // 4 + torch.arange(count, device=decoder.device) * (words // 2) // count


def difference(ours: torch.Tensor, stock: torch.Tensor) -> float:
    """The largest difference as a share of the largest value; infinity if shapes differ or there is NaN."""
    if ours.shape != stock.shape:
        return torch.inf
    largest = stock.float().abs().max()
    share = ((ours.float() - stock.float()).abs().max() / largest).item()
    return share if share == share else torch.inf


def _has_full_precision(decoder: Any) -> bool:
    """Whether all weights are of float32, or all of float64: without autocast, small differences show."""
    dtypes = {parameter.dtype for parameter in decoder.parameters() if parameter.is_floating_point()}
    return dtypes in ({torch.float32}, {torch.float64})


def _autocast(setting: Setting) -> Any:
    """Autocast as in a setting, without its cache of weights.

    Weights that autocast casts here, without gradients, would stay in the cache. The forward that asks would
    use them, and the decoder would get no gradients.
    """
    device = setting.device.type
    if not torch.amp.is_autocast_available(device):
        return nullcontext()
    if setting.autocast is None:
        return torch.autocast(device, enabled=False)
    return torch.autocast(device, setting.autocast, cache_enabled=False)


def _compare(check: Check, decoder: Any, setting: Setting) -> str | None:
    """Why a fast path must not be taken in one setting; None if its values equal stock's.

    An error of the device (its memory, its driver) is raised: it says nothing about the decoder.
    """
    failed = f"the self-check failed: {check.claim}"
    with torch.no_grad(), evaluating(decoder), _autocast(setting):
        stock = check.stock(decoder)
        try:
            ours = check.ours(decoder)
        except Refused as refused:
            return f"{failed}, {refused}"
        except DEVICE_ERRORS:
            raise
        except Exception as error:  # an unknown decoder may raise anything
            return f"{failed}, {type(decoder).__name__} raises {type(error).__name__}: {error}"
    share, allowed = difference(ours, stock), setting.allowed(check.rounding)
    if share <= allowed:
        return None
    return (
        f"{failed}, hidden states of {type(decoder).__name__} differ by {share:.1e} of the largest "
        f"(at most {allowed:.0e} is rounding)"
    )
