"""Complex numbers as pairs of real ones, and Fourier transforms as products with matrices.

TensorRT has no complex numbers. Where a model computes with them between a real beginning and a real
end (rotary embeddings, spectrograms), a pass over the graph replaces each complex value by its real
and its imaginary part before anyone is asked who converts what. Where one op on the way is not known
here the graph stays as it was, and PyTorch runs the complex part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from torchtrt.conversion import arguments_of, constant_of, named_arguments
from torchtrt_converters_aten_core import pack

aten = torch.ops.aten

LARGEST_TRANSFORM = 1024
"""The maximum size whose Fourier transform is a matrix: 4 MiB for each of its parts."""


@dataclass(frozen=True)
class Pair:
    """A complex value: its parts, both nodes or both tensors."""

    real: Any
    imag: Any


pytree.register_pytree_node(
    Pair, lambda pair: ([pair.real, pair.imag], None), lambda parts, _: Pair(*parts)
)

MOVEMENT = frozenset(
    {
        aten.alias.default,
        aten.cat.default,
        aten.clone.default,
        aten.contiguous.default,
        aten.detach.default,
        aten.expand.default,
        aten.flatten.using_ints,
        aten.flip.default,
        aten.index.Tensor,
        aten.index_select.default,
        aten.mean.dim,
        aten.movedim.int,
        aten.mul.Scalar,
        aten.neg.default,
        aten.numpy_T.default,
        aten.permute.default,
        aten.repeat.default,
        aten.reshape.default,
        aten.roll.default,
        aten.select.int,
        aten.slice.Tensor,
        aten.squeeze.dim,
        aten.squeeze.dims,
        aten.stack.default,
        aten.sum.dim_IntList,
        aten.t.default,
        aten.transpose.int,
        aten.unflatten.int,
        aten.unsqueeze.default,
        aten.view.default,
        aten._unsafe_view.default,
    }
)
"""Ops that do the same to both parts."""


def _pair(value: Any) -> Pair:
    if isinstance(value, Pair):
        return value
    if isinstance(value, complex):
        return Pair(value.real, value.imag)
    return Pair(value, torch.zeros_like(value) if isinstance(value, Tensor) else 0.0)


def _add(self: Any, other: Any, *, alpha: float = 1) -> Pair:
    first, second = _pair(self), _pair(other)
    return Pair(first.real + alpha * second.real, first.imag + alpha * second.imag)


def _sub(self: Any, other: Any, *, alpha: float = 1) -> Pair:
    return _add(self, other, alpha=-alpha)


def _product(combine: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Pair]:
    """Returns the complex form of a product of two operands, of which either may be real."""

    def multiply(self: Any, other: Any) -> Pair:
        if not isinstance(self, (Pair, complex)):
            second = _pair(other)
            return Pair(combine(self, second.real), combine(self, second.imag))
        if not isinstance(other, (Pair, complex)):
            first = _pair(self)
            return Pair(combine(first.real, other), combine(first.imag, other))
        first, second = _pair(self), _pair(other)
        return Pair(
            combine(first.real, second.real) - combine(first.imag, second.imag),
            combine(first.real, second.imag) + combine(first.imag, second.real),
        )

    return multiply


_multiply = _product(lambda first, second: first * second)


def _divide(self: Any, other: Any) -> Pair:
    if not isinstance(other, (Pair, complex)):
        first = _pair(self)
        return Pair(first.real / other, first.imag / other)
    second = _pair(other)
    size = second.real * second.real + second.imag * second.imag
    result = _multiply(self, Pair(second.real, -second.imag))
    return Pair(result.real / size, result.imag / size)


def _to(self: Any, *, dtype: torch.dtype, **_: Any) -> Any:
    pair = _pair(self)
    if not dtype.is_complex:
        return pair.real.to(dtype)
    return Pair(pair.real.to(torch.float32), pair.imag.to(torch.float32))


def _pad(self: Pair, pad: Sequence[int], value: float = 0) -> Pair:
    real = torch.constant_pad_nd(self.real, pad, value)
    return Pair(real, torch.constant_pad_nd(self.imag, pad))


def _exp(self: Pair) -> Pair:
    size = torch.exp(self.real)
    return Pair(size * torch.cos(self.imag), size * torch.sin(self.imag))


def _conjugate(self: Pair) -> Pair:
    return Pair(self.real, -self.imag)


RULES: Mapping[Any, Callable[..., Any]] = {
    aten._to_copy.default: _to,
    aten.view_as_real.default: lambda self: torch.stack([self.real, self.imag], -1),
    aten.view_as_complex.default: lambda self: Pair(self.select(-1, 0), self.select(-1, 1)),
    aten.complex.default: Pair,
    aten.polar.default: lambda abs, angle: Pair(abs * torch.cos(angle), abs * torch.sin(angle)),
    aten.real.default: lambda self: self.real,
    aten.imag.default: lambda self: self.imag,
    aten.abs.default: lambda self: torch.hypot(self.real, self.imag),
    aten.angle.default: lambda self: torch.atan2(self.imag, self.real),
    aten.conj.default: _conjugate,
    aten._conj.default: _conjugate,
    aten.conj_physical.default: _conjugate,
    aten.resolve_conj.default: lambda self: self,
    aten.add.Tensor: _add,
    aten.sub.Tensor: _sub,
    aten.mul.Tensor: _multiply,
    aten.div.Tensor: _divide,
    aten.constant_pad_nd.default: _pad,
    aten.exp.default: _exp,
    aten.mm.default: _product(torch.mm),
    aten.bmm.default: _product(torch.bmm),
    aten.matmul.default: _product(torch.matmul),
}
"""For each op its meaning with ``Pair`` for complex operands and results."""
_IN_PLACE = {
    aten.squeeze_.dim: aten.squeeze.dim,
    aten.transpose_.default: aten.transpose.int,
}
"""How PyTorch's own transforms turn what is theirs alone, and the same as views."""
TRANSFORMS = frozenset({aten._fft_r2c.default, aten._fft_c2c.default, aten._fft_c2r.default})


@pack.lowering_pass("complex_numbers")
def rewrite(graph_module: GraphModule, settings: Any) -> None:
    """Replaces complex values by pairs of real ones, if that makes the whole graph real."""
    if not any(_has_complex(n) or _is_composite_transform(n) for n in graph_module.graph.nodes):
        return
    from torchtrt.graphs.symbols import no_new_assumptions  # here, since few models need it

    # Keeping a slice of an input for later compares the sizes of memories, which are symbols too.
    mode = _fake_mode_of(graph_module)
    cached, mode.cache_enabled = mode.cache_enabled, False
    untouched = torch.fx.Graph()
    untouched.output(untouched.graph_copy(graph_module.graph, {}))
    try:
        with no_new_assumptions(graph_module.graph):
            _rewrite(graph_module)
    except (
        Exception
    ):  # an op may refuse parts of its operands in any way; PyTorch then runs it whole
        graph_module.graph = untouched
    finally:
        mode.cache_enabled = cached
    graph_module.graph.eliminate_dead_code()


def _rewrite(graph_module: GraphModule) -> None:
    for node in list(graph_module.graph.nodes):
        if _is_composite_transform(node):
            _open(graph_module, node)
    if all(_is_known(node) for node in graph_module.graph.nodes if _touches_complex(node)):
        _Rewriter(graph_module).run()


def _fake_mode_of(graph_module: GraphModule) -> Any:
    values = (node.meta.get("val") for node in graph_module.graph.nodes)
    return next(value.fake_mode for value in values if hasattr(value, "fake_mode"))


def _dtypes(node: Node) -> list[torch.dtype]:
    value = node.meta.get("val")
    leaves = value if isinstance(value, (list, tuple)) else (value,)
    return [leaf.dtype for leaf in leaves if isinstance(leaf, Tensor)]


def _has_complex(node: Node) -> bool:
    return any(dtype.is_complex for dtype in _dtypes(node))


def _has_other_complex(node: Node) -> bool:
    """Returns whether a node makes complex numbers of another precision than float32's."""
    return any(dtype.is_complex and dtype is not torch.complex64 for dtype in _dtypes(node))


def _touches_complex(node: Node) -> bool:
    return _has_complex(node) or any(map(_has_complex, node.all_input_nodes))


def _is_composite_transform(node: Node) -> bool:
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and target._schema.name.startswith(
        ("aten::fft_", "aten::stft")
    )


def _is_known(node: Node) -> bool:
    if node.op == "get_attr":
        return isinstance(node.meta.get("val"), Tensor)
    if node.op != "call_function" or _has_other_complex(node):
        return False
    if node.target in TRANSFORMS:
        op = arguments_of(node)
        shape = op.self.meta["val"].shape
        lengths = [shape[dim] for dim in op.dim]
        if node.target is aten._fft_c2r.default:
            lengths[-1] = op.last_dim_size
        return all(isinstance(size, int) and size <= LARGEST_TRANSFORM for size in lengths)
    return node.target in MOVEMENT or node.target in RULES


def _open(graph_module: GraphModule, node: Node) -> None:
    """Replaces a composite transform by PyTorch's own decomposition of it."""
    target: Any = node.target
    (result,) = _emit(graph_module, node, target.decompose, node.args, node.kwargs)
    node.replace_all_uses_with(result)
    graph_module.graph.erase_node(node)


def _emit(
    graph_module: GraphModule,
    before: Node,
    function: Callable[..., Any],
    args: Any,
    kwargs: Any,
) -> list[Node]:
    """Traces a function over the values of nodes, and returns the nodes of its results.

    Args:
        graph_module: Where the nodes go.
        before: The node that they stand before.
        function: The function of tensors and numbers.
        args: Its arguments, nodes in place of tensors and sizes.
        kwargs: Its keyword arguments, likewise.
    """
    from torch._dispatch.python import enable_python_dispatcher
    from torch.fx.experimental.proxy_tensor import make_fx  # here, since it brings sympy

    from torchtrt_compiler.lowering.functionalization import rewrite_writes

    leaves, tree = pytree.tree_flatten((args, kwargs))
    sources = list(dict.fromkeys(leaf for leaf in leaves if isinstance(leaf, Node)))
    places = {source: place for place, source in enumerate(sources)}

    def traced(*values: Any) -> list[Any]:
        filled = [values[places[leaf]] if isinstance(leaf, Node) else leaf for leaf in leaves]
        args, kwargs = pytree.tree_unflatten(filled, tree)
        return pytree.tree_leaves(function(*args, **kwargs))

    values = [source.meta["val"] for source in sources]
    mode = next(value.fake_mode for value in values if hasattr(value, "fake_mode"))
    # The dispatcher in Python knows symbolic sizes where the one in C++ asks for numbers.
    with torch.no_grad(), mode, enable_python_dispatcher():
        parts = make_fx(traced, tracing_mode="real")(*values)
        for part in parts.graph.nodes:
            part.target = _IN_PLACE.get(part.target, part.target)
        if not rewrite_writes(parts.graph):
            pure = torch.func.functionalize(traced)
            parts = make_fx(pure, tracing_mode="real")(*values)
    env: dict[Node, Node] = dict(
        zip(parts.graph.find_nodes(op="placeholder"), sources, strict=True)
    )
    with graph_module.graph.inserting_before(before):
        for part in parts.graph.nodes:
            if part.op == "call_function":
                env[part] = graph_module.graph.node_copy(part, env.__getitem__)
                env[part].meta.update(
                    {key: before.meta[key] for key in ("stack_trace",) if key in before.meta}
                )
            elif part.op == "output":
                return [env[result] for result in part.args[0]]
    message = "a traced graph has an output"
    raise AssertionError(message)


class _Rewriter:
    """Replaces the complex nodes of a graph, one after the other."""

    def __init__(self, graph_module: GraphModule) -> None:
        self.graph_module = graph_module
        self.pairs: dict[Node, Pair] = {}
        self.names = (f"_complex_part_{place}" for place in _count())
        self.mode = _fake_mode_of(graph_module)

    def run(self) -> None:
        """Replaces all nodes that make or read complex values."""
        graph = self.graph_module.graph
        touched = [node for node in graph.nodes if _touches_complex(node)]
        for node in touched:
            self.replace(node)
        for node in reversed(touched):
            if not node.users:
                graph.erase_node(node)

    def replace(self, node: Node) -> None:
        """Computes a node's value by parts, and puts a real one in the place of the node."""
        target: Any = node.target
        if node.op == "get_attr":
            value: Any = constant_of(node)
            self.pairs[node] = Pair(
                *(self.constant(node, part) for part in (value.real, value.imag))
            )
            return
        args, kwargs = pytree.tree_map(
            lambda leaf: self.pairs.get(leaf, leaf) if isinstance(leaf, Node) else leaf,
            (node.args, node.kwargs),
        )
        if target in TRANSFORMS:
            result = self.transform(node, named_arguments(target, args, kwargs))
        elif target in RULES:
            result = _emit(self.graph_module, node, RULES[target], args, kwargs)
        else:
            result = [
                _emit(self.graph_module, node, target, *_part(args, kwargs, label))[0]
                for label in ("real", "imag")
            ]
        if _has_complex(node):
            self.pairs[node] = Pair(*result)
        else:
            node.replace_all_uses_with(result[0])

    def constant(self, before: Node, value: Tensor) -> Node:
        """Returns a node that holds a tensor."""
        name = next(self.names)
        value = value.detach().contiguous()
        setattr(self.graph_module, name, value)
        with self.graph_module.graph.inserting_before(before):
            node = self.graph_module.graph.create_node("get_attr", name)
        node.meta["val"] = self.mode.from_tensor(value, static_shapes=True)
        return node

    def transform(self, node: Node, op: Any) -> list[Node]:
        """Returns the parts of a Fourier transform over some dimensions, one after the other."""
        value, real_end = op.self, node.target is aten._fft_c2r.default
        pair = value if isinstance(value, Pair) else None
        sizes = (pair.real if pair else value).meta["val"].shape
        rank = len(sizes)
        dims = [dim % rank for dim in op.dim]
        lengths = [sizes[dim] for dim in dims]
        if real_end:
            lengths[-1] = op.last_dim_size
        scale = (1.0, 1 / math.sqrt(math.prod(lengths)), 1 / math.prod(lengths))[op.normalization]
        dtype = (pair.real if pair else value).meta["val"].dtype
        forward = not real_end if node.target is not aten._fft_c2c.default else op.forward
        order = list(zip(dims, lengths, strict=True))
        if node.target is aten._fft_r2c.default:
            order.reverse()  # the real dimension first, the others over half of its results
        parts: list[Node] = [pair.real, pair.imag] if pair else [value]
        for place, (dim, length) in enumerate(order):
            last = place + 1 == len(order)
            factor = scale if last else 1.0
            if real_end and last:
                matrices, step = _to_real(length, factor), _finish
            else:
                half = node.target is aten._fft_r2c.default and op.onesided and place == 0
                matrices, step = _waves(length, forward, factor, half), _advance
            nodes = [self.constant(node, matrix.to(dtype)) for matrix in matrices]
            parts = _emit(self.graph_module, node, step, (parts, nodes, dim), {})
        return parts


def _count() -> Iterator[int]:
    place = 0
    while True:
        yield place
        place += 1


def _part(args: Any, kwargs: Any, label: str) -> Any:
    return pytree.tree_map(
        lambda leaf: getattr(leaf, label) if isinstance(leaf, Pair) else leaf,
        (args, kwargs),
        is_leaf=lambda leaf: isinstance(leaf, Pair),
    )


def _angles(rows: int, columns: int, length: int) -> Tensor:
    """Returns the angles of a transform's matrix, reduced to one turn before they lose digits."""
    product = torch.arange(rows).unsqueeze(1) * torch.arange(columns)
    return (product % length).to(torch.float64) * (2 * math.pi / length)


def _waves(length: int, forward: bool, scale: float, half: bool) -> tuple[Tensor, Tensor]:
    """Returns the parts of a transform's matrix; ``half`` of its columns where the others mirror them."""
    angles = _angles(length, length // 2 + 1 if half else length, length)
    return torch.cos(angles) * scale, torch.sin(angles) * (-scale if forward else scale)


def _to_real(length: int, scale: float) -> tuple[Tensor, Tensor]:
    """Returns the matrices that make a real signal of half of its spectrum."""
    rows = length // 2 + 1
    angles = _angles(rows, length, length)
    weights = torch.full((rows, 1), 2.0, dtype=torch.float64)
    weights[0] = 1
    if length % 2 == 0:
        weights[-1] = 1
    return torch.cos(angles) * weights * scale, -torch.sin(angles) * weights * scale


def _advance(parts: Sequence[Tensor], matrices: Sequence[Tensor], dim: int) -> list[Tensor]:
    """Returns the parts of a product with a complex matrix along a dimension."""
    cosine, sine = matrices
    first, *second = (part.movedim(dim, -1) for part in parts)
    real, imag = first @ cosine, first @ sine
    if second:
        real, imag = real - second[0] @ sine, imag + second[0] @ cosine
    return [real.movedim(-1, dim), imag.movedim(-1, dim)]


def _finish(parts: Sequence[Tensor], matrices: Sequence[Tensor], dim: int) -> Tensor:
    """Returns the real signal of half of a spectrum along a dimension."""
    cosine, sine = matrices
    real, imag = (part.movedim(dim, -1).narrow(-1, 0, cosine.shape[0]) for part in parts)
    return (real @ cosine + imag @ sine).movedim(-1, dim)
