"""Small programs that take views, make copies and write in place, and how to draw them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from torchtrt_reference import VERSIONS

SHAPE = (2, 3)


def _flat(value: Tensor) -> Tensor:
    return value.view(-1) if value.is_contiguous() else value.transpose(0, -1)


def _repeated(value: Tensor) -> Tensor:
    return value.unsqueeze(0).expand(2, *value.shape)


def _fits(value: Tensor, other: Tensor) -> bool:
    """Returns whether ``other`` can be written to ``value``."""
    pairs = zip(reversed(value.shape), reversed(other.shape), strict=False)
    return other.dim() <= value.dim() and all(theirs in (1, mine) for mine, theirs in pairs)


def _plus(value: Tensor, other: Tensor) -> Tensor:
    return value + other if _fits(value, other) else value + 1


def _set_first(value: Tensor, other: Tensor) -> None:
    value[0] = other if _fits(value[0], other) else 7


def _set_slice(value: Tensor, other: Tensor) -> None:
    value[..., :1] = other if _fits(value[..., :1], other) else 5


def _row(value: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Returns one place along the first dimension, which depends on data, and what can be written there."""
    part = value[:1]
    position = (other.reshape(-1)[:1] > 2).to(torch.int64) % value.shape[0]
    return position, other.expand_as(part) if _fits(part, other) else torch.full_like(part, 6)


def _index_copy(value: Tensor, other: Tensor) -> None:
    position, row = _row(value, other)
    value.index_copy_(0, position, row)


def _index_put(value: Tensor, other: Tensor) -> None:
    position, row = _row(value, other)
    value[position] = row


def _add_at(value: Tensor, other: Tensor) -> None:
    position, row = _row(value, other)
    value.index_put_((position,), row, accumulate=True)


def _scatter(value: Tensor, other: Tensor) -> None:
    position, row = _row(value, other)
    value.scatter_(0, position.reshape([-1] + [1] * (value.dim() - 1)).expand_as(row), row)


def _set_from(value: Tensor, other: Tensor) -> None:
    position, row = _row(value, other)
    start = position.item()
    torch._check(start >= 0)
    torch._check(start < value.shape[0])
    value.narrow(0, start, 1).copy_(row)


def _set_corner(value: Tensor, other: Tensor) -> None:
    corner = value[:1].transpose(0, -1)[1:]
    corner += other if _fits(corner, other) else 1


def _set_flat(value: Tensor, other: Tensor) -> None:
    flat = _flat(value)
    flat[1::2] = other if _fits(flat[1::2], other) else 9


VIEWS: dict[str, Callable[[Tensor], Tensor | tuple[Tensor, ...]]] = {
    "x[:1]": lambda x: x[:1],
    "x[..., 1:]": lambda x: x[..., 1:],
    "x[0]": lambda x: x[0],
    "x.view(-1)": _flat,
    "x.t()": lambda x: x.transpose(0, -1),
    "x.narrow(-1, 0, 1)": lambda x: x.narrow(-1, 0, 1),
    "x.unsqueeze(0)": lambda x: x.unsqueeze(0),
    "x.squeeze(0)": lambda x: x.squeeze(0),
    "x.expand(2, ...)": _repeated,
    "x.chunk(2, -1)": lambda x: x.chunk(2, -1),
    "x.unbind(0)": lambda x: x.unbind(0),
    "x.detach()": lambda x: x.detach(),
}
MAYBE_VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "x.flatten()": lambda x: x.flatten(),
    "x.reshape(-1)": lambda x: x.reshape(-1),
    "x.contiguous()": lambda x: x.contiguous(),
    "x.to(x.dtype)": lambda x: x.to(x.dtype),
    "dropout(x)": lambda x: nn.functional.dropout(x, 0.5, training=False),
    "x.type_as(x)": lambda x: x.type_as(x),
    "einsum": lambda x: torch.einsum("i...->i...", x),
}
COPIES: dict[str, Callable[[Tensor], Tensor]] = {
    "x.clone()": lambda x: x.clone(),
    "x.to(copy=True)": lambda x: x.to(x.dtype, copy=True),
    "x.t().contiguous()": lambda x: x.transpose(0, -1).contiguous(),
}
ARITHMETIC: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "x + y": _plus,
    "x * 2": lambda x, _: x * 2,
    "relu(x)": lambda x, _: torch.relu(x),
    "cat([x, x])": lambda x, _: torch.cat([x, x]),
}
CONSTANTS: dict[str, Callable[[Tensor], Tensor]] = {
    "zeros": lambda _: torch.zeros(SHAPE),
    "full": lambda x: torch.full_like(x, 3.0),
    "tensor": lambda _: torch.tensor([1.0, 2.0, 3.0]),
    "arange": lambda _: torch.arange(3.0),
}
PARTS: dict[str, Callable[[Tensor, Tensor], object]] = {
    "x[0] = y": _set_first,
    "x[..., :1] = y": _set_slice,
    "x.index_copy_(0, i, y)": _index_copy,
    "x[i] = y": _index_put,
    "x[i] += y": _add_at,
    "x.scatter_(0, i, y)": _scatter,
    "x[i.item():][:1] = y": _set_from,
    "x[:1].t()[1:] += y": _set_corner,
    "x.view(-1)[1::2] = y": _set_flat,
    "x.diagonal().zero_()": lambda x, _: x.diagonal().zero_(),
}
"""Writes to a part of a tensor, which is all that is written at the end."""
WRITES: dict[str, Callable[[Tensor, Tensor], object]] = {
    **PARTS,
    "x.add_(1)": lambda x, _: x.add_(1),
    "x.add_(y)": lambda x, y: x.add_(y if _fits(x, y) else 2),
    "x.mul_(2)": lambda x, _: x.mul_(2),
    "x.copy_(y)": lambda x, y: x.copy_(y) if _fits(x, y) else x.fill_(4),
    "x.zero_()": lambda x, _: x.zero_(),
    "x.relu_()": lambda x, _: x.relu_(),
    "x[x > 2] = 0": lambda x, _: x.masked_fill_(x > 2, 0),
}
_KINDS = (VIEWS, MAYBE_VIEWS, COPIES, ARITHMETIC, CONSTANTS, WRITES)
_BINARY = {**ARITHMETIC, **WRITES}
_UNARY = {**VIEWS, **MAYBE_VIEWS, **COPIES, **CONSTANTS}

Instruction = tuple[str, int, int]


@dataclass(frozen=True)
class Program:
    """A model, by its instructions, and how it is compiled and called.

    Attributes:
        instructions: For each, its name in the tables above and the places of its operands among the values so far:
            two inputs, a buffer, another one, a weight, then each result.
        outputs: The places of the values that it returns.
        tied: What the second buffer is: of its own, the first one under another name, or a row of it.
        call: What the second input is: of its own, the first one, or one that overlaps it.
        version: The version of the reference TensorRT.
        min_block_size: The setting.
        torch_executed_ops: The setting.
    """

    instructions: tuple[Instruction, ...]
    outputs: tuple[int, ...]
    tied: str = "apart"
    call: str = "apart"
    version: str = "10.16.1"
    min_block_size: int = 1
    torch_executed_ops: frozenset[str] = frozenset()

    def model(self) -> Interpreted:
        """Returns the model, with the same weights every time."""
        return Interpreted(self).eval()

    def inputs(self) -> tuple[Tensor, Tensor]:
        """Returns inputs, the same every time."""
        memory = torch.arange(24.0).reshape(8, 3) - 6
        first = memory[:2]
        return first, {"apart": memory[4:6], "same": first, "overlapping": memory[1:3]}[self.call]


class Interpreted(nn.Module):
    """Runs a program's instructions."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program
        self.register_buffer("h", torch.arange(6.0).reshape(SHAPE))
        second = {"apart": torch.ones(SHAPE), "same": self.h, "view": self.h[0]}[program.tied]
        self.register_buffer("g", second)
        self.w = nn.Parameter(torch.full(SHAPE, 0.5), requires_grad=False)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        values = [x, y, self.h, self.g, self.w]
        for name, first, second in self.program.instructions:
            operands = values[first % len(values)], values[second % len(values)]
            if name in WRITES:
                WRITES[name](*operands)
                continue
            result = _BINARY[name](*operands) if name in _BINARY else _UNARY[name](operands[0])
            values.extend(result if isinstance(result, tuple) else [result])
        return tuple(values[output % len(values)] for output in self.program.outputs)

    def __deepcopy__(self, memo: dict[int, object]) -> Interpreted:
        made = Interpreted(self.program)
        made.load_state_dict(copy.copy(self.state_dict()))
        return made.train(self.training)


def programs() -> st.SearchStrategy[Program]:
    """Draws programs of one to seven instructions and one to four results."""
    positions = st.integers(0, 11)
    names = st.one_of(*(st.sampled_from(sorted(kind)) for kind in (*_KINDS, PARTS)))
    rarely = st.sampled_from(["apart"] * 8 + ["same", "view"])
    return st.builds(
        Program,
        st.lists(st.tuples(names, positions, positions), min_size=1, max_size=7).map(tuple),
        st.lists(positions, min_size=1, max_size=4).map(tuple),
        tied=rarely,
        call=st.sampled_from(["apart"] * 8 + ["same", "overlapping"]),
        version=st.sampled_from(VERSIONS),
        min_block_size=st.sampled_from([1, 5]),
        torch_executed_ops=st.sampled_from(
            [
                frozenset(),
                frozenset({"aten.mul"}),
                frozenset({"aten.add", "aten.relu"}),
                frozenset({"aten.slice", "aten.select", "aten.clone", "aten.reshape"}),
            ]
        ),
    )
