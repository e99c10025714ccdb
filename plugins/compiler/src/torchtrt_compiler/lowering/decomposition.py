"""Looks up every node in the registry, and inlines a decomposition where that brings a node into TensorRT.

A converter that accepts a node wins: composites such as ``layer_norm`` stay whole. A node that no converter accepts is
traced through its decomposition (a pack's before PyTorch's own), and the parts are looked up in turn. Unless all of
them are accepted the node stays whole: PyTorch runs one ``aten.foo`` better than its pieces.
"""

from __future__ import annotations

import contextlib
import dataclasses
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from torchtrt.contract import qualified_function
from torchtrt.errors import (
    NewAssumptionError,
    SettingsError,
    UnsupportedDtypeError,
    UnsupportedProgramError,
)
from torchtrt.graphs.nodes import (
    all_nodes,
    group_of,
    inner_graphs,
    left_in_torch,
    put_into_group,
    remember_resolution,
    writes,
)
from torchtrt.graphs.symbols import no_new_assumptions
from torchtrt.packs.problem import describe
from torchtrt.registry import DYNAMO_CONVERTERS, Resolution, decompositions
from torchtrt.registry.candidate import Rejection, RejectionCode
from torchtrt.registry.excluded_modules import excluding_module
from torchtrt.settings import CompilationSettings
from torchtrt.targets import qualified_name
from torchtrt.tensorrt.dtypes import dtype_name, engine_dtype
from torchtrt.torch_internals import OpOverload, pytree
from torchtrt_compiler.lowering.cleanup import remove_no_ops
from torchtrt_compiler.lowering.constant_folding import fold_constants
from torchtrt_compiler.lowering.functionalization import rewrite_writes
from torchtrt_compiler.record import current_record, names_of
from torchtrt_compiler.sizes.settling import settle_sizes
from torchtrt_compiler.torch_internals import (
    FakeTensor,
    decomposition_table,
    enable_python_dispatcher,
    has_kernel,
    trace_function,
)

_DEPTH_LIMIT = 16
_PYTORCH = frozenset({"aten", "prim", "prims"})
"""The namespaces of ops that every process with PyTorch has."""


def resolve_nodes(
    graph_module: GraphModule,
    settings: CompilationSettings,
    fixed_sizes: Mapping[Any, int] = MappingProxyType({}),
) -> set[Any]:
    """Gives every call in the graph its ``Resolution``, decomposing nodes where that helps.

    Each node is looked up once; its resolution stays with it for partitioning and conversion.

    Args:
        graph_module: The program's graph.
        settings: The settings of the compilation.
        fixed_sizes: The sizes that guards fix, by their expressions.

    Returns:
        The ops that were looked up, those inside decompositions among them.
    """
    asked: set[Any] = set()
    with no_new_assumptions(graph_module.graph):
        _Resolver(graph_module, settings, fixed_sizes, asked).run()
    return asked


def decompose_added_ops(graph_module: GraphModule, exported: ExportedProgram) -> None:
    """Decomposes the ops of packs that PyTorch would run and that the model itself does not call.

    Passes make them for TensorRT. A process that loads the compiled model need not have the pack.

    Args:
        graph_module: The graph around the engines.
        exported: The model's program.
    """
    own = {node.target for node in all_nodes(exported.graph_module)}
    registered = decompositions()
    pending = list(graph_module.graph.nodes)
    while pending:
        node = pending.pop()
        if node.op != "call_function" or node.target in own or node.target not in registered:
            continue
        if node.target.namespace in _PYTORCH:
            continue
        try:
            parts = _trace(registered[node.target][0], node)
        except _NotDecomposedError:
            continue  # PyTorch runs it as it is, with the pack
        before = set(graph_module.graph.nodes)
        _inline(graph_module, node, parts)
        pending += [part for part in graph_module.graph.nodes if part not in before]
    graph_module.recompile()


@dataclass
class _Resolver:
    graph_module: GraphModule
    settings: CompilationSettings
    fixed_sizes: Mapping[Any, int]
    asked: set[Any]

    def run(self) -> None:
        """Gives each call of the graph, and of the graphs inside its calls, its resolution."""
        for node in list(self.graph_module.graph.nodes):
            if node.op == "call_function":
                for inner in inner_graphs(node):
                    remove_no_ops(inner)
                    _Resolver(inner, self.settings, self.fixed_sizes, self.asked).run()
                    inner.recompile()
                resolution, parts = self.resolve(node, depth=0)
                remember_resolution(node, resolution)
                if parts is not None:
                    _inline(self.graph_module, node, parts)

    def resolve(self, node: Node, depth: int) -> tuple[Resolution, GraphModule | None]:
        """Returns what becomes of a node: its resolution, and the graph to put in its place if there is one."""
        self.asked.add(node.target)
        resolution, parts = self._outcome(node, depth)
        record = current_record()
        record.lookup(node, resolution)
        if parts is not None:
            made = (part for part in parts.graph.nodes if part.op == "call_function")
            record.decision("decomposed", f"{node.name} into", names_of(made))
        return resolution, parts

    def _outcome(self, node: Node, depth: int) -> tuple[Resolution, GraphModule | None]:
        """Returns the resolution of a node, and the graph to put in its place if there is one."""
        if writes(node):
            written = "It writes to a buffer or an input, which PyTorch does."
            return _rejected(node, written, "write"), None
        if (left := left_in_torch(node)) is not None:
            return _rejected(node, *left), None
        if (reason := self.unusable_dtype(node)) is not None:
            return _rejected(node, reason, "dtype"), None
        resolution, parts = self._resolve(node, depth)
        if not resolution and parts is None:
            late = DYNAMO_CONVERTERS.resolve(node, self.settings, decomposition_failed=True)
            if late:
                return late, None
        return resolution, parts

    def _resolve(
        self, node: Node, depth: int, wanted: bool = False
    ) -> tuple[Resolution, GraphModule | None]:
        """Returns the resolution of a node that may be in a network, and the graph of its decomposition if that helps.

        Args:
            node: The node.
            depth: The number of decompositions that the node is inside of.
            wanted: Whether to decompose the node, if that can be done, although a converter accepts it.

        Raises:
            SettingsError: The settings name a decomposition that the node does not have.
        """
        resolution = DYNAMO_CONVERTERS.resolve(node, self.settings)
        forced = node.target in self.settings.torch_enabled_decompositions
        if (
            (resolution and not forced and not wanted)
            or not self.may_decompose(node)
            or depth == _DEPTH_LIMIT
        ):
            return resolution, None
        decompose = decomposition_for(node.target)
        try:
            parts = _trace(decompose, node)
        except _NotDecomposedError as error:
            reason = str(error)
            if forced:
                raise _without_effect(node, reason) from None
            if reason:
                return _with_reason(resolution, reason, "decomposition"), None
            return resolution, None
        settle_sizes(parts.graph, self.fixed_sizes)
        for part in list(parts.graph.nodes):
            if part.op != "call_function" or part._erased:
                continue
            part_resolution, part_parts = self.resolve(part, depth + 1)
            if forced and _is_renamed(parts, part, resolution, part_resolution):
                part_resolution, part_parts = self._resolve(part, depth + 1, wanted=True)
            if not part_resolution and not part_parts and not forced:
                return _without_part(resolution, part_resolution, part), None
            remember_resolution(part, part_resolution)
            if part_parts is not None:
                _inline(parts, part, part_parts)
        return resolution, parts

    def unusable_dtype(self, node: Node) -> str | None:
        """Returns why a dtype that the node reads or writes cannot be in a network, or None."""
        for value in (node, *node.all_input_nodes):
            for leaf in pytree.tree_leaves(value.meta.get("val")):
                if isinstance(leaf, torch.Tensor):
                    try:
                        engine_dtype(leaf.dtype, self.settings.truncate_double)
                    except UnsupportedDtypeError as error:
                        return str(error)
        return None

    def may_decompose(self, node: Node) -> bool:
        """Returns whether the settings allow a decomposition.

        Random ops are decomposed only where the settings name them.
        """
        settings, target = self.settings, node.target
        return (
            isinstance(target, OpOverload)
            and target not in settings.torch_disabled_decompositions
            and target not in settings.torch_executed_ops
            and not (settings.torch_executed_modules and excluding_module(node, settings))
            and (
                target in settings.torch_enabled_decompositions
                or torch.Tag.nondeterministic_seeded not in target.tags
            )
        )


def decomposition_for(target: Any) -> Callable[..., Any] | None:
    """Returns the function that computes ``target`` by other ops: a pack's, else PyTorch's, else None."""
    if (ours := decompositions().get(target)) is not None:
        return ours[0]
    theirs = decomposition_table.get(target)
    if theirs is not None:
        return theirs
    # Overloads that only TorchScript has are not dispatched, and ``_can_decompose`` raises for them.
    is_op = isinstance(target, OpOverload)
    is_dispatched = is_op and has_kernel(target.name())
    return target.decompose if is_dispatched and target._can_decompose() else None


def _is_renamed(
    parts: GraphModule, part: Node, resolution: Resolution, part_resolution: Resolution
) -> bool:
    """Returns whether a decomposition is nothing but another op of the same converter, as ``mm`` is for ``matmul``."""
    calls = [node for node in parts.graph.nodes if node.op == "call_function"]
    first, second = resolution.chosen, part_resolution.chosen
    return (
        calls == [part]
        and first is not None
        and second is not None
        and first.qualified_function == second.qualified_function
    )


class _NotDecomposedError(Exception):
    """A node has no decomposition, or it does not apply. The message, which may be empty, is the reason."""


def _trace(decompose: Callable[..., Any] | None, node: Node) -> GraphModule:
    """Returns the graph of a decomposition, traced with the node's fake inputs.

    Raises:
        _NotDecomposedError: There is none, or it does not apply to these inputs.
    """
    sources = node.all_input_nodes
    values = [source.meta["val"] for source in sources]
    if decompose is None or any(isinstance(value, (list, tuple)) for value in values):
        raise _NotDecomposedError
    where = qualified_function(decompose)
    parts = _traced_parts(decompose, node, values)
    placeholders = parts.graph.find_nodes(op="placeholder")
    for placeholder, source in zip(placeholders, sources, strict=True):
        placeholder.meta["val"] = source.meta["val"]
    difference = _difference(parts, node)
    if difference is not None:
        raise _NotDecomposedError(f"its decomposition {where} returns {difference}")
    try:
        remove_no_ops(parts)
        fold_constants(parts)
    except UnsupportedProgramError as error:
        reason = f"its decomposition {where} does not apply: {error}"
        raise _NotDecomposedError(reason) from error
    if any(part.target is node.target for part in parts.graph.nodes):
        is_ours = node.target in decompositions()
        raise _NotDecomposedError(f"its decomposition {where} calls the op" if is_ours else "")
    return parts


def _traced_parts(decompose: Callable[..., Any], node: Node, values: Sequence[Any]) -> GraphModule:
    """Returns what a decomposition computes of a node's arguments, with ``values`` for its input nodes."""
    sources = node.all_input_nodes

    def function(*values: Any) -> Any:
        value_by_source = dict(zip(sources, values, strict=True))
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), value_by_source.__getitem__)
        result = decompose(*args, **kwargs)
        return tuple(result) if isinstance(result, (list, tuple)) else result

    is_ours = node.target in decompositions()
    try:
        # The dispatcher in Python accepts symbolic sizes where the one in C++ needs numbers, but takes ops apart.
        dispatcher = enable_python_dispatcher() if is_ours else contextlib.nullcontext()
        with torch.no_grad(), _fake_mode_of((*values, node.meta.get("val"))), dispatcher:
            parts = trace_function(function, values)
            if not rewrite_writes(parts.graph):
                parts = trace_function(torch.func.functionalize(function), values)
    except NotImplementedError as error:
        raise _NotDecomposedError(f"its decomposition does not apply: {error}") from error
    except NewAssumptionError as error:
        question = f"whether {error.expression} is {error.value}"
        reason = f"its decomposition asks {question}, which is not the same for all sizes"
        raise _NotDecomposedError(reason) from error
    except GuardOnDataDependentSymNode as error:
        reason = f"its decomposition asks for the value of {error.cond}, which depends on data"
        raise _NotDecomposedError(reason) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too
        if not is_ours:  # PyTorch's own may refuse its inputs in any way; then the node stays whole
            raise _NotDecomposedError from error
        where = qualified_function(decompose)
        reason = f"its decomposition {where} raised {describe(error, where)}"
        raise _NotDecomposedError(reason) from error
    return parts


def _difference(parts: GraphModule, node: Node) -> str | None:
    """Returns how the results of a decomposition differ from the node's in dtype, rank or known sizes, or None.

    The nodes that read the results are converted for their values in the exported program.
    """
    results: Any = parts.graph.output_node().args[0]
    wanted: Any = node.meta.get("val")
    if not isinstance(results, (list, tuple)) or not isinstance(wanted, (list, tuple)):
        return _difference_of(parts, results, wanted)
    if len(results) != len(wanted):
        return f"{len(results)} results where the op returns {len(wanted)}"
    read: list[Any] = [user.args[1] for user in node.users if user.target is operator.getitem]
    differences = (_difference_of(parts, results[index], wanted[index]) for index in read)
    return next(filter(None, differences), None)


def _difference_of(parts: GraphModule, result: Any, expected: Any) -> str | None:
    if not isinstance(expected, torch.Tensor):
        return None
    value = _value_in(parts, result)
    if not isinstance(value, torch.Tensor):
        return f"no tensor where the op returns {_described(expected)}"
    if not _is_alike(value, expected):
        return f"{_described(value)} where the op returns {_described(expected)}"
    return None


def _value_in(parts: GraphModule, result: Any) -> Any:
    if isinstance(result, Node) and result.op == "get_attr":
        return attrgetter(str(result.target))(parts)
    return result.meta.get("val") if isinstance(result, Node) else result


def _is_alike(value: torch.Tensor, expected: torch.Tensor) -> bool:
    if value.dtype is not expected.dtype or value.dim() != expected.dim():
        return False
    sizes = zip(value.shape, expected.shape, strict=True)
    return all(
        one == other for one, other in sizes if isinstance(one, int) and isinstance(other, int)
    )


def _described(value: torch.Tensor) -> str:
    return f"{dtype_name(value.dtype)} of ({', '.join(map(str, value.shape))})"


def _fake_mode_of(values: Sequence[Any]) -> contextlib.AbstractContextManager[Any]:
    """Returns the mode in which tensors made from symbolic sizes alone are fake as well."""
    modes = (value.fake_mode for value in values if isinstance(value, FakeTensor))
    return next(modes, contextlib.nullcontext())


def _inline(graph_module: GraphModule, node: Node, parts: GraphModule) -> None:
    """Replaces ``node`` by the traced graph of its decomposition."""
    graph = graph_module.graph
    sources = node.all_input_nodes
    env: dict[Node, Node] = {}
    with graph.inserting_before(node):
        for part in parts.graph.nodes:
            if part.op == "placeholder":
                env[part] = sources[len(env)]
            elif part.op == "get_attr":
                name = f"_{node.name}{part.target}"
                setattr(graph_module, name, getattr(parts, part.target))
                env[part] = graph.create_node("get_attr", name)
                env[part].meta = {"val": getattr(parts, part.target)}
            elif part.op == "call_function":
                env[part] = graph.node_copy(part, env.__getitem__)
                for key in ("stack_trace", "nn_module_stack"):
                    if key in node.meta:
                        env[part].meta[key] = node.meta[key]
                env[part].meta["decomposed_from"] = str(node.target)
                put_into_group(env[part], group_of(node))
            else:
                results = torch.fx.map_arg(part.args[0], env.__getitem__)
    if isinstance(results, (list, tuple)):
        for user in list(node.users):
            assert user.target is operator.getitem
            index: Any = user.args[1]
            user.replace_all_uses_with(results[index])
            graph.erase_node(user)
    else:
        node.replace_all_uses_with(results)
    graph.erase_node(node)


def _without_effect(node: Node, reason: str) -> SettingsError:
    """Returns the error for a node whose decomposition was asked for by name, and which has none."""
    why = f"{reason}." if reason else "neither a pack nor PyTorch has a decomposition for it."
    return SettingsError(
        f"torch_enabled_decompositions names {qualified_name(node.target)}, and {node.name} cannot be decomposed: "
        f"{why} Leave it out."
    )


def _rejected(node: Node, reason: str, code: RejectionCode) -> Resolution:
    assert not isinstance(node.target, str)
    return Resolution(node.target, node.name, None, (Rejection(None, reason, code),))


def _without_part(resolution: Resolution, of_part: Resolution, part: Node) -> Resolution:
    """Returns the resolution with the reason why the decomposition does not help."""
    needs = f"its decomposition needs {qualified_name(part.target)}"
    if of_part.rejections:
        why = "; ".join(rejection.reason for rejection in of_part.rejections)
        first = of_part.rejections[0]
        code = "decomposition" if first.code == "write" else first.code  # the op itself is no write
        return _with_reason(resolution, f"{needs}: {why}", code, first.advice)
    if resolution.rejections:
        return resolution  # the converters' reasons about the node itself are more precise
    return _with_reason(resolution, f"{needs}, which has no converter either", "no-converter")


def _with_reason(
    resolution: Resolution, reason: str, code: RejectionCode, advice: str = ""
) -> Resolution:
    if not resolution.rejections:
        reason = f"no pack has a converter, and {reason}"
    rejection = Rejection(None, reason, code, advice)
    return dataclasses.replace(resolution, rejections=(*resolution.rejections, rejection))
