"""Cases of fake quantization."""

from __future__ import annotations

import torch

from torchtrt_testing.cases import decomposition_case, op_case
from torchtrt_testing.tensors import TensorSpec

SCALE, SCALES = torch.tensor(0.05), torch.tensor([0.1, 0.02, 0.3])
NOT_NUMBERS = TensorSpec(values=[torch.nan, torch.inf, -torch.inf])
HALF = (torch.float32, torch.float16)
TENSOR, CHANNEL = (
    f"aten.fake_quantize_per_{kind}_affine.default" for kind in ("tensor", "channel")
)


def integers(*values: int) -> torch.Tensor:
    """Returns zero points."""
    return torch.tensor(values, dtype=torch.int32)


CASES = (
    op_case(TENSOR, TensorSpec("batch length", low=-9, high=9), 0.05, 0, -128, 127, dtypes=HALF),
    op_case(TENSOR, NOT_NUMBERS, 0.05, 0, -128, 127, label="not-numbers", dtypes=HALF),
    decomposition_case(TENSOR, "0 3", 0.05, 0, -128, 127, label="empty", dtypes=HALF),
    decomposition_case(TENSOR, "", 0.05, 0, -128, 127, label="no-dims", dtypes=HALF),
    decomposition_case(TENSOR, NOT_NUMBERS, 0.05, 3, 0, 255, label="zero-point", dtypes=HALF),
    decomposition_case(TENSOR, "0 3", 0.05, 3, 0, 255, label="empty-zero-point", dtypes=HALF),
    decomposition_case(
        TENSOR,
        TensorSpec("4 3", low=-9, high=9),
        0.003,
        3,
        -32768,
        32767,
        label="steps",
        dtypes=HALF,
    ),
    op_case(
        CHANNEL,
        TensorSpec("batch 3", low=-9, high=9),
        SCALES,
        integers(0, 0, 0),
        1,
        -128,
        127,
        dtypes=HALF,
    ),
    decomposition_case(
        CHANNEL,
        TensorSpec("batch 3", low=-9, high=9),
        SCALES,
        torch.tensor([0.3, 1.5, 2.7]),
        1,
        0,
        127,
        label="fractions",
        dtypes=HALF,
    ),
    *(
        decomposition_case(
            "aten.fake_quantize_per_tensor_affine.tensor_qparams",
            *args,
            label=label,
            dtypes=HALF,
        )
        for label, args in {
            "": (TensorSpec("4 3", low=-9, high=9), SCALE, integers(2)[0], 0, 255),
            "vector": ("", SCALE.reshape(1), integers(1), 0, 255),
            "run-time": (
                "batch length",
                TensorSpec(values=0.05, dtype=torch.float32),
                TensorSpec(values=3, dtype=torch.int32),
                -128,
                127,
            ),
        }.items()
    ),
)
