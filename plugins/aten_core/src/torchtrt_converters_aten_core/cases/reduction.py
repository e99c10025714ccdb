"""Cases of reductions."""

import math

import torch

from torchtrt_testing.cases import op_case
from torchtrt_testing.tensors import TensorSpec

I64, F16, BOOL = torch.int64, torch.float16, torch.bool
ints = TensorSpec("batch length 4", I64, -9, 9)
bools = TensorSpec("batch length", BOOL)
NAN, INF = math.nan, math.inf

CASES = [
    op_case("aten.sum.default", "batch length"),
    op_case("aten.sum.default", "", label="scalar"),
    op_case("aten.sum.default", bools, label="bool"),
    op_case("aten.sum.dim_IntList", "batch length 4", [0, -1]),
    op_case("aten.sum.dim_IntList", "batch length 4", [1], True, label="keep"),
    op_case("aten.sum.dim_IntList", ints, [1], label="int"),
    op_case("aten.sum.dim_IntList", ints, [1], dtype=torch.float32, label="int-as-float"),
    op_case("aten.sum.dim_IntList", "batch 0", [1], label="empty"),
    op_case("aten.sum.dim_IntList", "batch length", None, label="all"),
    op_case(
        "aten.sum.dim_IntList",
        TensorSpec(values=[[2**24 + 1, 2], [-(2**31) + 5, 2**30 + 3]], dtype=I64),
        [0],
        label="large-int",
    ),
    op_case(
        "aten.sum.default", TensorSpec("batch 300", I64, -(2**20), 2**20), label="many-large-int"
    ),
    op_case(
        "aten.amax.default",
        TensorSpec(values=[[2**24 + 1, 2**24], [-(2**24) - 1, -(2**24) - 2]], dtype=I64),
        [1],
        label="large-int",
    ),
    op_case(
        "aten.amin.default",
        TensorSpec(values=[[2**24 + 1, 2**24], [-(2**24) - 1, -(2**24) - 2]], dtype=I64),
        [1],
        True,
        label="large-int",
    ),
    op_case("aten.prod.default", "batch length"),
    op_case("aten.prod.dim_int", "batch length", 1),
    op_case("aten.prod.dim_int", TensorSpec("batch 7", I64, -9, 9), 1, label="whole"),
    op_case("aten.prod.dim_int", TensorSpec("3 batch", I64, -9, 9), 0, True, label="whole-keep"),
    op_case("aten.prod.default", TensorSpec("2 5", I64, -9, 9), label="whole-all"),
    op_case("aten.prod.default", TensorSpec("", I64, -9, 9), label="whole-scalar"),
    op_case("aten.prod.dim_int", TensorSpec("batch 7", BOOL), 1, label="bool"),
    op_case("aten.mean.default", "batch length"),
    op_case("aten.mean.dim", "batch length 4", [-1, 1], True),
    op_case("aten.mean.dim", ints, [1], dtype=torch.float32, label="int-as-float"),
    op_case("aten.mean.dim", TensorSpec("batch length", F16), [1], label="half", tolerance=2e-3),
    op_case("aten.amax.default", "batch length 4", [0, 1]),
    op_case("aten.amax.default", ints, [-1], True, label="int"),
    op_case("aten.amax.default", "batch length", label="all"),
    *[
        op_case(
            op,
            TensorSpec(values=[[1.0, math.nan], [2.0, -math.inf], [math.inf, 3.0]]),
            *args,
            label="nan",
        )
        for op, args in (
            ("aten.amax.default", ([1],)),
            ("aten.amin.default", ([1], True)),
            ("aten.max.default", ()),
            ("aten.min.default", ()),
            ("aten.linalg_vector_norm.default", (math.inf, [1])),
        )
    ],
    op_case("aten.amin.default", "batch length 4", [2]),
    op_case("aten.max.default", ints),
    op_case("aten.min.default", "batch length"),
    op_case("aten.max.default", bools, label="bool"),
    op_case("aten.any.default", bools),
    op_case("aten.any.dim", TensorSpec("batch length", I64, 0, 1), 1),
    op_case("aten.any.dims", "batch length 4", [0, 2], True),
    op_case(
        "aten.any.dims", TensorSpec(values=[[0.0, 2.0], [NAN, 0.0]]), [], label="of each element"
    ),
    op_case("aten.any.default", TensorSpec(values=[0.0, NAN]), label="nan"),
    op_case("aten.all.default", bools),
    op_case("aten.all.dim", TensorSpec("batch length", I64, 0, 1), 1, True),
    op_case("aten.all.dims", "batch length 4", [1]),
    *[
        case
        for name in ("var", "std", "var_mean", "std_mean")
        for case in (
            op_case(f"aten.{name}.correction", "batch 4", [1], correction=2),
            op_case(f"aten.{name}.dim", "batch 4", [-1], False, True),
            op_case(f"aten.{name}.default", "batch 4"),
        )
    ],
    op_case(
        "aten.var.correction",
        "batch length 4",
        [1, 2],
        correction=0,
        keepdim=True,
        label="population",
    ),
    op_case("aten.var.correction", "batch length 4", [0, 1], correction=0.5, label="dynamic-count"),
    *[
        op_case("aten.linalg_vector_norm.default", "batch length", order, [-1], label=str(order))
        for order in (2, 1, 0, INF, -INF, 3, 0.5)
    ],
    op_case(
        "aten.linalg_vector_norm.default",
        TensorSpec("batch 4", F16, 100, 300),
        2,
        [1],
        True,
        label="half-large",
        tolerance=2e-3,
    ),
    op_case("aten.norm.Scalar", "batch length"),
    op_case("aten.norm.ScalarOpt_dim", "batch length", 2, [1], True),
]
