"""Cases of elements chosen by index tensors."""

import torch
import torch.nn.functional as F

from torchtrt_testing.cases import decomposition_case, op_case
from torchtrt_testing.tensors import TensorSpec

I64, I32, BOOL = torch.int64, torch.int32, torch.bool
TABLE = torch.linspace(-1, 1, 15).reshape(5, 3)


def below(shape: str, size: int, dtype: torch.dtype = I64) -> TensorSpec:
    """Returns indices from 0 to below ``size``."""
    return TensorSpec(shape, dtype, 0, size - 1)


def around(shape: str, size: int) -> TensorSpec:
    """Returns indices that may count from the end."""
    return TensorSpec(shape, I64, -size, size - 1)


CASES = [
    op_case(
        "aten.embedding.default", below("batch length", 5), function=lambda x: F.embedding(x, TABLE)
    ),
    op_case("aten.embedding.default", "5 3", below("batch", 5, I32), label="dynamic-weight"),
    op_case("aten.index_select.default", "batch 5", 1, below("length", 5)),
    op_case("aten.index_select.default", "batch 5", 1, below("", 5), label="scalar-index"),
    op_case("aten.gather.default", "batch 5", 1, below("batch length", 5)),
    op_case(
        "aten.gather.default", TensorSpec("5 4", BOOL), 0, below("3 2", 5), label="smaller-bool"
    ),
    op_case("aten.index.Tensor", "batch 5", [None, around("length", 5)]),
    op_case("aten.index.Tensor", "length 5", [below("batch 2", 2)], label="dynamic-dim"),
    op_case(
        "aten.index.Tensor",
        "length 5",
        [TensorSpec(values=[-1, 0], dtype=I64)],
        label="dynamic-dim-negative",
    ),
    op_case(
        "aten.index.Tensor", "4 5 length", [around("batch", 4), around("batch", 5)], label="two"
    ),
    op_case(
        "aten.index.Tensor",
        "4 5 6",
        [around("batch 1", 4), around("length", 5)],
        label="two-broadcast",
    ),
    op_case(
        "aten.index.Tensor",
        "length 4 5",
        [None, around("batch", 4), around("batch", 5)],
        label="two-after",
    ),
    op_case(
        "aten.index.Tensor",
        "4 length 5",
        [around("batch", 4), None, around("batch", 5)],
        label="two-apart",
    ),
    op_case(
        "aten.index.Tensor",
        TensorSpec("batch 5", I64),
        function=lambda x: x[:, torch.tensor([0, -1, 2])],
        label="constant",
    ),
    op_case("aten._unsafe_index.Tensor", "batch 5", [None, around("length", 5)]),
    op_case("aten.index_put.default", "length 3", [TensorSpec(values=[0, -1], dtype=I64)], "2 3"),
    op_case(
        "aten.index_put.default",
        "length 3",
        [TensorSpec(values=[[0, 2]], dtype=I64)],
        "",
        label="scalar-value",
    ),
    op_case(
        "aten.index_put.default",
        "4 5 length",
        [around("batch", 4), around("batch", 5)],
        "batch length",
        label="two",
    ),
    op_case(
        "aten.index_put.default",
        "4 5",
        [None, TensorSpec(values=[0, -1], dtype=I64)],
        "4 2",
        label="after",
    ),
    op_case(
        "aten.index_put.default",
        "length 4 5",
        [None, TensorSpec(values=[[0], [3]], dtype=I64), TensorSpec(values=[1, -1], dtype=I64)],
        "2 2",
        label="two-after",
    ),
    op_case(
        "aten.index_put.default",
        "4 length 5",
        [TensorSpec(values=[0, 3], dtype=I64), None, TensorSpec(values=[1, -1], dtype=I64)],
        "2 length",
        label="two-apart",
    ),
    op_case("aten.index_put.default", "4 5", [TensorSpec(values=-1, dtype=I64)], "5", label="one"),
    op_case(
        "aten.index_put.default",
        "4 5",
        [TensorSpec(values=2, dtype=I64), TensorSpec(values=-1, dtype=I64)],
        "",
        label="one-element",
    ),
    op_case(
        "aten.index_put.default", "length 3", [below("batch", 3)], "batch 3", True, label="add"
    ),
    op_case(
        "aten.index_put.default",
        "4 5",
        [around("7", 4), around("7", 5)],
        "7",
        True,
        label="add-two",
    ),
    op_case(
        "aten.index_put.default",
        TensorSpec("batch 4", I64),
        [None, around("2 3", 4)],
        TensorSpec("2 3", I64),
        True,
        label="add-after",
    ),
    op_case(
        "aten.index_put.default",
        TensorSpec("5", BOOL),
        [around("3", 5)],
        TensorSpec("3", BOOL),
        True,
        label="or",
    ),
    decomposition_case(
        "aten.index_put.default",
        "batch length",
        [TensorSpec("batch length", BOOL)],
        "",
        label="mask",
    ),
    decomposition_case(
        "aten.index_put.default",
        "batch length",
        [TensorSpec("batch", BOOL)],
        "length",
        label="mask-rows",
    ),
    decomposition_case(
        "aten.index_put.default",
        "batch 4",
        [None, TensorSpec("4", BOOL)],
        "batch 1",
        label="mask-columns",
    ),
    decomposition_case(
        "aten.index_put.default",
        "batch length",
        [TensorSpec("batch length", BOOL)],
        "1",
        True,
        label="mask-add",
    ),
    decomposition_case(
        "aten.index_put.default",
        "3 4",
        [TensorSpec(values=[True, False, True], dtype=BOOL)],
        "2 4",
        label="mask-each",
    ),
    op_case(
        "aten._unsafe_index_put.default", "length 3", [TensorSpec(values=[0, 1], dtype=I64)], "3"
    ),
    op_case("aten.scatter.src", "batch 5", 1, below("batch 1", 5), "batch 1", label="one"),
    op_case(
        "aten.scatter.src",
        "4 5",
        1,
        TensorSpec(values=[[0, 3], [1, 2]], dtype=I64),
        "3 3",
        label="larger-source",
    ),
    op_case("aten.scatter.src", "", 0, below("", 1), "", label="scalar"),
    op_case("aten.scatter.value", "", 0, below("", 1), 7.0, label="scalar"),
    op_case("aten.scatter.value", "batch 5", 1, below("batch 2", 5), 7.0),
    op_case(
        "aten.scatter.value",
        TensorSpec("batch 5", BOOL),
        1,
        below("batch 2", 5),
        True,
        label="bool",
    ),
]
