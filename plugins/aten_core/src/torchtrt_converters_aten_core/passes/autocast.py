"""Lowers a float32 model to float16 or bfloat16 by casts, as the setting ``autocast`` specifies.

The rules are those of PyTorch's autocast on CUDA (https://docs.pytorch.org/docs/stable/amp.html): matrix products and
convolutions compute in the lower precision. Ops that lose accuracy there (normalizations, exponentials, losses,
reductions), and ops without a rule, compute in float32. The rest compute in the dtype of their inputs.

Three rules go beyond PyTorch's. An op stays in float32 if a constant or a number is beyond the lower precision, or if
its elements are integers. Batch normalization, which is a product and a sum per channel here, follows its input.
An op also stays there if batches for calibration have larger numbers than a threshold, or if its sums are longer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from operator import getitem
from typing import Any

import torch
from torch.fx import GraphModule, Node

from torchtrt.callers import warn_caller
from torchtrt.conversion import arguments_of, constant_of
from torchtrt.packs import AutocastRule, loaded_packs
from torchtrt.settings import CompilationSettings
from torchtrt.targets import qualified_name
from torchtrt_converters_aten_core import pack
from torchtrt_converters_aten_core.passes.sum_lengths import sum_length
from torchtrt_converters_aten_core.torch_internals import pytree

aten = torch.ops.aten

pack.autocast_rule(
    AutocastRule.LOWER_PRECISION,
    aten.addbmm,
    aten.addmm,
    aten.addmv,
    aten.addr,
    aten.baddbmm,
    aten.bilinear,
    aten.bmm,
    aten.chain_matmul,
    aten.conv1d,
    aten.conv2d,
    aten.conv3d,
    aten.conv_tbc,
    aten.conv_transpose1d,
    aten.conv_transpose2d,
    aten.conv_transpose3d,
    aten.convolution,
    aten.einsum,
    aten.linalg_multi_dot,
    aten.linear,
    aten.matmul,
    aten.mm,
    aten.mv,
    aten.scaled_dot_product_attention,
)

BATCH_NORMALIZATIONS = frozenset(
    {
        aten.batch_norm.default,
        aten._native_batch_norm_legit_no_training.default,
    }
)
"""Their statistics and weights are float32 beside an input of lower precision, in PyTorch too."""

TAKING_INDICES = frozenset({aten.embedding, aten.gather, aten.index, aten.index_select})
"""Ops whose integer operands choose elements, and do not enter the result."""

pack.autocast_rule(
    AutocastRule.PROMOTE,
    *BATCH_NORMALIZATIONS,
    aten.abs,
    aten.adaptive_avg_pool1d,
    aten.adaptive_avg_pool2d,
    aten._adaptive_avg_pool2d,
    aten.adaptive_max_pool2d,
    aten.add,
    aten.alias,
    aten.amax,
    aten.amin,
    aten.argmax,
    aten.argmin,
    aten.avg_pool1d,
    aten.avg_pool2d,
    aten.avg_pool3d,
    aten.cat,
    aten.channel_shuffle,
    aten.chunk,
    aten.clamp,
    aten.clamp_max,
    aten.clamp_min,
    aten.clone,
    aten.constant_pad_nd,
    aten.contiguous,
    aten.detach,
    aten.diagonal,
    aten.div,
    aten.dropout,
    aten.elu,
    aten.embedding,
    aten.eq,
    aten.expand,
    aten.expand_as,
    aten.flatten,
    aten.flip,
    aten.gather,
    aten.ge,
    aten.gelu,
    aten.glu,
    aten.gt,
    aten.hardsigmoid,
    aten.hardswish,
    aten.hardtanh,
    aten.index,
    aten.index_select,
    aten.le,
    aten.leaky_relu,
    aten.lt,
    aten.masked_fill,
    aten.max,
    aten.max_pool1d,
    aten.max_pool2d,
    aten.max_pool2d_with_indices,
    aten.max_pool3d,
    aten.maximum,
    aten.min,
    aten.minimum,
    aten.mish,
    aten.movedim,
    aten.mul,
    aten.narrow,
    aten.ne,
    aten.neg,
    aten.pad,
    aten.permute,
    aten.pixel_shuffle,
    aten.pixel_unshuffle,
    aten.prelu,
    aten.relu,
    aten.relu6,
    aten.repeat,
    aten.reshape,
    aten.roll,
    aten.select,
    aten.sigmoid,
    aten.silu,
    aten.slice,
    aten.sort,
    aten.split,
    aten.split_with_sizes,
    aten.squeeze,
    aten.stack,
    aten.sub,
    aten.t,
    aten.tanh,
    aten.tile,
    aten.topk,
    aten.transpose,
    aten.unbind,
    aten.unflatten,
    aten._unsafe_view,
    aten.unsqueeze,
    aten.upsample_bilinear2d,
    aten.upsample_nearest1d,
    aten.upsample_nearest2d,
    aten.view,
    aten.view_as,
    aten.where,
)


@pack.lowering_pass()
def autocast(graph_module: GraphModule, settings: CompilationSettings) -> None:
    """Casts what may compute in the lower precision; does nothing where the setting is not given."""
    if settings.autocast is not None:
        _Autocast(graph_module, settings.autocast, settings).run()


def _rules() -> Mapping[str, AutocastRule]:
    """Returns the rule of each op that has one, by its qualified name: that of the first pack in pack order."""
    rules: dict[str, AutocastRule] = {}
    for loaded in loaded_packs():
        for op, rule in loaded.pack.autocast_rules:
            rules.setdefault(op, rule)
    return rules


class _Autocast:
    def __init__(
        self, graph_module: GraphModule, lower: torch.dtype, settings: CompilationSettings
    ) -> None:
        self.graph_module = graph_module
        self.lower = lower
        self.largest, self.tiny = torch.finfo(lower).max, torch.finfo(lower).tiny
        self.most = settings.autocast_max_output_threshold or self.largest
        self.longest = settings.autocast_max_depth_of_reduction or math.inf
        from torchtrt.graphs import facts_of  # which imports SymPy

        facts = facts_of(graph_module)
        self.magnitudes, self.in_float32 = facts.largest(), facts.in_float32
        self.rules = _rules()
        self.excluded_ops = settings.autocast_excluded_ops
        self.excluded = [re.compile(pattern) for pattern in settings.autocast_excluded_nodes]
        self.matched: set[re.Pattern[str]] = set()
        self.lowered: set[Node] = set()
        self.casts: dict[tuple[Node, torch.dtype, bool], Node] = {}

    def run(self) -> None:
        """Rewrites the graph, and warns of each setting in ``autocast_excluded_nodes`` that excluded no node."""
        for node in list(self.graph_module.graph.nodes):
            if node.op == "output":
                self.cast_inputs(node, torch.float32)
            elif node.op == "call_function":
                self.lower_or_not(node)
        for pattern in self.excluded:
            if pattern not in self.matched:
                warn_caller(
                    f"autocast_excluded_nodes={pattern.pattern!r} matches the whole name of no node that could compute "
                    f"in {self.lower}, and the path of none of their modules."
                )

    def lower_or_not(self, node: Node) -> None:
        """Casts the inputs of a node to the dtype in which it computes, and reports why magnitudes forbid the lower."""
        if node.target is getitem:
            if node.args[0] in self.lowered:
                self.mark(node)
            return
        is_lower = self.may_be_lower(node)
        if is_lower and (objection := self.objection(node)):
            self.in_float32.append(f"{node.name} ({qualified_name(node.target)}) {objection}.")
            is_lower = False
        self.cast_inputs(node, self.lower if is_lower else torch.float32)
        if is_lower:
            self.mark(node)

    def may_be_lower(self, node: Node) -> bool:
        """Returns whether a node computes in the lower precision if its magnitudes and its sums allow it."""
        sources = node.all_input_nodes
        dtypes = {leaf.dtype for source in sources for leaf in _tensors(source)}
        if not dtypes & {torch.float32, self.lower} or dtypes & _OTHERS or self.is_excluded(node):
            return False
        rule = self.rules.get(qualified_name(node.target), AutocastRule.FLOAT32)
        if rule is AutocastRule.FLOAT32 or not self.holds_numbers(node):
            return False
        if node.target in BATCH_NORMALIZATIONS:
            return self.holds_normalization(node) and sources[0] in self.lowered
        is_promoting = rule is AutocastRule.PROMOTE
        if is_promoting and not self.takes_lowered(node, dtypes):
            return False
        # Last: with other weights it has to come out the same, or they cannot be given to the model.
        return all(self.fits(constant, is_promoting) for constant in self.constants(node))

    def objection(self, node: Node) -> str:
        """Returns why the lower precision does not fit a node's magnitudes or sums; ``""`` if it does."""
        length = sum_length(node)
        if length > self.longest:
            return f"sums {length:,.0f} terms, more than autocast_max_depth_of_reduction={self.longest}"
        mask = self.clamped_mask(node)
        read = (source for source in node.all_input_nodes if source.op != "get_attr")
        for source in (node, *read):
            magnitude = self.magnitudes.get(source, 0)
            if magnitude > self.most and source is not mask:
                verb = "returns" if source is node else f"reads {source.name} with"
                return f"{verb} magnitudes up to {magnitude:.4g}, above {self.most:.5g}"
        return ""

    def clamped_mask(self, node: Node) -> Any:
        """Returns the mask of a node that is attention."""
        is_attention = node.target is aten.scaled_dot_product_attention.default
        return arguments_of(node).attn_mask if is_attention else None

    def takes_lowered(self, node: Node, dtypes: set[torch.dtype]) -> bool:
        """Returns whether all that a node computes with, constants aside, is of the lower precision."""
        packet = getattr(node.target, "overloadpacket", None)
        if dtypes & _INTEGERS and packet not in TAKING_INDICES:
            return False
        values = [
            source
            for source in node.all_input_nodes
            if source.op != "get_attr"
            and any(leaf.is_floating_point() for leaf in _tensors(source))
        ]
        return bool(values) and all(source in self.lowered for source in values)

    def is_excluded(self, node: Node) -> bool:
        modules = (path for path, _ in node.meta.get("nn_module_stack", {}).values())
        names = [node.name, *modules]
        matched = {pattern for pattern in self.excluded if any(map(pattern.fullmatch, names))}
        self.matched |= matched
        asks_dtype = any(
            isinstance(leaf, torch.dtype) for leaf in pytree.tree_leaves((node.args, node.kwargs))
        )
        return asks_dtype or node.target in self.excluded_ops or bool(matched)

    def holds_numbers(self, node: Node) -> bool:
        """Returns whether the lower precision holds the numbers that become elements or factors."""
        if node.target in BATCH_NORMALIZATIONS:
            return True
        target: Any = node.target
        arguments = vars(arguments_of(node))
        for argument in target._schema.arguments:
            if not re.search("number|float|Tensor", str(argument.type)):
                continue  # an integer there is a size or a place
            for value in pytree.tree_leaves(arguments[argument.name]):
                if value is None or (isinstance(value, Node) and _tensors(value)):
                    continue
                if not isinstance(value, (int, float)) or not self.is_held(abs(value)):
                    return False  # a size, or a number that the model computes, may be anything
        return True

    def is_held(self, magnitude: float) -> bool:
        """Returns whether the lower precision holds a magnitude, at full precision unless it is zero."""
        return magnitude in (0, float("inf")) or self.tiny <= magnitude <= self.largest

    def holds_normalization(self, node: Node) -> bool:
        """Returns whether it holds the factor and the summand of a normalization by known statistics."""
        op = vars(arguments_of(node))
        weight, bias = constant_of(op["weight"]), constant_of(op["bias"])
        mean, variance = constant_of(op["running_mean"]), constant_of(op["running_var"])
        if mean is None or variance is None:
            return False
        if (weight is None or bias is None) != (op["weight"] is op["bias"] is None):
            return False
        factor = (1 if weight is None else weight) / torch.sqrt(variance + op["eps"])
        summand = (0 if bias is None else bias) - mean * factor
        return self.fits(factor, is_element=False) and self.fits(summand, is_element=False)

    def constants(self, node: Node) -> Iterable[torch.Tensor]:
        constants = map(constant_of, node.all_input_nodes)
        return [constant for constant in constants if constant is not None]

    def fits(self, constant: torch.Tensor, is_element: bool) -> bool:
        """Returns whether it holds a constant; the small ones too, unless they vanish in sums."""
        if not constant.is_floating_point() or not constant.numel():
            return True
        magnitudes = constant.detach().abs()
        is_zero = magnitudes == 0 if is_element else magnitudes < self.tiny
        is_held = (magnitudes >= self.tiny) & (magnitudes <= self.largest)
        return bool((is_held | is_zero | ~magnitudes.isfinite()).all())

    def cast_inputs(self, node: Node, dtype: torch.dtype) -> None:
        """Casts the inputs of a node that are float32, or were."""
        kept = node.all_input_nodes[1:] if node.target in BATCH_NORMALIZATIONS else ()
        mask = self.clamped_mask(node)
        for source in node.all_input_nodes:
            is_now = self.lower if source in self.lowered else torch.float32
            if source in kept or is_now is dtype:
                continue
            if any(leaf.dtype is is_now for leaf in _tensors(source)):
                cast = self.cast(source, dtype, node, clamp=source is mask)
                node.replace_input_with(source, cast)

    def cast(self, source: Node, dtype: torch.dtype, before: Node, clamp: bool) -> Node:
        """Returns the cast of a node to a dtype, which all users share, clamped to finite numbers if asked."""
        key = (source, dtype, clamp)
        if key not in self.casts:
            graph = self.graph_module.graph
            with graph.inserting_before(before):
                value = source
                if clamp:  # float32's minimum, which masks hold, would be infinite in float16; infinity stays
                    value = graph.call_function(
                        aten.clamp.default, (source, -self.largest, self.largest)
                    )
                    hidden = graph.call_function(aten.eq.Scalar, (source, -math.inf))
                    value.meta, hidden.meta = {**source.meta}, {**source.meta}
                    hidden.meta["val"] = source.meta["val"].to(torch.bool)
                    value = graph.call_function(aten.masked_fill.Scalar, (value, hidden, -math.inf))
                    value.meta = {**source.meta}
                cast = graph.call_function(aten._to_copy.default, (value,), {"dtype": dtype})
            cast.meta = {**before.meta, "val": source.meta["val"].to(dtype)}
            self.casts[key] = cast
        return self.casts[key]

    def mark(self, node: Node) -> None:
        """Notes that a node's float32 results are of the lower precision."""

        def lowered(leaf: Any) -> Any:
            is_wide = isinstance(leaf, torch.Tensor) and leaf.dtype is torch.float32
            return leaf.to(self.lower) if is_wide else leaf

        before = node.meta["val"]
        node.meta["val"] = pytree.tree_map(lowered, before)
        if any(leaf.dtype is torch.float32 for leaf in _leaves(before)):
            self.lowered.add(node)


_INTEGERS = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
_OTHERS = frozenset({torch.float64, torch.complex64, torch.complex128})


def _tensors(node: Node) -> Iterable[torch.Tensor]:
    return _leaves(node.meta.get("val"))


def _leaves(value: Any) -> Iterable[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
