"""A model as a function of new tokens and of what is cached: what engines are built from."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

import torchtrt
from torchtrt.errors import InputError, TorchTRTError
from torchtrt_converters_transformers.attention import StepCache, reading, use_cached_attention
from torchtrt_converters_transformers.cache import equal_shapes
from torchtrt_converters_transformers.cache_formats import unscaled
from torchtrt_converters_transformers.cache_scales import take_cache
from torchtrt_converters_transformers.refusals import Refusal
from torchtrt_converters_transformers.rotary import fix_rotary

_Module = TypeVar("_Module", bound=torch.nn.Module)


def sharing_copy(model: _Module) -> _Module:
    """Returns a copy of a model in eval mode: its modules and configurations, with the same parameters and buffers."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    copied: _Module = copy.deepcopy(model, shared)
    copied.eval()
    return copied


@dataclasses.dataclass(frozen=True)
class ImageInputs:
    """The inputs of an engine that reads more of images than their embeddings.

    Attributes:
        mutual: Whether tokens of an image read each other in both directions. The input ``mutual`` has booleans
            ``(batch, new, new)``.
        features: How many layers add features of images. The input ``features`` has ``(features, batch, new, width)``.
    """

    mutual: bool = False
    features: int = 0

    def ranges(
        self, batch: tuple[int, ...], new: tuple[int, ...], width: int, dtype: torch.dtype
    ) -> dict[str, torchtrt.Input]:
        """Returns the inputs, for ranges of sequences and of tokens."""
        mutual = {"mutual": dynamic_input((batch, new, new), torch.bool)}
        features = {"features": dynamic_input((self.features, batch, new, width), dtype)}
        return {**(mutual if self.mutual else {}), **(features if self.features else {})}

    def complete(self, image_inputs: Mapping[str, Tensor], embedded: Tensor) -> dict[str, Tensor]:
        """Returns the inputs of a call for embeddings ``(batch, new, width)``; without images where none are given."""
        batch, new, width = embedded.shape if self.mutual or self.features else (0, 0, 0)
        defaults = {}
        if self.mutual:
            defaults["mutual"] = embedded.new_zeros((batch, new, new), dtype=torch.bool)
        if self.features:
            defaults["features"] = embedded.new_zeros((self.features, batch, new, width))
        return {name: image_inputs.get(name, default) for name, default in defaults.items()}

    def part(self, complete: Mapping[str, Tensor], part: slice) -> dict[str, Tensor]:
        """Returns the inputs of one of several calls, which reads a part of the new tokens.

        Raises:
            InputError: Tokens that read each other are not all in one part.
        """
        inputs = dict(complete)
        if self.mutual:
            rows = complete["mutual"][:, part]
            inputs["mutual"] = rows[:, :, part]
            if rows.sum() != inputs["mutual"].sum():
                raise InputError(
                    "Tokens that read each other, such as those of an image, must be read at once, and engines do not "
                    "return the logits behind so many. Ask for fewer with logits_to_keep, or propose fewer candidates."
                )
        if self.features:
            inputs["features"] = complete["features"][:, :, part]
        return inputs


NO_IMAGES = ImageInputs()
"""Of engines that read text only."""


def stacked(states: Sequence[Tensor]) -> list[Tensor]:
    """Returns keys and values of equal heads and widths in one tensor each, in the order of ``CacheLayout.groups``."""
    groups = equal_shapes([(state.shape[1], state.shape[3]) for state in states])
    return [torch.stack([states[number] for number in group]) for group in groups]


def selected(states: Tensor, keep: Tensor | None) -> Tensor:
    """Returns what is at some places of ``(batch, new, width)``: at the last one for None."""
    return states[:, -1:] if keep is None else states[:, keep]


_TOLERANCE = {torch.float32: 1e-3}
"""How far our attention may be from the model's own, of the largest logit; 5 % in lower precisions."""


def check_logits(ours: Tensor, wanted: Tensor, dtype: torch.dtype) -> None:
    """Compares the logits of a step with the model's own, for a model of this dtype.

    Raises:
        Refusal: They differ, or the model's own are not finite.
    """
    if not wanted.isfinite().all():
        raise Refusal(
            f"in {str(dtype).removeprefix('torch.')}, its own logits behind padding are not finite",
            "Compile it in another dtype, such as model.bfloat16() or model.float()",
        )
    distance = (ours - wanted).abs().max() / wanted.abs().max()
    if not distance <= _TOLERANCE.get(dtype, 5e-2):
        raise Refusal(
            f"with our attention over a cache its logits differ by {distance:.1%} from its own: its attention "
            "has something that ours lacks, or reads tokens that follow"
        )


@contextlib.contextmanager
def trying() -> Iterator[None]:
    """Raises a ``Refusal`` where a model's code does not run with our attention and cache."""
    try:
        yield
    except (TorchTRTError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise Refusal("its code does not run with our attention over a cache") from error


class Step(torch.nn.Module):
    """Reads new tokens.

    Args:
        model: A causal language model of transformers. It is left as it is: the step has a copy of its modules, with
            the same parameters and buffers.
        max_length: The maximum number of tokens of a sequence.

    Attributes:
        whole: Whether layers need what is cached as well, as in ``StepCache``.
        counts: Whether layers compute something from the number of tokens in the cache.
        cache_dtype: The dtype of the cache, FP8 or INT8 for a model that has scales; None for the model's.
        cache_scales: The scales of each layer's cache, where the model has them.
        selects: Whether the model computes the logits behind some tokens only.
    """

    def __init__(self, model: PreTrainedModel, max_length: int) -> None:
        super().__init__()
        self.max_length, self.whole, self.counts = max_length, False, False
        self.model = sharing_copy(model)
        cache = take_cache(self.model)
        self.cache_dtype = None if cache is None else cache.dtype
        self.cache_scales = () if cache is None else cache.scales
        self.eval()
        use_cached_attention(self.model)
        fix_rotary(self.model)
        self.selects = "logits_to_keep" in inspect.signature(model.forward).parameters

    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        mask: Tensor,
        past: Sequence[Tensor] = (),
        past_mask: Tensor | None = None,
        start: Tensor | None = None,
        keep: Tensor | None = None,
        mutual: Tensor | None = None,
        features: Tensor | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """Returns logits, ``(batch, kept, vocabulary)``, and the new keys and values.

        Those of a shape are one tensor, ``(tensors, batch, heads, new, width)``: of most models all of them.

        Args:
            input_ids: ``(batch, new)`` integers.
            position_ids: Their positions, likewise.
            mask: Booleans ``(batch, new)``: which of them count.
            past: Keys and values in turn, layer by layer, each ``(batch, heads, cached, width)``; none at first.
            past_mask: Booleans ``(batch, cached)``: which places of the cache may be read.
            start: How many places of the cache are in use, ``(1,)``; only windows, and layers that count, need it.
            keep: The new tokens behind which logits are returned: their places, ``(kept,)`` integers; None for the
                last.
            mutual: Which new tokens read each other in both directions, as ``StepCache`` has it.
            features: What the first layers add to the states of new tokens, likewise.
        """
        cache = self.cache(mask, past, past_mask, start, self.max_length)
        cache.mutual, cache.features = mutual, features
        logits = self.read(input_ids, position_ids, cache, keep)
        return logits, stacked(self.stored(cache))

    def cache(self, *args: Any) -> StepCache:
        """Returns a cache of the dtype and scales of this step, with the first arguments of ``StepCache``."""
        return StepCache(*args, dtype=self.cache_dtype, scales=self.cache_scales, whole=self.whole)

    def stored(self, cache: StepCache) -> list[Tensor]:
        """Returns the new keys and values as they are stored."""
        return [
            unscaled(state, self.cache_dtype, cache.scales(number // 2)[number % 2])
            for number, state in enumerate(cache.states)
        ]

    def read(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        cache: StepCache,
        keep: Tensor | None = None,
    ) -> Tensor:
        """Returns the logits behind some tokens; the cache then has the new keys and values."""
        options = {"logits_to_keep": 1 if keep is None else keep} if self.selects else {}
        output = self.run(cache, input_ids=input_ids, position_ids=position_ids, **options)
        logits: Tensor = output.logits
        return logits if self.selects else selected(logits, keep)

    def run(self, cache: StepCache, **arguments: Any) -> Any:
        """Returns what the model returns for these arguments, over a cache."""
        with reading(cache):
            return self.model(past_key_values=cache, use_cache=True, return_dict=True, **arguments)

    def inputs(self, batch: tuple[int, ...], new: tuple[int, ...]) -> list[torchtrt.Input]:
        """Returns the inputs of a step, tokens and their positions, for a range of sequences and one of new tokens."""
        return [dynamic_input((batch, new), torch.int64)] * 2

    def named_inputs(
        self, _batch: tuple[int, ...], _new: tuple[int, ...]
    ) -> dict[str, torchtrt.Input]:
        """Returns the further inputs of a step by name: none."""
        return {}

    @property
    def images(self) -> ImageInputs:
        """The inputs that belong to images, besides embeddings."""
        return NO_IMAGES


def dynamic_input(sizes: Sequence[int | tuple[int, ...]], dtype: torch.dtype) -> torchtrt.Input:
    """Returns an input of sizes that each are fixed, or a minimum, an optimum and a maximum."""
    ranges = [(size,) * 3 if isinstance(size, int) else size for size in sizes]
    shortest, optimal, longest = zip(*ranges, strict=True)
    return torchtrt.Input(min_shape=shortest, opt_shape=optimal, max_shape=longest, dtype=dtype)
