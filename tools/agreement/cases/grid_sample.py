"""GridSample: every interpolation, boundary and alignment; shapes and types."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.agreement.case import Case, Given, dynamic

IMAGE = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
POINTS = np.array([[[[-1, -1], [0.5, 0], [1.2, 1.2], [-2.5, 0.3], [0.34, -0.67]]]], np.float32)
EDGES = np.array([[[[np.nan, 0], [np.inf, 0], [100, 0]]]], np.float32)
MODES = ("NEAREST", "LINEAR", "CUBIC")
SAMPLES = ("STRICT_BOUNDS", "WRAP", "CLAMP", "FILL", "REFLECT")


def case(
    name: str, image: Given, grid: Given, types: tuple[str, ...] = (), **attributes: Any
) -> Case:
    """A case of an image and a grid."""
    return Case(
        f"grid_sample/{name}",
        {"image": image, "grid": grid},
        lambda n: n.layer("grid_sample", n["image"], n["grid"], **attributes),
        types=types,
    )


CASES = (
    *(
        case(
            f"{mode}/{sample} {'aligned' if align else 'unaligned'}",
            IMAGE,
            POINTS,
            interpolation_mode=f"InterpolationMode.{mode}",
            sample_mode=f"SampleMode.{sample}",
            align_corners=align,
        )
        for mode in MODES
        for sample in SAMPLES
        for align in (False, True)
        if sample in SAMPLES[2:] or not align
    ),
    *(
        case(f"{mode}/edges", IMAGE, EDGES, interpolation_mode=f"InterpolationMode.{mode}")
        for mode in MODES
    ),
    case("defaults", IMAGE, POINTS),
    case(
        "channels and batch",
        np.arange(36, dtype="f4").reshape(2, 2, 3, 3),
        np.concatenate([POINTS, -POINTS]),
    ),
    case("rank 3", IMAGE[0], POINTS[0]),
    case("rank 5", IMAGE[None], np.zeros((1, 1, 1, 2, 3), "f4")),
    case("grid of three coordinates", IMAGE, np.zeros((1, 1, 2, 3), "f4")),
    case("batch mismatch", IMAGE, np.concatenate([POINTS, POINTS])),
    case("float16", IMAGE.astype("f2"), POINTS.astype("f2"), ("HALF",)),
    case("mixed types", IMAGE, POINTS.astype("f2")),
    case("int32 image", IMAGE.astype("i4"), POINTS),
    case("dynamic", dynamic(IMAGE, 2, 3), dynamic(POINTS, 1, 2)),
    case("no points", IMAGE, np.zeros((1, 0, 2, 2), "f4")),
)
