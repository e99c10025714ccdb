"""Cases of ops that PyTorch's own decompositions compute from ops with converters."""

import torch

from ..harness import T, decomposed

I64 = torch.int64
CHANNELS = ["4"] * 2

CASES = [
    decomposed("aten._native_batch_norm_legit.no_stats", "3 4 s", *CHANNELS, True, 0.1, 1e-5),
    decomposed(
        "aten._native_batch_norm_legit.default",
        "b 4 s",
        *CHANNELS,
        T("4"),
        T("4", low=0.5),
        False,
        0.1,
        1e-5,
    ),
    decomposed(
        "aten.native_batch_norm.default",
        "b 4 s",
        *CHANNELS,
        T("4"),
        T("4", low=0.5),
        False,
        0.1,
        1e-5,
    ),
    decomposed("aten.glu.default", "b 6 s", 1),
    decomposed("aten._cdist_forward.default", "b 3 4", "b s 4", 2.0, None),
    decomposed("aten._pdist_forward.default", "5 4", 1.0),
    decomposed("aten.pdist.default", "5 4"),
    decomposed("aten.linalg_cross.default", "b 3", "b 3"),
    decomposed("aten.pixel_shuffle.default", "b 8 3 s", 2),
    decomposed("aten.pixel_unshuffle.default", "b 2 4 6", 2),
    decomposed("aten.channel_shuffle.default", "b 6 3 s", 3),
    decomposed("aten.im2col.default", "b 2 5 6", [2, 3], [1, 2], [1, 0], [2, 1]),
    decomposed("aten.col2im.default", "b 12 8", [5, 6], [2, 3], [1, 1], [0, 0], [1, 2], label="12"),
    decomposed("aten.col2im.default", "b 8 9", [4, 4], [2, 2], [1, 1], [0, 0], [1, 1]),
    decomposed("aten.affine_grid_generator.default", "2 2 3", [2, 1, 3, 4], True),
    decomposed("aten.affine_grid_generator.default", "1 3 4", [1, 1, 2, 3, 4], False, label="3d"),
    decomposed("aten._prelu_kernel.default", "b 4", "4"),
    decomposed("aten.sinc.default", T(values=[0.0, 0.5, 1.0, -2.3])),
    decomposed("aten.xlogy.Tensor", T(values=[0.0, 1.0, 0.0, 2.0]), T(values=[0.0, 2.0, 5.0, 0.0])),
    decomposed(
        "aten.special_xlog1py.default", T(values=[0.0, 1.0, 2.0]), T(values=[-1.0, 2.0, 1e-6])
    ),
    decomposed("aten.special_ndtr.default", "b s"),
    decomposed("aten.frac.default", "b s"),
    decomposed("aten.heaviside.default", "b s", T("s")),
]
