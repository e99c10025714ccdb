"""Complex numbers as pairs of real ones.

TensorRT has no complex numbers. This pass replaces each complex value by its real and its imaginary part, before
converters are looked up. Some complex values come from PyTorch: inputs, buffers that the model writes
to, results of ops without a rule. PyTorch views their memory as real numbers. Where PyTorch reads one (an output,
such an op), it views a tensor with both parts along its last dimension as complex numbers. Neither copies.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from torchtrt.conversion import constant_of
from torchtrt.targets import qualified_name
from torchtrt.tensorrt import describe
from torchtrt_converters_complex import pack, tracing
from torchtrt_converters_complex.pairs import PARTS, RULES, Pair, apply
from torchtrt_converters_complex.rules import (
    arithmetic,
    functions,
    products,
    reductions,
    structure,
)
from torchtrt_converters_complex.torch_internals import OpOverload, pytree
from torchtrt_converters_complex.transforms import TRANSFORMS, objection, transform_of

aten = torch.ops.aten
FAMILIES = (arithmetic, functions, products, reductions, structure)
"""The modules that fill the table of rules."""
VIEW = "PyTorch views complex numbers as pairs of real numbers, or pairs as complex numbers, without a copy."
OF_COMPLEX_NUMBERS = (
    *TRANSFORMS,
    aten._conj.default,
    aten.complex.default,
    aten.conj_physical.default,
    aten.imag.default,
    aten.polar.default,
    aten.real.default,
    aten.view_as_complex.default,
    aten.view_as_real.default,
)
"""The ops that always have complex numbers. The pass converts most others if they have some."""
_DEPTH = 8
"""How often the parts of an op are taken apart."""


@pack.lowering_pass("complex_numbers", ops=OF_COMPLEX_NUMBERS)
def rewrite(graph_module: GraphModule, settings: Any) -> None:
    """Replaces complex values by pairs of real ones wherever a rule is known."""
    if not any(
        _has_complex(node) or _is_composite_transform(node) for node in graph_module.graph.nodes
    ):
        return
    from torchtrt.graphs import no_new_assumptions  # here, since few models need it

    # Keeping a slice of an input for later compares the sizes of memories, which are symbols too.
    mode = tracing.fake_mode_of(graph_module)
    cached, mode.cache_enabled = mode.cache_enabled, False
    try:
        with no_new_assumptions(graph_module.graph):
            _Rewriter(graph_module, settings).run()
    finally:
        mode.cache_enabled = cached


def _dtypes(node: Node) -> list[torch.dtype]:
    leaves = pytree.tree_leaves(node.meta.get("val"))
    return [leaf.dtype for leaf in leaves if isinstance(leaf, Tensor)]


def _has_complex(node: Node) -> bool:
    return any(dtype.is_complex for dtype in _dtypes(node))


def _complex_dtypes(node: Node) -> set[torch.dtype]:
    nodes = (node, *node.all_input_nodes)
    return {dtype for node in nodes for dtype in _dtypes(node) if dtype.is_complex}


def _is_composite_transform(node: Node) -> bool:
    target = node.target
    return isinstance(target, OpOverload) and target._schema.name.startswith(
        ("aten::fft_", "aten::stft", "aten::istft")
    )


def _is_composite(target: Any) -> bool:
    return isinstance(target, OpOverload) and target._can_decompose()


def _needs_rule(node: Node) -> bool:
    """Returns whether a node computes with complex numbers, itself or inside."""
    return node.op == "call_function" and (
        bool(_complex_dtypes(node)) or _is_composite_transform(node)
    )


class _Rewriter:
    """Replaces the complex nodes of a graph, one after the other.

    Args:
        graph_module: The graph.
        settings: The settings of the compilation.
    """

    def __init__(self, graph_module: GraphModule, settings: Any) -> None:
        from torchtrt.graphs import leave_in_torch, writes  # slow to import

        self.graph_module = graph_module
        self.graph: Graph = graph_module.graph
        self.settings = settings
        self.leave_in_torch = leave_in_torch
        self.writes = writes
        self.mode = tracing.fake_mode_of(graph_module)
        self.pairs: dict[Node, Pair] = {}
        self.several: dict[Node, list[Any]] = {}
        self.wholes: dict[Node, Node] = {}
        self.reasons: dict[Node, str] = {}

    def run(self) -> None:
        """Replaces all nodes that make or read complex values."""
        self.reasons = dict(self.open_composites(self.graph_module, 0))
        for node in list(self.graph.nodes):
            if node.op == "output":
                self.read_whole(node, node.all_input_nodes)
            elif node.op == "call_function" and (_complex_dtypes(node) or node in self.reasons):
                self.replace(node)
        self.graph.eliminate_dead_code()

    def open_composites(self, parts: GraphModule, depth: int) -> Iterator[tuple[Node, str]]:
        """Replaces ops without a rule by what PyTorch computes them by, and yields those that stay."""
        for node in list(parts.graph.nodes):
            if not _needs_rule(node) or node.target is operator.getitem or self.writes(node):
                continue
            if not isinstance(node.meta.get("val"), (Tensor, list, tuple)):
                continue
            reason = self.objection(node)
            if reason is None or node.target in self.settings.torch_executed_ops:
                continue
            opened = self.opened(node) if depth < _DEPTH else None
            if opened is None:
                yield node, reason
                continue
            inner, sources, nesting = opened
            rest = dict(self.open_composites(inner, depth + 1))
            if rest:
                (first, why), *_ = rest.items()
                yield node, f"It needs {qualified_name(first.target)}. {why}"
                continue
            result = tracing.inline(parts, node, inner, sources, nesting)
            _replace_results(node, result)

    def objection(self, node: Node) -> str | None:
        """Returns why a node has no rule, or ``None``."""
        dtypes = _complex_dtypes(node)
        if torch.complex128 in dtypes and not self.settings.truncate_double:
            return f"{describe()} has no complex128, whose parts are float64. Compile with truncate_double=True."
        if node.target in TRANSFORMS:
            reason = objection(node)
            return reason and f"TensorRT has no complex numbers, and {reason}."
        if node.target in RULES:
            return None
        return "TensorRT has no complex numbers, and the pack complex has no rule for this op."

    def opened(self, node: Node) -> Any:
        """Returns the traced graph of what PyTorch computes an op by, or None where it has nothing."""
        from torchtrt_compiler.lowering.decomposition import decomposition_for

        # PyTorch's table takes transforms apart into prims; the composites themselves end at _fft_r2c and its like.
        target: Any = node.target
        function = target.decompose if _is_composite(target) else None
        function = function or decomposition_for(target)
        if function is None or torch.complex128 in _complex_dtypes(node):
            return None
        try:
            traced = tracing.trace(self.mode, function, node.args, node.kwargs)
        except Exception:  # PyTorch's own may refuse its operands in any way
            return None
        targets = {part.target for part in traced[0].graph.nodes}
        return None if node.target in targets else traced

    def replace(self, node: Node) -> None:
        """Computes a node's value by parts, or leaves the node to PyTorch."""
        if node.target is operator.getitem:
            self.pick(node)
        elif isinstance(node.meta.get("val"), (int, torch.SymInt, torch.SymBool, bool)):
            for source in node.all_input_nodes:  # the sizes of either part are those of both
                if _has_complex(source):
                    node.replace_input_with(source, self.pair_of(source).real)
        elif self.writes(node):
            self.read_whole(
                node, [source for source in node.all_input_nodes if source is not node.args[0]]
            )
        elif node in self.reasons:
            self.leave(node, self.reasons[node])
        elif node.target in self.settings.torch_executed_ops:
            self.leave(node, "torch_executed_ops names it.", "user-excluded")
        elif (reason := self.objection(node)) is not None:
            self.leave(node, reason)
        else:
            try:
                result = self.computed(node)
            except NotImplementedError as error:
                self.leave(node, f"TensorRT has no complex numbers, and {error}.")
            except Exception as error:
                self.leave(
                    node, f"TensorRT has no complex numbers, and the op's rule raised {error!r}."
                )
            else:
                self.keep(node, result)

    def computed(self, node: Node) -> Any:
        """Returns the nodes of a node's value: a pair, a real node, or several.

        Raises:
            NotImplementedError: The rule does not apply to the node's operands.
        """
        target, wanted = node.target, node.meta["val"]
        has_double = torch.complex128 in _complex_dtypes(node)
        compute = torch.float64 if has_double else torch.float32
        args, kwargs = pytree.tree_map_only(Node, self.operand, (node.args, node.kwargs))
        if target in TRANSFORMS:
            transform = transform_of(node)
            tables = [
                tracing.add_constant(self.graph_module, node, table.to(compute))
                for table in transform.tables
            ]

            def run(value: Any, tables: Any) -> Any:
                value = pytree.tree_map_only(Tensor, lambda part: part.to(compute), value)
                result = transform.run(value, tables)
                return pytree.tree_map_only(
                    Tensor, lambda part: part.to(PARTS.get(wanted.dtype, wanted.dtype)), result
                )

            return tracing.emit(self.graph_module, node, run, (args[0], tables), {})
        rule = RULES[target]

        def follow(*args: Any, **kwargs: Any) -> Any:
            return apply(rule, args, kwargs, compute, wanted)

        return tracing.emit(self.graph_module, node, follow, args, kwargs)

    def operand(self, node: Node) -> Any:
        """Returns what stands for a node among the operands of a rule."""
        return self.pair_of(node) if _has_complex(node) else node

    def keep(self, node: Node, result: Any) -> None:
        """Stores a node's value by parts, and puts a real one in the place of the node."""
        if isinstance(result, Pair):
            self.pairs[node] = result
        elif isinstance(result, list):
            self.several[node] = result
        else:
            node.replace_all_uses_with(result)

    def pick(self, node: Node) -> None:
        """Takes one of a call's results; those of a call in PyTorch stay whole."""
        source, index = node.args
        if source in self.several:
            self.keep(node, self.several[source][index])  # type: ignore[index]

    def leave(self, node: Node, reason: str, code: Any = "no-converter") -> None:
        """Leaves a node to PyTorch, which reads complex numbers."""
        self.read_whole(node, node.all_input_nodes)
        is_double = torch.complex128 in _complex_dtypes(node)
        self.leave_in_torch(node, reason, "dtype" if is_double else code)

    def read_whole(self, node: Node, sources: list[Node]) -> None:
        """Lets a node read complex numbers where it read those that are pairs now."""
        for source in sources:
            if source in self.pairs and self.is_replaced(source):
                node.replace_input_with(source, self.whole(source, node))

    def is_replaced(self, node: Node) -> bool:
        """Returns whether nothing but pairs stands for a node any more."""
        return node.op == "call_function" and self.wholes.get(node) is not node

    def whole(self, node: Node, before: Node) -> Node:
        """Returns a node of the complex numbers that are a pair, made before the first node that reads them."""
        if node not in self.wholes:
            pair = self.pairs[node]
            packed = tracing.emit(
                self.graph_module,
                before,
                lambda real, imag: torch.stack([real, imag], -1),
                (pair.real, pair.imag),
                {},
            )
            with self.mode:
                value = torch.view_as_complex(packed.meta["val"])
            self.wholes[node] = self.view(before, aten.view_as_complex.default, packed, value)
        return self.wholes[node]

    def view(self, before: Node, target: Any, source: Node, value: Tensor) -> Node:
        """Adds a view that PyTorch takes."""
        with self.graph.inserting_before(before):
            node = self.graph.call_function(target, (source,))
        node.meta["val"] = value
        self.leave_in_torch(node, VIEW, "view")
        return node

    def pair_of(self, node: Node) -> Pair:
        """Returns the parts of a complex node, of one from PyTorch by a view of its memory."""
        if node in self.pairs:
            return self.pairs[node]
        constant = constant_of(node)
        before = self.insertion_point(node)
        if constant is not None and not any(map(self.writes, node.users)):
            self.pairs[node] = Pair(
                *(
                    tracing.add_constant(self.graph_module, before, part)
                    for part in (constant.real, constant.imag)
                )
            )
        else:
            with self.mode:
                value = node.meta["val"].resolve_conj()
                parts = torch.view_as_real(value)
            resolved = self.view(before, aten.resolve_conj.default, node, value)
            packed = self.view(before, aten.view_as_real.default, resolved, parts)
            self.pairs[node] = tracing.emit(
                self.graph_module,
                before,
                lambda x: Pair(x.select(-1, 0), x.select(-1, 1)),
                (packed,),
                {},
            )
        self.wholes[node] = node
        return self.pairs[node]

    def insertion_point(self, node: Node) -> Node:
        """Returns the node before which a node can be read first."""
        successor = node.next
        while successor.op in ("placeholder", "get_attr"):
            successor = successor.next
        return successor


def _replace_results(node: Node, result: Any) -> None:
    """Puts the results of a node's parts in its place."""
    if isinstance(result, (list, tuple)) and isinstance(node.meta.get("val"), (list, tuple)):
        for user in list(node.users):
            assert user.target is operator.getitem
            index: Any = user.args[1]
            user.replace_all_uses_with(result[index])
            user.graph.erase_node(user)
    else:
        (value,) = result if isinstance(result, (list, tuple)) else (result,)
        node.replace_all_uses_with(value)
    node.graph.erase_node(node)
