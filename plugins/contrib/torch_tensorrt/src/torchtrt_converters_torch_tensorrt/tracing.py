"""Adds to a network what a PyTorch function computes, by the converters that are installed.

Torch-TensorRT's building blocks are PyTorch's own operations under other names. Here each of them is a
function on tensors, which is traced with stand-ins of its network tensors. Its ops are decomposed and
converted like those of a model, with PyTorch's promotion and edge values.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from torchtrt.conversion import add_layer, is_network_tensor
from torchtrt.errors import ConversionError
from torchtrt.graphs.nodes import resolution_of
from torchtrt.packs import PackSet, current_packs
from torchtrt.registry import DYNAMO_CONVERTERS, decompositions
from torchtrt.settings import CompilationSettings
from torchtrt_compiler.lowering import fold_constants, remove_no_ops, resolve_nodes
from torchtrt_converters_torch_tensorrt.torch_internals import (
    ConstantSource,
    FakeTensorMode,
    ValueRanges,
    pytree,
)

_ATTACHMENT = "torch_tensorrt_tracing"
_HINT = 1009
"""The value that stands for a run-time size while tracing: no size that a model has."""


def building_block(
    function: Callable[..., Any], *, sizes: Sequence[str] = ()
) -> Callable[..., Any]:
    """Returns a function ``(ctx, target, source_ir, name, ...)`` that adds what a PyTorch function computes.

    Args:
        function: A function on tensors and numbers.
        sizes: The parameters of it that are sizes or places, or lists of these: network tensors
            among them are integers, not tensors.
    """
    signature = inspect.signature(function)

    def block(ctx: Any, target: Any, source_ir: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        del target, source_ir
        bound = signature.bind(*args, **kwargs)
        return add_traced(ctx, function, bound.args, bound.kwargs, name, _marked(bound, sizes))

    block.__name__ = block.__qualname__ = function.__name__
    block.__doc__ = function.__doc__
    return block


def _marked(bound: inspect.BoundArguments, sizes: Sequence[str]) -> list[bool]:
    """Returns for each leaf of the arguments whether it is a size."""
    marks: Any = (
        [pytree.tree_map(lambda _: False, value) for value in bound.args],
        {key: pytree.tree_map(lambda _: False, value) for key, value in bound.kwargs.items()},
    )
    names = list(bound.signature.parameters)
    for name in sizes:
        value = bound.arguments.get(name)
        mark = pytree.tree_map(lambda _: True, value)
        if name in bound.kwargs:
            marks[1][name] = mark
        elif name in bound.arguments:
            marks[0][names.index(name)] = mark
    leaves, _ = pytree.tree_flatten((tuple(marks[0]), marks[1]))
    return leaves


def add_traced(
    ctx: Any,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any] | None = None,
    name: str = "",
    is_size: Sequence[bool] | None = None,
) -> Any:
    """Returns what ``function`` makes of network tensors, PyTorch tensors, NumPy arrays and numbers.

    Args:
        ctx: The conversion context.
        function: A function on PyTorch tensors.
        args: Its arguments.
        kwargs: Its keyword arguments.
        name: What the layers are named after.
        is_size: For each leaf of the arguments whether a network tensor there is an integer.

    Raises:
        ConversionError: The function refuses its arguments, or an op that it calls is not converted.
    """
    leaves, tree = pytree.tree_flatten((tuple(args), dict(kwargs or {})))
    leaves = [_plain(leaf) for leaf in leaves]
    marks = list(is_size) if is_size is not None else [False] * len(leaves)
    knowledge = _Knowledge.of(ctx)
    inputs: list[Any] = []
    values: list[Any] = []
    positions: dict[int, int] = {}
    for index, (leaf, is_number) in enumerate(zip(leaves, marks, strict=True)):
        if is_network_tensor(leaf):
            positions[index] = len(inputs)
            inputs.append(_scalar(ctx, leaf) if is_number else leaf)
            values.append(knowledge.size(leaf) if is_number else knowledge.tensor(ctx, leaf))

    def call(*operands: Any) -> Any:
        filled = [
            operands[positions[index]] if index in positions else leaf
            for index, leaf in enumerate(leaves)
        ]
        positional, named = pytree.tree_unflatten(filled, tree)
        result = function(*positional, **named)
        return tuple(result) if isinstance(result, (list, tuple)) else result

    if not inputs:
        return pytree.tree_map(ctx.tensor, call())
    label = getattr(function, "__name__", "a function")
    with knowledge.mode, torch.no_grad():
        try:
            graph = make_fx(call, tracing_mode="real", pre_dispatch=True)(*values)
        except Exception as error:
            raise ConversionError(f"{label} does not take these arguments: {error}") from error
    knowledge.check_sizes_open(label)
    for placeholder, value in zip(graph.graph.find_nodes(op="placeholder"), values, strict=True):
        placeholder.meta["val"] = value
    results, spec = _results(graph)
    _convert_ready(graph, ctx, label, name)
    knowledge.check_sizes_open(label)
    converted = iter(_convert(ctx, graph, inputs))
    return pytree.tree_unflatten(
        [next(converted) if isinstance(leaf, torch.fx.Node) else leaf for leaf in results], spec
    )


def _plain(value: Any) -> Any:
    """Returns NumPy's arrays and numbers as PyTorch's and Python's."""
    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.array(value, copy=True))
    return value.item() if isinstance(value, np.generic) else value


def _scalar(ctx: Any, tensor: Any) -> Any:
    """Returns a network tensor of one element as a 0-d int32 one, as sizes are here."""
    tensor = ctx.tensor(tensor, torch.int32)
    if len(tensor.shape) == 0:
        return tensor
    layer = add_layer(ctx, "shuffle", tensor)
    layer.reshape_dims = ()
    return layer.get_output(0)


def _results(graph: GraphModule) -> tuple[list[Any], Any]:
    """Returns the leaves of what the graph returns, and leaves the nodes among them as its only results."""
    (output,) = graph.graph.find_nodes(op="output")
    leaves, spec = pytree.tree_flatten(output.args[0])
    output.args = ([leaf for leaf in leaves if isinstance(leaf, torch.fx.Node)],)
    return leaves, spec


def _convert_ready(graph: GraphModule, ctx: Any, label: str, name: str) -> None:
    """Chooses a converter for each node of a traced graph, after constants were folded.

    Args:
        graph: The graph, whose nodes get names that begin with ``name``, unless it is empty.
        ctx: The conversion that the graph is a part of.
        label: What was traced, for the message.
        name: The name of the layer that was asked for.

    Raises:
        ConversionError: No pack converts one of the ops.
    """
    remove_no_ops(graph)
    fold_constants(graph)
    settings = getattr(ctx.compilation_settings, "original", ctx.compilation_settings)
    resolve_nodes(graph, _without_third_parties(settings, current_packs()))
    for node in graph.graph.nodes:
        if node.op != "call_function":
            continue
        resolution = resolution_of(node)
        if not resolution:
            reason = resolution.explain() if resolution is not None else "it is not known"
            raise ConversionError(f"{label} needs {node.target}, which is not converted: {reason}")
        if name:
            node.name = graph.graph._graph_namespace.create_name(re.sub(r"\W", "_", name), node)


def _convert(ctx: Any, graph: GraphModule, inputs: list[Any]) -> list[Any]:
    if ctx.convert_graph is None:
        raise ConversionError("A building block is used outside of a conversion.")
    results: list[Any] = ctx.convert_graph(graph, inputs)
    return [ctx.tensor(result) for result in results]


@functools.lru_cache(maxsize=32)
def _without_third_parties(settings: CompilationSettings, packs: PackSet) -> CompilationSettings:
    """Returns settings by which the project's own converters and decompositions are tried first.

    The block that a converter for an op is built of would otherwise lead back to the converter.
    """
    del packs  # the registry's, which this is remembered for
    table = DYNAMO_CONVERTERS.registries
    core = dict.fromkeys(table.get("aten_core", {}), "aten_core")
    decomposed = {
        target
        for name, own in table.items()
        if name != "aten_core"
        for target in own
        if target not in core and target in decompositions()
    }
    return dataclasses.replace(
        settings,
        converter_preferences=core,
        torch_executed_ops=frozenset(),
        torch_enabled_decompositions=frozenset(decomposed),
        torch_disabled_decompositions=frozenset(),
    )


class _Knowledge:
    """The stand-ins of network tensors while tracing: fake tensors whose sizes are symbols of their own.

    The symbols of the model may not be used: tracing compares sizes, and nothing may be assumed of the model's.
    """

    def __init__(self) -> None:
        self.shapes: Any = ShapeEnv()
        # Decomposing may compare these sizes, which are used nowhere else: see torchtrt.graphs.symbols.
        self.shapes._check_frozen = self.shapes._check_frozen  # type: ignore[method-assign]
        self.mode = FakeTensorMode(shape_env=self.shapes, allow_non_fake_inputs=True)
        self._symbols: dict[Any, torch.SymInt] = {}
        self._taken: set[str] = set()
        self._count = 0

    @classmethod
    def of(cls, ctx: Any) -> _Knowledge:
        """Returns what is known in one conversion."""
        if _ATTACHMENT not in ctx.attachments:
            ctx.attachments[_ATTACHMENT] = cls()
        knowledge: _Knowledge = ctx.attachments[_ATTACHMENT]
        return knowledge

    def tensor(self, ctx: Any, tensor: Any) -> torch.Tensor:
        """Returns a fake tensor for a network tensor."""
        pytorch_value = ctx.known_value(tensor)
        if (
            isinstance(pytorch_value, torch.Tensor)
            and getattr(pytorch_value, "fake_mode", None) is self.mode
        ):
            return pytorch_value
        sizes = [
            size if isinstance(size, int) else self._symbol(size, (tensor.name, dim))
            for dim, size in enumerate(ctx.symbolic_shape(tensor))
        ]
        with self.mode:
            return torch.empty(sizes, dtype=_outer_dtype(ctx, tensor, pytorch_value))

    def size(self, tensor: Any) -> torch.SymInt:
        """Returns a symbol for a network tensor that holds one integer."""
        return self._symbol(None, (tensor.name, None))

    def _symbol(self, size: torch.SymInt | None, source: tuple[str, int | None]) -> torch.SymInt:
        """Returns a symbol of this trace for a size of another one: the same for equal expressions.

        Args:
            size: The size, whose bounds the symbol gets, or ``None`` if nothing is known about it.
            source: The name of a tensor and the dimension, which distinguish unknown sizes.
        """
        if size is not None and size.node.shape_env is self.shapes:
            return size
        key = source if size is None else size.node.expr
        if key not in self._symbols:
            least, most = 0, None
            if size is not None:
                self._taken.update(map(str, size.node.expr.free_symbols))
                bounds = size.node.shape_env.bound_sympy(size.node.expr)
                least, most = int(bounds.lower), bounds.upper
            self._symbols[key] = self._new_symbol(max(_HINT, least), most)
        return self._symbols[key]

    def _new_symbol(self, hint: int, most: Any) -> torch.SymInt:
        """Returns a new symbolic size with a hint, whose name no size of the model has."""
        while True:  # until the model has no such name
            self._count += 1
            source = ConstantSource(f"torch_tensorrt_{self._count}")
            symbol: Any = self.shapes.create_symbol(
                hint,
                source=source,
                dynamic_dim=DimDynamic.DYNAMIC,
                constraint_dim=None,
                do_not_specialize_zero_one=True,
            )
            if str(symbol) in self._taken:
                continue
            if most is not None and most.is_Integer:
                # The hint is within the bounds, so that tracing does not fail.
                self.shapes.var_to_range[symbol] = ValueRanges(0, max(int(most), hint))
            made = self.shapes.create_symintnode(symbol, hint=hint, source=source)
            assert isinstance(made, torch.SymInt)
            return made

    def check_sizes_open(self, label: str) -> None:
        """Raises if tracing found that a function works for one value of a size only."""
        fixed = [value for value in self.shapes.replacements.values() if value.is_number]
        if fixed:
            self.shapes.replacements.clear()
            raise ConversionError(f"{label} needs a dynamic size to be {fixed[0]}")


def _outer_dtype(ctx: Any, tensor: Any, pytorch_value: Any) -> torch.dtype:
    """Returns the dtype that PyTorch gives a network tensor; some have another one inside."""
    inside: torch.dtype = ctx.dtype_of(tensor)
    return pytorch_value.dtype if isinstance(pytorch_value, torch.Tensor) else inside
