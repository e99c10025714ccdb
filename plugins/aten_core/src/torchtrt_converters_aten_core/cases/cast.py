"""Cases of changes of dtype."""

import math

import torch

from torchtrt_testing.cases import op_case
from torchtrt_testing.tensors import TensorSpec

DTYPES = {
    "float": torch.float32,
    "half": torch.float16,
    "int64": torch.int64,
    "int32": torch.int32,
    "bool": torch.bool,
}

CASES = [
    *[
        op_case("aten.to.dtype", TensorSpec("batch 4", source), target, label=f"{first}-{second}")
        for first, source in DTYPES.items()
        for second, target in DTYPES.items()
        if source is not target
    ],
    op_case(
        "aten.to.dtype",
        TensorSpec(values=[0.0, -0.0, 0.3, math.nan, math.inf]),
        torch.bool,
        label="special-bool",
    ),
    op_case(
        "aten.to.dtype",
        TensorSpec("batch 4", torch.uint8, 0, 255),
        torch.float32,
        label="uint8-float",
    ),
    op_case(
        "aten.to.dtype",
        TensorSpec("batch 4", torch.uint8, 0, 255),
        torch.int64,
        label="uint8-int64",
    ),
    op_case(
        "aten.to.dtype", TensorSpec("batch 4", low=0, high=255), torch.uint8, label="float-uint8"
    ),
    op_case(
        "aten.to.dtype", TensorSpec("batch 4", low=-120, high=120), torch.int8, label="float-int8"
    ),
    *[
        op_case(
            "aten.to.dtype",
            TensorSpec(
                values=[0, 1, -1, 127, 128, 255, 256, 300, -129, -32768, 70000], dtype=source
            ),
            target,
            label=f"wrap-{first}-{target}",
        )
        for first, source in DTYPES.items()
        if first.startswith("int")
        for target in (torch.uint8, torch.int8)
    ],
    op_case(
        "aten.to.dtype",
        TensorSpec("batch 4", torch.uint8, 0, 255),
        torch.int8,
        label="uint8-int8",
    ),
    op_case("aten._to_copy.default", "batch 4", dtype=torch.int64),
    op_case("aten.to.other", "batch 4", TensorSpec("batch", torch.int64)),
    op_case("aten.type_as.default", "batch 4", TensorSpec("batch", torch.int64)),
    op_case("aten.to.dtype_layout", "batch 4", dtype=torch.int32, layout=torch.strided),
    op_case("aten.to.device", "batch 4", torch.device("cpu"), torch.int32),
    op_case("prims.convert_element_type.default", "batch 4", torch.int32),
]
