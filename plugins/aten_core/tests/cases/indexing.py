"""Cases of elements chosen by index tensors."""

import torch
import torch.nn.functional as F

from ..harness import T, case, decomposed

I64, I32, BOOL = torch.int64, torch.int32, torch.bool
TABLE = torch.linspace(-1, 1, 15).reshape(5, 3)


def below(shape, size, dtype=I64):
    """Returns indices from 0 to below ``size``."""
    return T(shape, dtype, 0, size - 1)


def around(shape, size):
    """Returns indices that may count from the end."""
    return T(shape, I64, -size, size - 1)


CASES = [
    case("aten.embedding.default", below("b s", 5), function=lambda x: F.embedding(x, TABLE)),
    case("aten.embedding.default", "5 3", below("b", 5, I32), label="dynamic-weight"),
    case("aten.index_select.default", "b 5", 1, below("s", 5)),
    case("aten.index_select.default", "b 5", 1, below("", 5), label="scalar-index"),
    case("aten.gather.default", "b 5", 1, below("b s", 5)),
    case("aten.gather.default", T("5 4", BOOL), 0, below("3 2", 5), label="smaller-bool"),
    case("aten.index.Tensor", "b 5", [None, around("s", 5)]),
    case("aten.index.Tensor", "s 5", [below("b 2", 2)], label="dynamic-dim"),
    case("aten.index.Tensor", "s 5", [T(values=[-1, 0], dtype=I64)], label="dynamic-dim-negative"),
    case("aten.index.Tensor", "4 5 s", [around("b", 4), around("b", 5)], label="two"),
    case("aten.index.Tensor", "4 5 6", [around("b 1", 4), around("s", 5)], label="two-broadcast"),
    case("aten.index.Tensor", "s 4 5", [None, around("b", 4), around("b", 5)], label="two-after"),
    case("aten.index.Tensor", "4 s 5", [around("b", 4), None, around("b", 5)], label="two-apart"),
    case(
        "aten.index.Tensor",
        T("b 5", I64),
        function=lambda x: x[:, torch.tensor([0, -1, 2])],
        label="constant",
    ),
    case("aten._unsafe_index.Tensor", "b 5", [None, around("s", 5)]),
    case("aten.index_put.default", "s 3", [T(values=[0, -1], dtype=I64)], "2 3"),
    case(
        "aten.index_put.default", "s 3", [T(values=[[0, 2]], dtype=I64)], "", label="scalar-value"
    ),
    case("aten.index_put.default", "4 5 s", [around("b", 4), around("b", 5)], "b s", label="two"),
    case(
        "aten.index_put.default", "4 5", [None, T(values=[0, -1], dtype=I64)], "4 2", label="after"
    ),
    case(
        "aten.index_put.default",
        "s 4 5",
        [None, T(values=[[0], [3]], dtype=I64), T(values=[1, -1], dtype=I64)],
        "2 2",
        label="two-after",
    ),
    case(
        "aten.index_put.default",
        "4 s 5",
        [T(values=[0, 3], dtype=I64), None, T(values=[1, -1], dtype=I64)],
        "2 s",
        label="two-apart",
    ),
    case("aten.index_put.default", "4 5", [T(values=-1, dtype=I64)], "5", label="one"),
    case(
        "aten.index_put.default",
        "4 5",
        [T(values=2, dtype=I64), T(values=-1, dtype=I64)],
        "",
        label="one-element",
    ),
    case("aten.index_put.default", "s 3", [below("b", 3)], "b 3", True, label="add"),
    case(
        "aten.index_put.default",
        "4 5",
        [around("7", 4), around("7", 5)],
        "7",
        True,
        label="add-two",
    ),
    case(
        "aten.index_put.default",
        T("b 4", I64),
        [None, around("2 3", 4)],
        T("2 3", I64),
        True,
        label="add-after",
    ),
    case("aten.index_put.default", T("5", BOOL), [around("3", 5)], T("3", BOOL), True, label="or"),
    decomposed("aten.index_put.default", "b s", [T("b s", BOOL)], "", label="mask"),
    decomposed("aten.index_put.default", "b s", [T("b", BOOL)], "s", label="mask-rows"),
    decomposed("aten.index_put.default", "b 4", [None, T("4", BOOL)], "b 1", label="mask-columns"),
    decomposed("aten.index_put.default", "b s", [T("b s", BOOL)], "1", True, label="mask-add"),
    decomposed(
        "aten.index_put.default",
        "3 4",
        [T(values=[True, False, True], dtype=BOOL)],
        "2 4",
        label="mask-each",
    ),
    case("aten._unsafe_index_put.default", "s 3", [T(values=[0, 1], dtype=I64)], "3"),
    case("aten.scatter.src", "b 5", 1, below("b 1", 5), "b 1", label="one"),
    case(
        "aten.scatter.src",
        "4 5",
        1,
        T(values=[[0, 3], [1, 2]], dtype=I64),
        "3 3",
        label="larger-source",
    ),
    case("aten.scatter.src", "", 0, below("", 1), "", label="scalar"),
    case("aten.scatter.value", "", 0, below("", 1), 7.0, label="scalar"),
    case("aten.scatter.value", "b 5", 1, below("b 2", 5), 7.0),
    case("aten.scatter.value", T("b 5", BOOL), 1, below("b 2", 5), True, label="bool"),
]
