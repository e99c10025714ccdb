"""Pooling: every type and padding mode, counts, blends, ranks, types, edge values."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.agreement.case import Case, Given, dynamic

TYPES = ("MAX", "AVERAGE", "MAX_AVERAGE_BLEND")
MODES = (
    *("EXPLICIT_ROUND_DOWN", "EXPLICIT_ROUND_UP", "SAME_UPPER", "SAME_LOWER"),
    *("CAFFE_ROUND_DOWN", "CAFFE_ROUND_UP"),
)
IMAGE = (np.arange(30, dtype=np.float32) % 7 - 3).reshape(1, 1, 5, 6)
VOLUME = (np.arange(48, dtype=np.float32) % 7 - 3).reshape(1, 1, 3, 4, 4)
NEGATIVE = -np.arange(1, 17, dtype=np.float32).reshape(1, 1, 4, 4)


def case(
    name: str,
    kind: str,
    x: Given,
    window: tuple[int, ...] = (2, 2),
    layer: str = "pooling_nd",
    types: tuple[str, ...] = (),
    **attributes: Any,
) -> Case:
    """A case of Pooling."""
    return Case(
        f"pooling/{kind}/{name}",
        {"x": x},
        lambda n: n.layer(layer, n["x"], f"PoolingType.{kind}", window, **attributes),
        types=types,
    )


def both(name: str, x: Given, window: tuple[int, ...] = (2, 2), **more: Any) -> tuple[Case, ...]:
    """A maximum and an average."""
    return tuple(case(name, kind, x, window, **more) for kind in TYPES[:2])


CASES = (
    *(case("default stride", kind, IMAGE) for kind in TYPES),
    *(case("stride", kind, IMAGE, stride_nd=(2, 2)) for kind in TYPES),
    *(
        case(
            f"{mode} {how}",
            kind,
            IMAGE,
            (3, 3),
            padding_mode=f"PaddingMode.{mode}",
            stride_nd=(2, 2),
            padding_nd=(pad, pad),
        )
        for kind in TYPES[:2]
        for mode in MODES
        for how, pad in (("unpadded", 0), ("padded", 1))
    ),
    *(
        case(
            f"counts padding {mode}",
            "AVERAGE",
            IMAGE,
            (3, 3),
            padding_mode=f"PaddingMode.{mode}",
            stride_nd=(2, 2),
            padding_nd=(1, 1),
            average_count_excludes_padding=False,
        )
        for mode in MODES
    ),
    *(
        case(f"{mode} stride 4", "MAX", IMAGE, padding_mode=f"PaddingMode.{mode}", stride_nd=(4, 4))
        for mode in MODES
    ),
    *both("asymmetric padding", IMAGE, (3, 3), pre_padding=(1, 0), post_padding=(0, 2)),
    *both("padding of negatives", NEGATIVE, padding_nd=(1, 1)),
    *both("padding as large as the window", NEGATIVE, padding_nd=(2, 2)),
    *both("negative padding", IMAGE, padding_nd=(-1, -1)),
    *both("window above the image", NEGATIVE, (5, 5)),
    *both("whole image", NEGATIVE, (4, 4)),
    *both("three dimensions", VOLUME, (2, 2, 2), stride_nd=(1, 2, 2)),
    *both("one dimension", NEGATIVE[0], (2,)),
    *both("rank 3", NEGATIVE[0]),
    *both("window of two, image of three dimensions", VOLUME),
    *both("window 0", IMAGE, (0, 2)),
    *both("stride 0", IMAGE, stride_nd=(0, 1)),
    *both("float16", IMAGE.astype("f2"), types=("HALF",)),
    *both("int32", IMAGE.astype("i4")),
    *both("nan and inf", np.array([[[[np.nan, 1, 2], [3, np.inf, -np.inf]]]], "f4")),
    *both("nothing but -inf", np.full((1, 1, 2, 2), -np.inf, np.float32)),
    *both("dynamic", dynamic(IMAGE, 0, 2, 3)),
    *both("dynamic channels", dynamic(IMAGE, 1)),
    *both("no batch", np.zeros((0, 1, 3, 3), "f4")),
    *both("without nd", IMAGE, layer="pooling", stride=(2, 2)),
    *(
        case(f"factor {f}", "MAX_AVERAGE_BLEND", IMAGE, blend_factor=f)
        for f in (0.0, 0.25, 1.0, 2.0)
    ),
    case("factor and padding", "MAX_AVERAGE_BLEND", IMAGE, blend_factor=0.5, padding_nd=(1, 1)),
)
