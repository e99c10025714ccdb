"""Tensors that processes exchange while an engine runs, through a process group of ``torch.distributed``.

An execution context lends its communicator to the layers of one execution. Pairs of processes exchange in one order,
each with a size first, so that processes with different sizes end with an error.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import torch

from torchtrt_reference.semantics.tensor_facts import RefusedError

_lent: ContextVar[Any] = ContextVar("torchtrt_reference_communicator", default=None)


def is_communicator(value: Any) -> bool:
    """Returns whether a value sends and receives as a process group, or a backend of one, does."""
    return all(callable(getattr(value, name, None)) for name in ("rank", "size", "send", "recv"))


@contextlib.contextmanager
def communicating(communicator: Any) -> Iterator[None]:
    """Lends a communicator, or None, to the layers that run inside a ``with`` block."""
    token = _lent.set(communicator)
    try:
        yield
    finally:
        _lent.reset(token)


def position_among(members: Sequence[int] | None, count: int) -> tuple[Any, Sequence[int], int]:
    """Returns the communicator, the ranks that take part in a collective, and the place of this process among them.

    Args:
        members: Ranks of the communicator; None for all.
        count: How many take part.

    Raises:
        RefusedError: No communicator was set, it has another number of ranks, or this process takes no part.
    """
    communicator = _lent.get()
    if communicator is None:
        message = f"{count} ranks exchange tensors, and set_communicator was not called"
        raise RefusedError(message)
    size, rank = communicator.size(), communicator.rank()
    ranks = range(size) if members is None else members
    if len(ranks) != count or max(ranks) >= size:
        message = f"the network has num_ranks {count} and groups {members}, and the communicator has {size} ranks"
        raise RefusedError(message)
    if rank not in ranks:
        message = f"rank {rank} of the communicator is not among {list(ranks)}"
        raise RefusedError(message)
    return communicator, ranks, ranks.index(rank)


def exchange(
    tensor: torch.Tensor, members: Sequence[int] | None, count: int
) -> tuple[list[torch.Tensor], int]:
    """Returns the tensors of all ranks that take part in a collective, in their order, and the place of this one.

    Args:
        tensor: The tensor of this process. Others have the same shape and type.
        members: Ranks of the communicator; None for all.
        count: How many take part.

    Raises:
        RefusedError: There is no fitting communicator, a process has ended, or one has a tensor of another size.
    """
    communicator, ranks, position = position_among(members, count)
    own = tensor.contiguous()
    # PyTorch's fake process group receives nothing: its other processes then have the tensor of this one.
    tensors = [own if index == position else own.clone() for index in range(count)]
    try:
        for pair in itertools.combinations(range(count), 2):
            if position in pair:
                other = pair[0] if position == pair[1] else pair[1]
                _swap(communicator, ranks[other], own, tensors[other], position == pair[0])
    except RuntimeError as error:
        message = f"the processes cannot exchange tensors: {str(error).splitlines()[0]}"
        raise RefusedError(message) from error
    return tensors, position


def _swap(
    communicator: Any, rank: int, own: torch.Tensor, theirs: torch.Tensor, sends_first: bool
) -> None:
    """Sends a tensor to a rank, and receives the one of the same size that it sends."""
    size = torch.tensor([own.numel() * own.element_size()], device=own.device)
    its_size = size.clone()
    _in_turn(communicator, rank, size, its_size, sends_first)
    if not torch.equal(size, its_size):
        message = f"rank {rank} has {its_size.item()} bytes, and this one {size.item()}: sizes must be equal"
        raise RefusedError(message)
    if own.numel():
        sent, received = (buffer.view(-1).view(torch.uint8) for buffer in (own, theirs))
        _in_turn(communicator, rank, sent, received, sends_first)


def _in_turn(
    communicator: Any, rank: int, own: torch.Tensor, theirs: torch.Tensor, sends_first: bool
) -> None:
    # Of two processes that both send first, each would wait for the other on a GPU.
    for sends in (sends_first, not sends_first):
        if sends:
            communicator.send([own], rank, 0).wait()
        else:
            communicator.recv([theirs], rank, 0).wait()
