"""Peephole rewrites of a built graph, each a pattern that PyTorch has a faster operation for.

A rewrite applies only where the intermediate tensors have no other reader, are no outputs, and no weight that can be
refitted would be changed. Values agree with the unfused graph to about 1e-6 in float32.
"""

from __future__ import annotations

import math

import torch

from torchtrt_reference.graphs.graph import ABSENT, Graph, Node
from torchtrt_reference.operations.composites.fused import MASKING
from torchtrt_reference.semantics.tensor_facts import TensorFacts


def fuse(graph: Graph, facts: dict[int, TensorFacts]) -> None:
    """Rewrites a graph in place.

    Args:
        graph: The graph.
        facts: What is known about its slots for every shape it will see; slots made here are added.
    """
    for rewrite in _REWRITES:
        editor = _Editor(graph, facts)
        for node in list(graph.nodes):
            rewrite(editor, node)
        editor.commit()
    graph.drop_unused()


class _Editor:
    """A graph under rewriting: who makes and who reads each slot."""

    def __init__(self, graph: Graph, facts: dict[int, TensorFacts]) -> None:
        self.graph = graph
        self.facts = facts
        self.producers = {slot: node for node in graph.nodes for slot in node.outputs}
        self.consumers = graph.consumers()
        self.refittable = graph.refittable()
        self.outputs = {port.slot for port in graph.ends()}
        self._dropped: set[int] = set()
        self._replaced: dict[int, tuple[Node, ...]] = {}

    def only_producer(self, slot: int, operation: str) -> Node | None:
        """The node that makes a slot for one reader, if it is such an operation and has no output type set."""
        node = self.producers.get(slot)
        if node is None or node.operation != operation or id(node) in self._dropped:
            return None
        is_free = len(self.consumers.get(slot, [])) == 1 and slot not in self.outputs
        return node if is_free and not any(node.output_types) else None

    def constant(self, slot: int) -> torch.Tensor | None:
        """The constant in a slot, unless it can be refitted."""
        if slot == ABSENT or slot in self.refittable:
            return None
        return self.graph.constants.get(slot)

    def scalar(self, slot: int) -> float | None:
        """The value of a constant with a single element."""
        constant = self.constant(slot)
        return float(constant) if constant is not None and constant.numel() == 1 else None

    def add_constant(self, value: torch.Tensor, like: int) -> int:
        """Adds a constant of the same type as another; returns its slot."""
        slot = self.graph.new_slot()
        self.graph.constants[slot] = value  # a view, as a transpose is, until the plan is written
        self.graph.constant_types[slot] = self.graph.constant_types[like]
        self.facts[slot] = TensorFacts(self.graph.constant_types[like], tuple(value.shape))
        return slot

    def replace(self, last: Node, others: list[Node], *nodes: Node) -> None:
        """Puts nodes where ``last`` was, and drops the others."""
        self._replaced[id(last)] = nodes
        self._dropped.update(id(other) for other in [last, *others])
        self.producers.update((slot, node) for node in nodes for slot in node.outputs)

    def commit(self) -> None:
        """Applies the replacements."""
        self.graph.nodes = [
            kept
            for node in self.graph.nodes
            for kept in self._replaced.get(id(node), () if id(node) in self._dropped else (node,))
        ]


def _name(*nodes: Node) -> str:
    return " + ".join(dict.fromkeys(node.name for node in nodes))


def _fold_channel_scale(editor: _Editor, node: Node) -> None:
    """A convolution, then a scale per channel: folded into kernel and bias."""
    if node.operation != "scale" or node.attributes["mode"] != "CHANNEL" or any(node.output_types):
        return
    source, shift_slot, scale_slot, power = _padded(node.inputs, 4)
    convolution = editor.only_producer(source, "convolution")
    if convolution is None or power != ABSENT or not _scales_channels(node, convolution):
        return
    data, kernel_slot, bias_slot = _padded(convolution.inputs, 3)
    kernel = editor.constant(kernel_slot)
    slots = (shift_slot, scale_slot, bias_slot)
    parts = [editor.constant(slot) for slot in slots]
    is_constant = all(
        slot == ABSENT or part is not None for slot, part in zip(slots, parts, strict=True)
    )
    if kernel is None or kernel.dtype is not torch.float32 or not is_constant:
        return
    shift, scale, bias = parts
    total = torch.zeros(kernel.shape[0]) if bias is None else bias
    if scale is not None:
        kernel = kernel * scale.view(-1, *[1] * (kernel.dim() - 1))
        total = total * scale
    if shift is not None:
        total = total + shift
    fused = Node(
        "convolution",
        _name(convolution, node),
        (
            data,
            editor.add_constant(kernel, kernel_slot),
            editor.add_constant(total, kernel_slot),
        ),
        node.outputs,
        convolution.attributes,
        (),
        node.metadata,
    )
    editor.replace(node, [convolution], fused)


def _padded(slots: tuple[int, ...], count: int) -> tuple[int, ...]:
    return slots + (ABSENT,) * (count - len(slots))


def _scales_channels(scale: Node, convolution: Node) -> bool:
    """Whether the channels of a scale are those of a convolution: axis 1, or unset behind two dimensions of space."""
    axis = scale.attributes["channel_axis"]
    return axis == 1 or (axis is None and len(convolution.attributes["kernel_size_nd"]) == 2)


def _linear(editor: _Editor, node: Node) -> None:
    """A matrix product with one constant matrix."""
    if (
        node.operation != "matrix_multiply"
        or node.attributes["op0"] != "NONE"
        or any(node.output_types)
    ):
        return
    slot = node.inputs[1]
    op1 = node.attributes["op1"]
    weight = editor.graph.constants.get(slot)
    if weight is None or op1 == "VECTOR" or math.prod(weight.shape[:-2]) != 1:
        return
    if editor.facts[node.inputs[0]].dtype != editor.graph.constant_types[slot]:
        return
    if op1 == "NONE" or weight.dim() != 2:
        if slot in editor.refittable:
            return
        matrix = weight.reshape(weight.shape[-2:])
        slot = editor.add_constant(matrix if op1 == "TRANSPOSE" else matrix.mT, slot)
    fused = Node("linear", node.name, (node.inputs[0], slot), node.outputs, {}, (), node.metadata)
    editor.replace(node, [], fused)


def _linear_bias(editor: _Editor, node: Node) -> None:
    """A linear layer, then a constant row added."""
    if node.operation != "elementwise" or node.attributes["op"] != "SUM" or any(node.output_types):
        return
    for position in (0, 1):
        linear = editor.only_producer(node.inputs[position], "linear")
        slot = node.inputs[1 - position]
        bias = editor.constant(slot)
        if linear is None or bias is None or len(linear.inputs) != 2:
            continue
        weight_slot = linear.inputs[1]
        rows = editor.graph.constants[weight_slot].shape[0]
        same_type = editor.graph.constant_types[slot] == editor.graph.constant_types[weight_slot]
        if same_type and bias.numel() == rows == (bias.shape[-1] if bias.dim() else 1):
            operands = (*linear.inputs, editor.add_constant(bias.reshape(rows), slot))
            fused = Node(
                "linear", _name(linear, node), operands, node.outputs, {}, (), node.metadata
            )
            editor.replace(node, [linear], fused)
            return


def _scaled(editor: _Editor, slot: int) -> tuple[int, float, list[Node]]:
    """A tensor without its constant factor, the factor, and the node that applied it."""
    node = editor.only_producer(slot, "elementwise")
    if node is not None and node.attributes["op"] in ("PROD", "DIV"):
        for position in (0, 1) if node.attributes["op"] == "PROD" else (1,):
            factor = editor.scalar(node.inputs[position])
            if factor:
                return (
                    node.inputs[1 - position],
                    factor if node.attributes["op"] == "PROD" else 1 / factor,
                    [node],
                )
    return slot, 1.0, []


def _selection(editor: _Editor, slot: int) -> tuple[Node, int] | None:
    """``where(mask, scores, L)`` with a huge negative L, and which of the two branches is L.

    It is ``scores + where(mask, 0, L)``. The sum is L to the last bit for every score below ``ulp(L) / 2``. That is
    more than 1e22 here. A row that is masked entirely therefore stays uniform. Float16 has no such L: at its minimum
    the spacing is 32.
    """
    node = editor.only_producer(slot, "select")
    if node is None or any(node.output_types):
        return None
    for position in (1, 2):
        number = editor.scalar(node.inputs[position])
        fact = editor.facts[node.inputs[3 - position]]
        if (
            number is not None
            and -math.inf < number <= MASKING
            and fact.dtype in ("FLOAT", "BF16")
            and fact.dtype == editor.facts[node.inputs[position]].dtype
        ):
            return node, position
    return None


def _additive(editor: _Editor, selection: tuple[Node, int]) -> Node:
    """``where(mask, 0, L)`` for what ``_selection`` returns."""
    node, position = selection
    condition, minimum = node.inputs[0], node.inputs[position]
    zero = editor.add_constant(torch.zeros_like(editor.graph.constants[minimum]), minimum)
    chosen = (minimum, zero) if position == 1 else (zero, minimum)
    bias = editor.graph.new_slot()
    editor.facts[bias] = TensorFacts(editor.facts[minimum].dtype, editor.facts[condition].shape)
    return Node("select", node.name, (condition, *chosen), (bias,), {}, (), node.metadata)


def _attention(editor: _Editor, node: Node) -> None:
    """Product, softmax, product; with a scale, and with a mask added that is nowhere -inf.

    A row masked entirely by -inf stays apart: TensorRT's softmax makes it NaN, PyTorch's attention makes it 0.
    """
    if (
        node.operation != "matrix_multiply"
        or node.attributes["op0"] != "NONE"
        or node.attributes["op1"] != "NONE"
    ):
        return
    softmax = editor.only_producer(node.inputs[0], "softmax")
    if softmax is None or any(node.output_types):
        return
    rank = len(editor.facts[softmax.inputs[0]].shape)
    if rank < 3 or softmax.attributes["axes"] != 1 << rank - 1:
        return
    selection = _selection(editor, softmax.inputs[0])
    if selection is None:
        total, bias, added = _biased(editor, softmax.inputs[0])
    else:
        total, bias, added = selection[0].inputs[3 - selection[1]], (), [selection[0]]
    scores_slot, scale, dropped = _scaled(editor, total)
    scores = editor.only_producer(scores_slot, "matrix_multiply")
    if scores is None or scores.attributes["op0"] != "NONE" or scores.attributes["op1"] == "VECTOR":
        return
    query, query_scale, query_nodes = _scaled(editor, scores.inputs[0])
    key, key_scale, key_nodes = _scaled(editor, scores.inputs[1])
    value = node.inputs[1]
    dtypes = {editor.facts[slot].dtype for slot in (query, key, value, *bias)}
    batches = {editor.facts[slot].shape[:-2] for slot in (query, key, value)}
    if len(dtypes) != 1 or len(batches) != 1:
        return
    masks = [] if selection is None else [_additive(editor, selection)]
    bias = (*bias, *(mask.outputs[0] for mask in masks))
    attributes = {
        "scale": scale * query_scale * key_scale,
        "transposed_key": scores.attributes["op1"] == "TRANSPOSE",
        "selects": bool(masks),
    }
    nodes = [*query_nodes, *key_nodes, scores, *dropped, *added, softmax]
    fused = Node(
        "scaled_dot_product",
        _name(*nodes, node),
        (query, key, value, *bias),
        node.outputs,
        attributes,
        (),
        node.metadata,
    )
    editor.replace(node, nodes, *masks, fused)


def _biased(editor: _Editor, slot: int) -> tuple[int, tuple[int, ...], list[Node]]:
    """A tensor without what is added to it, the addend if it is nowhere -inf, and the node that added it."""
    node = editor.only_producer(slot, "elementwise")
    if node is not None and node.attributes["op"] == "SUM":
        for position in (0, 1):
            if _is_bounded_below(editor, node.inputs[position]):
                return node.inputs[1 - position], (node.inputs[position],), [node]
    return slot, (), []


def _is_bounded_below(editor: _Editor, slot: int) -> bool:
    """Whether a tensor holds no -inf for sure: a constant, a maximum with a number, or one of two such tensors."""
    constant = editor.constant(slot)
    if constant is not None:
        return not bool(torch.isneginf(constant).any())
    node = editor.producers.get(slot)
    if node is None or any(node.output_types):
        return False
    if node.operation == "elementwise" and node.attributes["op"] == "MAX":
        return any(
            number is not None and math.isfinite(number)
            for number in map(editor.scalar, node.inputs)
        )
    return node.operation == "select" and all(
        _is_bounded_below(editor, branch) for branch in node.inputs[1:]
    )


def _gelu(editor: _Editor, node: Node) -> None:
    """``0.5 * x * (1 + curve(x))`` in any order of its factors, by erf or by tanh."""
    if node.operation != "elementwise" or node.attributes["op"] != "PROD" or any(node.output_types):
        return
    constant, rest, nodes = _factors(editor, node)
    if len(rest) != 2 or not math.isclose(constant, 0.5, rel_tol=1e-6):
        return
    for x, other in (rest, rest[::-1]):
        one_plus = editor.only_producer(other, "elementwise")
        if (
            one_plus is None
            or one_plus.attributes["op"] != "SUM"
            or 1.0 not in map(editor.scalar, one_plus.inputs)
        ):
            continue
        curve = next((slot for slot in one_plus.inputs if editor.scalar(slot) is None), ABSENT)
        for kind, matches in (("GELU_ERF", _erf_curve), ("GELU_TANH", _tanh_curve)):
            inner = matches(editor, curve, x)
            if inner is not None:
                inner = [*inner, one_plus, *nodes]
                fused = Node(
                    "activation",
                    _name(*inner, node),
                    (x,),
                    node.outputs,
                    {"type": kind, "alpha": None, "beta": None},
                    (),
                    node.metadata,
                )
                editor.replace(node, inner, fused)
                return


def _erf_curve(editor: _Editor, slot: int, x: int) -> list[Node] | None:
    """The nodes of ``erf(x / sqrt(2))``, None if that is not what a slot holds."""
    erf = editor.only_producer(slot, "unary")
    if erf is None or erf.attributes["op"] != "ERF":
        return None
    source, scale, scaled = _scaled(editor, erf.inputs[0])
    is_it = source == x and math.isclose(scale, math.sqrt(0.5), rel_tol=1e-6)
    return [*scaled, erf] if is_it else None


def _tanh_curve(editor: _Editor, slot: int, x: int) -> list[Node] | None:
    """The nodes of ``tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))``, None if that is not what a slot holds."""
    tanh = editor.only_producer(slot, "activation")
    if tanh is None or tanh.attributes["type"] != "TANH":
        return None
    bent, scale, scaled = _scaled(editor, tanh.inputs[0])
    total = editor.only_producer(bent, "elementwise")
    if total is None or total.attributes["op"] != "SUM" or x not in total.inputs:
        return None
    product = editor.only_producer(total.inputs[total.inputs[0] == x], "elementwise")
    if product is None or product.attributes["op"] != "PROD":
        return None
    constant, rest, nodes = _factors(editor, product)
    is_it = (
        rest == [x, x, x]
        and math.isclose(constant, 0.044715, rel_tol=1e-6)
        and math.isclose(scale, math.sqrt(2 / math.pi), rel_tol=1e-6)
    )
    return [*nodes, product, total, *scaled, tanh] if is_it else None


def _factors(editor: _Editor, node: Node) -> tuple[float, list[int], list[Node]]:
    """The constant and the other factors of a product of products, and the inner nodes."""
    constant, factors, nodes = 1.0, list[int](), list[Node]()
    for slot in node.inputs:
        inner = editor.only_producer(slot, "elementwise")
        number = editor.scalar(slot)
        if number is not None:
            constant *= number
        elif inner is not None and _is_cube(editor, inner):
            factors += [inner.inputs[0]] * 3
            nodes.append(inner)
        elif inner is not None and inner.attributes["op"] == "PROD":
            inner_constant, inner_factors, inner_nodes = _factors(editor, inner)
            constant *= inner_constant
            factors += inner_factors
            nodes += [*inner_nodes, inner]
        else:
            factors.append(slot)
    return constant, factors, nodes


def _is_cube(editor: _Editor, node: Node) -> bool:
    return node.attributes["op"] == "POW" and editor.scalar(node.inputs[1]) == 3.0


_REWRITES = (
    _fold_channel_scale,
    _linear,
    _linear_bias,
    _attention,
    _gelu,
)
