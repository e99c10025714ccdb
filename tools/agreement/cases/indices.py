"""NonZero, one-hot, NMS and ReverseSequence: data-dependent shapes, depths, boxes, lengths."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tools.agreement.case import Case, Given, Network, dynamic

GRID = np.array([[1, 0, 2], [0, 3, 0]], np.float32)
BOXES = np.array([[[0, 0, 2, 2], [0, 0, 2, 1.8], [5, 5, 6, 6], [0, 0, 2, 2.2]]], np.float32)
SCORES = np.array([[[0.9], [0.8], [0.3], [0.95]]], np.float32)
ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)


def non_zero(name: str, x: Given) -> Case:
    """A case of NonZero."""
    return Case(f"indices/non-zero/{name}", {"x": x}, lambda n: n.layer("non_zero", n["x"]))


def one_hot(
    name: str,
    indices: Given,
    axis: int = -1,
    depth: int = 3,
    values: Any = (0.0, 1.0),
    dtype: Any = np.float32,
) -> Case:
    """A case of one-hot."""

    def build(n: Network) -> Any:
        on_off = n.constant(np.array(values), dtype)
        return n.layer("one_hot", n["indices"], on_off, n.scalar(depth), axis)

    return Case(f"indices/one-hot/{name}", {"indices": indices}, build)


def nms(
    name: str,
    boxes: Given,
    scores: Given,
    most: Any = 10,
    overlap: float | None = None,
    threshold: float | None = None,
    **attributes: Any,
) -> Case:
    """A case of NMS; the boxes are made positions of suppressed and kept ones."""

    def build(n: Network) -> Any:
        layer = n.layer("nms", n["boxes"], n["scores"], n.scalar(most), **attributes)
        for index, value in ((3, overlap), (4, threshold)):
            if value is not None:
                layer.set_input(index, n.scalar(value, np.float32))
        return layer

    return Case(f"indices/nms/{name}", {"boxes": boxes, "scores": scores}, build)


def reverse(
    name: str, x: Given, lengths: Any, batch: int | None = 0, sequence: int | None = 1
) -> Case:
    """A case of ReverseSequence."""
    axes = {"batch_axis": batch, "sequence_axis": sequence}
    attributes = {key: value for key, value in axes.items() if value is not None}
    return Case(
        f"indices/reverse/{name}",
        {"x": x, "lengths": np.array(lengths, np.int32)},
        lambda n: n.layer("reverse_sequence", n["x"], n["lengths"], **attributes),
    )


def selected(n: Network) -> Any:
    """The values that are not zero."""
    layer = n.layer("shuffle", n.out("non_zero", n["x"]), first_transpose=(1, 0))
    return n.layer("gather_v2", n["x"], layer.get_output(0), "GatherMode.ND")


def summed(n: Network) -> Any:
    """The sum of the values that are not zero."""
    return n.layer("reduce", selected(n).get_output(0), "ReduceOperation.SUM", 1, False)


def doubled(n: Network) -> Any:
    """The values that are not zero, twice, concatenated."""
    values = selected(n).get_output(0)
    return n.layer("concatenation", [values, values], axis=0)


def as_long(n: Network) -> Any:
    """A range as long as there are values that are not zero."""
    size = n.out("slice", n.shape(n.out("non_zero", n["x"])), (1,), (1,), (1,))
    layer = n.layer("fill", (1,), "FillOperation.LINSPACE")
    for index, value in enumerate((size, n.scalar(0.0, np.float32), n.constant([1.0]))):
        layer.set_input(index, value)
    return layer


def how_many(n: Network) -> Any:
    """The shape of the result of NonZero."""
    return n.layer("shape", n.out("non_zero", n["x"]))


RNN = {
    "RELU": ("INPUT",),
    "TANH": ("INPUT",),
    "LSTM": ("INPUT", "FORGET", "CELL", "OUTPUT"),
    "GRU": ("RESET", "UPDATE", "HIDDEN"),
}
SEQUENCES = np.array([[[0.5, -1], [1, 0], [-0.5, 2]], [[1, 1], [-1, 0.5], [2, 0]]], np.float32)


def recurrent(n: Network) -> Any:
    """A recurrent layer with all of its weights, its outputs only."""
    layer = n.layer("rnn_v2", n["x"], 1, 2, 2, "RNNOperation.TANH")
    gate = n.resolve("RNNGateType.INPUT")
    for is_input in (True, False):
        layer.set_weights_for_gate(0, gate, is_input, n.weights(np.eye(2)))
        layer.set_bias_for_gate(0, gate, is_input, n.weights(np.zeros(2)))
    return [layer.get_output(0)]


def stack(name: str, op: str, x: Given = SEQUENCES, layers: int = 1, **attributes: Any) -> Case:
    """A case of recurrent layers whose weights and biases all differ; tensors are inputs by attribute."""
    inputs = {"x": x, **{key: v for key, v in attributes.items() if isinstance(v, np.ndarray)}}
    modes = {key: value for key, value in attributes.items() if key not in inputs}

    def build(n: Network) -> Any:
        layer = n.layer("rnn_v2", n["x"], layers, 2, 3, f"RNNOperation.{op}", **modes)
        directions = 2 if "direction" in modes else 1
        for index, gate, is_input in itertools.product(
            range(layers * directions), RNN[op], (True, False)
        ):
            member = n.resolve(f"RNNGateType.{gate}")
            seed = 2 * (index * 7 + RNN[op].index(gate)) + is_input
            columns = 2 * directions if is_input and index >= directions else 2
            if not (is_input and index < directions and "input_mode" in modes):
                weights = np.cos(np.arange(2 * columns) + seed)
                layer.set_weights_for_gate(index, member, is_input, n.weights(weights))
            layer.set_bias_for_gate(index, member, is_input, n.weights(np.sin([seed, -seed]) / 2))
        for key in inputs.keys() - {"x"}:
            setattr(layer, key, n[key])
        return layer

    return Case(f"indices/rnn/{op} {name}", inputs, build, tolerance=1e-4)


STATE = np.array([[[0.25, -0.5]], [[1, 0]]], np.float32)
BOTH_WAYS = {"direction": "RNNDirection.BIDIRECTION"}


CASES = (
    *(
        non_zero(dtype, GRID.astype(dtype))
        for dtype in ("float32", "float16", "int32", "bool", "int8")
    ),
    non_zero("zeros", np.zeros((2, 3), np.float32)),
    non_zero("vector", GRID[0]),
    non_zero("scalar", np.array(1.0, np.float32)),
    non_zero("scalar zero", np.array(0.0, np.float32)),
    non_zero("rank 3", GRID[None]),
    non_zero("nothing", np.zeros((0, 3), np.float32)),
    non_zero("nan and -0", np.array([np.nan, -0.0, 1], np.float32)),
    non_zero("dynamic", dynamic(GRID)),
    *(
        Case(f"indices/non-zero then {build.__name__.replace('_', ' ')} {how}", {"x": x}, build)
        for build in (selected, summed, doubled, as_long, how_many)
        for how, x in (("static", GRID), ("dynamic", dynamic(GRID)))
    ),
    *(
        one_hot(f"axis {axis}", np.array([[0, 2]], np.int32), axis)
        for axis in (-4, -3, -2, -1, 0, 1, 2, 3)
    ),
    one_hot("outside", np.array([3, -1, -3, -4, 100], np.int32)),
    one_hot("scalar", np.array(1, np.int32)),
    one_hot("nothing", np.zeros((0,), np.int32)),
    one_hot("float indices", np.array([1.0], np.float32)),
    one_hot("depth 1", np.array([0, 1], np.int32), depth=1),
    one_hot("depth 0", np.array([0, 1], np.int32), depth=0),
    one_hot("negative depth", np.array([0, 1], np.int32), depth=-1),
    one_hot("other values", np.array([0, 1], np.int32), values=(-5.0, 7.0)),
    one_hot("int32 values", np.array([0, 1], np.int32), values=(0, 1), dtype=np.int32),
    one_hot("bool values", np.array([0, 1], np.int32), values=(False, True), dtype=bool),
    one_hot("float16 values", np.array([0, 1], np.int32), dtype=np.float16),
    one_hot("three values", np.array([0, 1], np.int32), values=(0.0, 1.0, 2.0)),
    one_hot("dynamic", dynamic(np.array([0, 2], np.int32))),
    nms("defaults", BOXES, SCORES),
    *(
        nms(f"overlap {overlap}", BOXES, SCORES, overlap=overlap)
        for overlap in (0.0, 0.5, 0.85, 1.0)
    ),
    *(
        nms(f"threshold {t}", BOXES, SCORES, overlap=0.95, threshold=t)
        for t in (0.3, 0.5, 2.0, -1.0)
    ),
    *(nms(f"at most {most}", BOXES, SCORES, most, 0.95) for most in (0, 1, 2)),
    nms(
        "centres", BOXES, SCORES, overlap=0.5, bounding_box_format="BoundingBoxFormat.CENTER_SIZES"
    ),
    nms("swapped corners", BOXES[..., [2, 3, 0, 1]].copy(), SCORES, overlap=0.5),
    nms("limit of 2 boxes", BOXES, SCORES, overlap=0.95, topk_box_limit=2),
    nms("two classes", BOXES, np.concatenate([SCORES, SCORES[:, ::-1]], -1), overlap=0.5),
    nms(
        "boxes per class",
        np.stack([BOXES, BOXES], 2),
        np.concatenate([SCORES, SCORES], -1),
        overlap=0.5,
    ),
    nms(
        "two batches",
        np.concatenate([BOXES, BOXES + 1]),
        np.concatenate([SCORES, SCORES[:, ::-1]]),
        overlap=0.5,
    ),
    nms("negative scores", BOXES, -SCORES, overlap=0.5),
    nms("dynamic", dynamic(BOXES, 1), dynamic(SCORES, 1), overlap=0.5),
    nms("boxes of rank 2", BOXES[0], SCORES[0]),
    nms("count mismatch", BOXES, SCORES[:, :3].copy()),
    nms("float16", BOXES.astype("f2"), SCORES.astype("f2"), overlap=0.5),
    reverse("rows", ROWS, [2, 3]),
    reverse("columns", ROWS, [1, 2, 1], 1, 0),
    reverse("default axes", ROWS, [1, 2, 1], None, None),
    reverse("length 1", ROWS, [1, 1]),
    reverse("length 0", ROWS, [0, 2]),
    reverse("length beyond", ROWS, [4, 3]),
    reverse("negative length", ROWS, [-1, 3]),
    reverse("wrong count", ROWS, [1, 2, 3]),
    reverse("same axes", ROWS, [2, 3], 0, 0),
    reverse("negative axes", ROWS, [2, 3], -2, -1),
    reverse("vector", ROWS[0], [2], 0, 0),
    reverse("rank 3", ROWS.reshape(2, 3, 1), [2, 3]),
    reverse("int32", ROWS.astype("i4"), [2, 3]),
    reverse("bool", ROWS > 1, [2, 3]),
    reverse("dynamic", dynamic(ROWS, 1), [2, 2]),
    *(
        Case(
            f"indices/rnn/{kind}",
            {"x": np.ones((1, 1, 2, 2), np.float32)},
            lambda n, kind=kind: n.layer("rnn_v2", n["x"], 1, 2, 2, f"RNNOperation.{kind}"),
        )
        for kind in RNN
    ),
    Case("indices/rnn/with all weights", {"x": np.ones((1, 1, 2, 2), np.float32)}, recurrent),
    *(stack("stack of two", op, layers=2) for op in RNN),
    *(stack("both ways", op, layers=2, **BOTH_WAYS) for op in RNN),
    *(stack("without a matrix", op, input_mode="RNNInputMode.SKIP") for op in RNN),
    *(
        stack("lengths", op, seq_lengths=np.array([1, 3], np.int32), **BOTH_WAYS)
        for op in ("TANH", "GRU")
    ),
    stack("from states", "LSTM", hidden_state=STATE, cell_state=-STATE),
    stack("dynamic", "TANH", dynamic(SEQUENCES, 0)),
    stack("wrong length", "TANH", SEQUENCES[:, 1:].copy()),
)
