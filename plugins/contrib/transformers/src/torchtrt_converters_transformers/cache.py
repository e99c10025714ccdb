"""The keys and values of what was read and generated, in memory that engines read where it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor
from transformers import Cache

from torchtrt.errors import EngineError, InputError

SMALLEST = 64
"""The places that a cache has room for at first, where there may be as many."""


@dataclass(frozen=True)
class CacheLayout:
    """The state that a model keeps of each token, and the number of tokens with room.

    Attributes:
        shapes: The heads and the width of keys and values in turn, layer by layer.
        max_batch_size: The maximum number of sequences.
        max_length: The maximum number of tokens of a sequence.
        dtype: The dtype of keys and values; None for the model's.
    """

    shapes: tuple[tuple[int, int], ...]
    max_batch_size: int
    max_length: int
    dtype: torch.dtype | None = None

    @property
    def layers(self) -> int:
        """The layers that have keys and values."""
        return len(self.shapes) // 2

    def groups(self) -> list[list[int]]:
        """Returns the numbers of the keys and values of each shape: a step returns those of a group in one tensor."""
        return equal_shapes(self.shapes)

    def elements(self) -> int:
        """Returns the elements of the keys and values of all sequences at their greatest length."""
        tokens = self.max_batch_size * self.max_length
        return tokens * sum(heads * width for heads, width in self.shapes)


def equal_shapes(shapes: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Returns the numbers of equal shapes, group by group, in the order of each group's first."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for number, shape in enumerate(shapes):
        groups.setdefault(shape, []).append(number)
    return list(groups.values())


def _bytes_of(states: Tensor) -> Tensor:
    """Returns the bytes of keys and values of 8 bits, for which PyTorch has no ``index_select``; others as they are."""
    return states.view(torch.uint8) if states.element_size() == 1 else states


class EngineCache(Cache):
    """The cache of a ``torchtrt_converters_transformers.CompiledForCausalLM``.

    It is allocated once. Sequences share the memory by their number and length. A cache of one short sequence is small
    and contiguous, so that engines read no more than its tokens. Where room for a sequence ends, it doubles.

    Args:
        layout: What there is room for.
        memory: ``layout.elements()`` elements on the model's device, in the dtype of its keys.

    Attributes:
        source: Keys and values of what an encoder read, in turn, each ``(batch, heads, source, width)``, and a mask,
            booleans ``(batch, source)``. Empty where there is no encoder.
        rope_deltas: The distance of the next tokens' positions from their places, ``(batch, 1)``. None for models whose
            positions have one axis.
    """

    def __init__(self, layout: CacheLayout, memory: Tensor) -> None:
        super().__init__(layers=[])
        self.layout = layout
        self._memory: Tensor | None = memory
        self._groups = layout.groups()
        self.source: list[Tensor] = []
        self.rope_deltas: Tensor | None = None
        self._length = self._batch_size = 0
        self._resize(0, 1)

    @property
    def tensors(self) -> Sequence[Tensor]:
        """Keys and values in turn, layer by layer: each ``(batch, heads, places, width)``, contiguous."""
        return self._tensors

    def start(self, batch_size: int) -> None:
        """Empties the cache for a batch of sequences.

        Raises:
            InputError: The cache has no room for so many sequences.
            EngineError: The memory was given to a later call.
        """
        if batch_size > self.layout.max_batch_size:
            raise InputError(
                f"There are {batch_size} sequences, those of beams and of num_return_sequences counted, but the model "
                f"was compiled for max_batch_size={self.layout.max_batch_size}. Compile it again with a larger one."
            )
        # What no mask lets through is multiplied by zero, and so has to be finite.
        self._owned().zero_()
        self._length, self.source = 0, []
        self._resize(batch_size, 1)

    def append(self, states: Sequence[Tensor]) -> None:
        """Writes the keys and values of new tokens behind the others.

        Args:
            states: For each of ``layout.groups()``, ``(tensors of the group, batch, heads, new, width)``.
        """
        end = self._length + states[0].shape[3]
        if end > self._mask.shape[1]:
            room = max(SMALLEST, 1 << end.bit_length())
            self._resize(self._batch_size, min(room, self.layout.max_length))
        for written, new in zip(self._states, states, strict=True):
            written[:, :, :, self._length : end].copy_(new)
        self._length = end

    def mask(self, attention_mask: Tensor | None) -> Tensor:
        """Returns which places may be read: booleans, ``(batch, places)``.

        Args:
            attention_mask: ``(batch, tokens)``, not zero where a token counts; None where all do.
        """
        written = self._mask[:, : self._length]
        if attention_mask is None:
            written.fill_(True)
        else:
            written.copy_(attention_mask[:, : self._length])
        return self._mask

    def check_room(self, batch_size: int, new: int) -> None:
        """Raises what keeps as many new tokens of as many sequences from being appended.

        Raises:
            InputError: A sequence would become too long, or there are other sequences.
            EngineError: The memory was given to a later call.
        """
        self._owned()
        if self._length + new > self.layout.max_length:
            raise InputError(
                f"A sequence would have {self._length + new} tokens, but the model was compiled for "
                f"max_length={self.layout.max_length}. Generate fewer tokens, or compile it again for more."
            )
        if batch_size != self._batch_size:
            raise InputError(
                f"The cache holds {self._batch_size} sequences, but {batch_size} go on from it."
            )

    def release(self) -> None:
        """Gives the memory up: using the cache is an error from then on."""
        self._memory = None
        self._length = self._batch_size = 0
        self._tensors: Sequence[Tensor] = ()
        self._states: list[Tensor] = []
        self._mask, self.source = torch.empty(0), []

    def get_seq_length(self, *_: Any, **__: Any) -> int:
        """Returns the number of tokens in the cache."""
        return self._length

    def get_max_length(self, *_: Any, **__: Any) -> int:
        """Returns the number of tokens that there is room for."""
        return self.layout.max_length

    get_max_cache_shape = get_max_length

    @property
    def batch_size(self) -> int:
        """The number of sequences."""
        return self._batch_size

    @property
    def is_initialized(self) -> bool:
        """True: the memory is there from the beginning."""
        return True

    @property
    def is_compileable(self) -> bool:
        """False: nothing is left to compile."""
        return False

    @property
    def is_croppable(self) -> bool:
        """True."""
        return True

    def reset(self) -> None:
        """Removes all tokens."""
        self.start(self.batch_size)

    def crop(self, tokens_to_remove: int) -> None:
        """Removes the last tokens: the negative number is how many."""
        self._owned()
        if not -self._length <= tokens_to_remove <= 0:
            raise InputError(
                f"crop({tokens_to_remove}) of a cache of {self._length} tokens: give a negative number of tokens."
            )
        end, self._length = self._length, self._length + tokens_to_remove
        self._mask[:, self._length :] = False
        for states in self._states:  # as in start()
            states[:, :, :, self._length : end].zero_()

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Puts the sequences in another order, one of them at several places perhaps: ``(batch,)`` integers."""
        self._owned()
        for states in self._states:
            written = _bytes_of(states)[:, :, :, : self._length]
            written.copy_(written.index_select(1, beam_idx.to(written.device)))
        for tensor in self.source:
            tensor.copy_(tensor.index_select(0, beam_idx.to(tensor.device)))

    def update(self, *_: Any, **__: Any) -> NoReturn:
        """Raises an ``EngineError``: only engines write here."""
        raise EngineError(
            "An EngineCache is for the compiled model that made it; PyTorch models cannot go on from it."
        )

    def batch_repeat_interleave(self, *_: Any, **__: Any) -> NoReturn:
        """Raises an ``EngineError``."""
        raise EngineError("The number of sequences of an EngineCache is fixed while it is filled.")

    def batch_select_indices(self, *_: Any, **__: Any) -> NoReturn:
        """Raises an ``EngineError``."""
        raise EngineError("The number of sequences of an EngineCache is fixed while it is filled.")

    def _owned(self) -> Tensor:
        if self._memory is None:
            raise EngineError(
                "The memory of this cache was given to a later call of generate. Make one that stays with "
                "model.new_cache(), and give it as past_key_values."
            )
        return self._memory

    def _resize(self, batch_size: int, capacity: int) -> None:
        """Divides the memory anew, and moves what is written."""
        shapes, memory, offset = self.layout.shapes, self._owned(), 0
        before = self._states if self._length else []
        states: list[Tensor] = []
        for group in self._groups:
            heads, width = shapes[group[0]]
            shape = (len(group), batch_size, heads, capacity, width)
            states.append(memory[offset : offset + math.prod(shape)].view(shape))
            offset += math.prod(shape)
        # From the last to the first: each moves to where nothing is that is still to be moved.
        for old, new in zip(reversed(before), reversed(states), strict=False):
            for row in reversed(range(len(new))):
                new[row, :, :, : self._length] = old[row, :, :, : self._length].clone()
        self._states, self._batch_size = states, batch_size
        tensors = {
            number: tensor
            for group, stacked in zip(self._groups, states, strict=True)
            for number, tensor in zip(group, stacked, strict=True)
        }
        self._tensors = [tensors[number] for number in range(len(shapes))]
        self._mask = torch.zeros((batch_size, capacity), dtype=torch.bool, device=memory.device)
