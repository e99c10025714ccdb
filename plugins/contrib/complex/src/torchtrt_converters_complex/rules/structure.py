"""Ops that do the same to both parts: they move elements, or are linear with real factors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchtrt.conversion import named_arguments
from torchtrt_converters_complex.pairs import PARTS, Pair, as_pair, is_complex, rule

aten = torch.ops.aten

MOVED = (
    "alias.default", "as_strided_copy.default", "block_diag.default", "broadcast_tensors.default",
    "broadcast_to.default", "cat.default", "chunk.default", "clone.default",
    "concat.default", "constant_pad_nd.default",
    "contiguous.default", "cumsum.default", "detach.default", "diag_embed.default", "diagonal.default",
    "diagonal_scatter.default", "diff.default", "embedding.default", "expand.default", "expand_as.default",
    "flatten.using_ints", "flip.default", "fliplr.default", "flipud.default", "gather.default", "hstack.default",
    "im2col.default", "index.Tensor", "index_add.default", "index_copy.default", "index_put.default",
    "index_select.default", "lift_fresh_copy.default", "masked_fill.Scalar", "masked_fill.Tensor", "mean.default",
    "mean.dim", "movedim.int", "movedim.intlist", "mT.default", "nan_to_num.default", "narrow.default",
    "numpy_T.default", "pad.default", "permute.default", "pixel_shuffle.default",
    "pixel_unshuffle.default", "reflection_pad1d.default", "reflection_pad2d.default", "reflection_pad3d.default",
    "repeat.default", "repeat_interleave.self_int", "replication_pad1d.default", "replication_pad2d.default",
    "replication_pad3d.default", "reshape.default", "roll.default", "rot90.default", "scatter.src", "scatter.value",
    "scatter_add.default", "select.int", "select_scatter.default", "slice.Tensor", "slice_scatter.default",
    "split.Tensor", "split_with_sizes.default", "squeeze.default", "squeeze.dim", "squeeze.dims", "stack.default",
    "sum.default", "sum.dim_IntList", "swapaxes.default", "t.default", "take.default", "tile.default", "trace.default",
    "transpose.int", "tril.default", "triu.default", "unbind.int", "unflatten.int", "unfold.default",
    "unsqueeze.default", "view.default", "vstack.default", "where.self", "where.ScalarOther", "where.ScalarSelf",
    "where.Scalar", "_pad_circular.default", "_reshape_alias.default", "_unsafe_index.Tensor", "_unsafe_view.default",
)  # fmt: skip
"""The names of the ops, with their overloads."""
VALUES = frozenset(
    {"self", "other", "src", "source", "values", "value", "tensors", "tensor", "input", "weight", "fill_value"}
)  # fmt: skip
"""The names of the arguments that hold elements; the others are indices, sizes and conditions."""
_TYPES_OF_ELEMENTS = ("Tensor", "Optional[Tensor]", "List[Tensor]", "number", "Optional[float]")
_NUMBERS_OF_REALS = frozenset({aten.nan_to_num.default})


def _parts(value: Any) -> Any:
    """Returns an argument that holds elements as a pair, or a list of them."""
    if isinstance(value, (list, tuple)):
        return [_parts(tensor) for tensor in value]
    return value if value is None else as_pair(value)


def _pick(value: Any, label: str) -> Any:
    if isinstance(value, list):
        return [_pick(pair, label) for pair in value]
    return getattr(value, label) if isinstance(value, Pair) else value


def part_by_part(target: Any, names: frozenset[str] = VALUES) -> Callable[..., Any]:
    """Returns the rule of an op that does the same to both parts.

    Args:
        target: The op.
        names: The names of its arguments that hold elements.
    """
    of_elements = {
        argument.name
        for argument in target._schema.arguments
        if argument.name in names and str(argument.type) in _TYPES_OF_ELEMENTS
    }

    def compute(*args: Any, **kwargs: Any) -> Any:
        arguments = vars(named_arguments(target, args, kwargs))
        if isinstance(arguments.get("dtype"), torch.dtype):
            arguments["dtype"] = PARTS.get(arguments["dtype"], arguments["dtype"])
        elements = {name: _parts(arguments[name]) for name in of_elements}
        results = []
        for label in ("real", "imag"):
            chosen = {name: _pick(value, label) for name, value in elements.items()}
            results.append(_call(target, {**arguments, **chosen}))
        return _joined(*results)

    return compute


def _call(target: Any, values: dict[str, Any]) -> Any:
    """Calls an op with all of its arguments by name."""
    arguments = target._schema.arguments
    args = [values[argument.name] for argument in arguments if not argument.kwarg_only]
    kwargs = {argument.name: values[argument.name] for argument in arguments if argument.kwarg_only}
    return target(*args, **kwargs)


def _joined(real: Any, imag: Any) -> Any:
    if isinstance(real, (list, tuple)):
        return [Pair(*parts) for parts in zip(real, imag, strict=True)]
    return Pair(real, imag)


_LINEAR = frozenset({"sum", "mean", "cumsum", "trace", "scatter_add", "index_add", "diff"})
for _name in MOVED:
    _packet, _overload = _name.split(".")
    if hasattr(aten, _packet) and _overload in getattr(aten, _packet).overloads():
        _target = getattr(getattr(aten, _packet), _overload)
        _names = frozenset({"self"}) if _target in _NUMBERS_OF_REALS else VALUES
        _names -= {"input"} if _packet == "embedding" else frozenset()
        rule(_target, promotes=_packet in _LINEAR)(part_by_part(_target, _names))


@rule(aten.view_as_real.default, promotes=False)
def view_as_real(self: Pair) -> Tensor:
    """Returns both parts along a new last dimension."""
    return torch.stack([self.real, self.imag], -1)


@rule(aten.view_as_complex.default, promotes=False)
def view_as_complex(self: Tensor) -> Pair:
    """Returns the value whose parts are along the last dimension."""
    return Pair(self.select(-1, 0), self.select(-1, 1))


@rule(aten.view.dtype, promotes=False)
def view_as_dtype(self: Any, dtype: torch.dtype) -> Any:
    """Returns the same memory as real numbers, or as complex ones.

    Raises:
        NotImplementedError: The dtypes are not those of a complex number and its parts.
    """
    if isinstance(self, Pair) and not dtype.is_complex and dtype is self.real.dtype:
        return view_as_real(self).flatten(-2)
    if isinstance(self, Tensor) and PARTS.get(dtype) is self.dtype:
        return view_as_complex(self.unflatten(-1, (-1, 2)))
    raise NotImplementedError(f"it views its memory as {dtype}")


@rule(aten.real.default, promotes=False)
def real(self: Any) -> Any:
    """Returns the real part."""
    return self.real if isinstance(self, Pair) else self


@rule(aten.imag.default, promotes=False)
def imag(self: Pair) -> Any:
    """Returns the imaginary part."""
    return self.imag


@rule(aten.resolve_conj.default, aten.resolve_neg.default, aten.positive.default, promotes=False)
def unchanged(self: Any) -> Any:
    """Returns its argument: a pair is never marked as conjugated or negated."""
    return self


@rule(aten._neg_view.default, promotes=False)
def negative_view(self: Any) -> Any:
    """Returns ``-self``."""
    return self.map(torch.neg) if isinstance(self, Pair) else torch.neg(self)


@rule(aten.adjoint.default, aten.mH.default, promotes=False)
def adjoint(self: Pair) -> Pair:
    """Returns the conjugated values with rows and columns exchanged."""
    return Pair(self.real.mT, -self.imag.mT)


@rule(
    aten._to_copy.default,
    aten.to.dtype,
    aten.to.dtype_layout,
    aten.to.device,
    aten.to.other,
    aten.type_as.default,
    promotes=False,
)
def converted(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Returns its argument, which becomes the result's dtype: of a real one the imaginary part is left out."""
    return self


@rule(aten.copy.default, promotes=False)
def copied(self: Any, src: Any, non_blocking: bool = False) -> Any:
    """Returns ``src`` broadcast to the shape of ``self``."""
    like = self.real if isinstance(self, Pair) else self
    if isinstance(self, Pair):
        return as_pair(src).map(lambda part: part.expand(like.shape))
    return (src.real if is_complex(src) else src).expand(like.shape)


@rule(aten.fill.Scalar, aten.fill.Tensor, promotes=False)
def filled(self: Any, value: Any) -> Any:
    """Returns one value everywhere."""
    like = self.real if isinstance(self, Pair) else self
    return as_pair(value).map(
        lambda part: (
            part.expand(like.shape) if isinstance(part, Tensor) else torch.full_like(like, part)
        )
    )


def _filled_like(number: float) -> Callable[..., Pair]:
    def like(self: Any, **_: Any) -> Pair:
        part = self.real if isinstance(self, Pair) else self
        part = part if part.is_floating_point() else part.to(torch.float32)
        return Pair(torch.full_like(part, number), torch.zeros_like(part))

    return like


rule(aten.zeros_like.default, aten.empty_like.default, promotes=False)(_filled_like(0.0))
rule(aten.ones_like.default, promotes=False)(_filled_like(1.0))


@rule(aten.full_like.default, promotes=False)
def full_like(self: Any, fill_value: Any, **_: Any) -> Pair:
    """Returns one value in the shape of another tensor."""
    part = self.real if isinstance(self, Pair) else self
    part = part if part.is_floating_point() else part.to(torch.float32)
    return as_pair(fill_value).map(lambda number: torch.full_like(part, number))


def _made(sizes_at: int | None, number_at: int | None, number: float = 0.0) -> Callable[..., Pair]:
    """Returns the rule of an op that makes a tensor of one number.

    Args:
        sizes_at: The place of the sizes among the op's arguments, or None for a tensor without dimensions.
        number_at: The place of the number, or None for a fixed one.
        number: The fixed number.
    """

    def make(*args: Any, device: Any = None, **_: Any) -> Pair:
        value = number if number_at is None else args[number_at]
        sizes = () if sizes_at is None else args[sizes_at]
        own = as_pair(args[0]).real if isinstance(args[0], (Pair, Tensor)) else None
        device = device if own is None else own.device
        return as_pair(value).map(lambda part: torch.full(sizes, float(part), device=device))

    return make


rule(aten.zeros.default, aten.empty.memory_format, promotes=False)(_made(0, None))
rule(aten.ones.default, promotes=False)(_made(0, None, 1.0))
rule(aten.full.default, promotes=False)(_made(0, 1))
rule(aten.new_zeros.default, aten.new_empty.default, promotes=False)(_made(1, None))
rule(aten.new_ones.default, promotes=False)(_made(1, None, 1.0))
rule(aten.new_full.default, promotes=False)(_made(1, 2))
rule(aten.scalar_tensor.default, promotes=False)(_made(None, 0))
