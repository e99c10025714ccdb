"""Cases of ops that PyTorch's own decompositions compute from ops with converters."""

import torch

from torchtrt_testing.cases import decomposition_case
from torchtrt_testing.tensors import TensorSpec

I64 = torch.int64
CHANNELS = ["4"] * 2

CASES = [
    decomposition_case(
        "aten._native_batch_norm_legit.no_stats", "3 4 length", *CHANNELS, True, 0.1, 1e-5
    ),
    decomposition_case(
        "aten._native_batch_norm_legit.default",
        "batch 4 length",
        *CHANNELS,
        TensorSpec("4"),
        TensorSpec("4", low=0.5),
        False,
        0.1,
        1e-5,
    ),
    decomposition_case(
        "aten.native_batch_norm.default",
        "batch 4 length",
        *CHANNELS,
        TensorSpec("4"),
        TensorSpec("4", low=0.5),
        False,
        0.1,
        1e-5,
    ),
    decomposition_case("aten.glu.default", "batch 6 length", 1),
    decomposition_case("aten._cdist_forward.default", "batch 3 4", "batch length 4", 2.0, None),
    decomposition_case(
        "aten._cdist_forward.default", "batch 3 1", "batch length 1", 2.0, None, label="narrow"
    ),
    decomposition_case("aten._pdist_forward.default", "5 4", 1.0),
    decomposition_case("aten._pdist_forward.default", "5 1", label="narrow"),
    decomposition_case("aten.pdist.default", "5 4"),
    decomposition_case("aten.linalg_cross.default", "batch 3", "batch 3"),
    decomposition_case("aten.pixel_shuffle.default", "batch 8 3 length", 2),
    decomposition_case("aten.pixel_unshuffle.default", "batch 2 4 6", 2),
    decomposition_case("aten.channel_shuffle.default", "batch 6 3 length", 3),
    decomposition_case("aten.im2col.default", "batch 2 5 6", [2, 3], [1, 2], [1, 0], [2, 1]),
    decomposition_case(
        "aten.col2im.default", "batch 12 8", [5, 6], [2, 3], [1, 1], [0, 0], [1, 2], label="12"
    ),
    decomposition_case("aten.col2im.default", "batch 8 9", [4, 4], [2, 2], [1, 1], [0, 0], [1, 1]),
    decomposition_case("aten.affine_grid_generator.default", "2 2 3", [2, 1, 3, 4], True),
    decomposition_case(
        "aten.affine_grid_generator.default", "1 3 4", [1, 1, 2, 3, 4], False, label="3d"
    ),
    decomposition_case("aten._prelu_kernel.default", "batch 4", "4"),
    decomposition_case("aten.sinc.default", TensorSpec(values=[0.0, 0.5, 1.0, -2.3])),
    decomposition_case(
        "aten.xlogy.Tensor",
        TensorSpec(values=[0.0, 1.0, 0.0, 2.0]),
        TensorSpec(values=[0.0, 2.0, 5.0, 0.0]),
    ),
    decomposition_case(
        "aten.special_xlog1py.default",
        TensorSpec(values=[0.0, 1.0, 2.0]),
        TensorSpec(values=[-1.0, 2.0, 1e-6]),
    ),
    decomposition_case("aten.special_ndtr.default", "batch length"),
    decomposition_case("aten.frac.default", "batch length"),
    decomposition_case("aten.heaviside.default", "batch length", TensorSpec("length")),
]
