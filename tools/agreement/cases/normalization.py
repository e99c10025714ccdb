"""Normalization, LRN and Scale: axes, groups, shapes of scale and bias, modes, types."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.agreement.case import Case, Given, Network, dynamic

GRID = np.arange(8, dtype=np.float32).reshape(2, 4)
IMAGE = (np.arange(32, dtype=np.float32) % 11).reshape(2, 4, 2, 2)


def ramp(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    """1, 1.5, 2, ... in a shape."""
    return (1 + np.arange(int(np.prod(shape))) / 2).astype(dtype).reshape(shape)


def normalize(
    name: str,
    x: Given,
    shape: tuple[int, ...],
    axes: int,
    types: tuple[str, ...] = (),
    bias: Any = None,
    **attributes: Any,
) -> Case:
    """A case of Normalization."""
    dtype = (x if isinstance(x, np.ndarray) else x.value).dtype

    def build(n: Network) -> Any:
        scale = n.constant(ramp(shape, dtype), dtype)
        shift = n.constant(ramp(shape if bias is None else bias, dtype), dtype)
        return n.layer("normalization", n["x"], scale, shift, axes, **attributes)

    return Case(
        f"normalization/{name}", {"x": x}, build, types=types, tolerance=2e-3 if types else 1e-4
    )


def lrn(
    name: str, x: Given, window: int, alpha: float = 1.0, beta: float = 0.75, k: float = 1.0
) -> Case:
    """A case of LRN."""
    return Case(
        f"normalization/lrn/{name}",
        {"x": x},
        lambda n: n.layer("lrn", n["x"], window, alpha, beta, k),
        tolerance=1e-4,
    )


def scale(
    name: str,
    x: Given,
    mode: str,
    count: int,
    channel_axis: int | None = None,
    parts: str = "shift scale power",
) -> Case:
    """A case of Scale, with ``count`` weights for each of its parts."""

    def build(n: Network) -> Any:
        weights = [
            n.weights(ramp((count,))) if part in parts else n.trt.Weights()
            for part in ("shift", "scale", "power")
        ]
        arguments = [n["x"], f"ScaleMode.{mode}", *weights]
        if channel_axis is None:
            return n.layer("scale", *arguments)
        return n.layer("scale_nd", *arguments, channel_axis)

    return Case(f"normalization/scale/{name}", {"x": x}, build, tolerance=1e-4)


CASES = (
    normalize("layer", GRID, (1, 4), 2),
    normalize("layer over two", IMAGE, (1, 1, 2, 2), 0b1100),
    normalize("layer over three", IMAGE, (1, 4, 2, 2), 0b1110),
    normalize("layer, scale of full shape", GRID, (2, 4), 2),
    normalize("layer, scalar scale", GRID, (1, 1), 2),
    normalize("layer over the first axis", GRID, (1, 4), 1),
    normalize("layer of rank 3", IMAGE[0], (1, 1, 2), 0b100),
    normalize("instance", IMAGE, (1, 4, 1, 1), 0b1100),
    normalize("batch", IMAGE, (1, 4, 1, 1), 0b1101),
    normalize("group with [1, G, 1, 1]", IMAGE, (1, 2, 1, 1), 0b1100, num_groups=2),
    normalize("group with [1, C, 1, 1]", IMAGE, (1, 4, 1, 1), 0b1100, num_groups=2),
    normalize("group as many as channels", IMAGE, (1, 4, 1, 1), 0b1100, num_groups=4),
    normalize("group that does not divide", IMAGE, (1, 3, 1, 1), 0b1100, num_groups=3),
    normalize("group with channels in the mask", IMAGE, (1, 2, 1, 1), 0b1110, num_groups=2),
    normalize("group of rank 3", IMAGE[..., 0], (1, 2, 1), 0b100, num_groups=2),
    normalize("group of rank 5", IMAGE[:, :, None], (1, 2, 1, 1, 1), 0b11100, num_groups=2),
    normalize("mask 0", GRID, (1, 4), 0),
    normalize("mask beyond the rank", GRID, (1, 4), 4),
    normalize("rank mismatch", GRID, (4,), 2),
    normalize("scale that does not broadcast", GRID, (1, 3), 2),
    normalize("bias of another shape", GRID, (1, 4), 2, bias=(1, 1)),
    normalize("rank 1", GRID[0], (4,), 1),
    normalize("epsilon", GRID, (1, 4), 2, epsilon=1.0),
    normalize("float16", GRID.astype("f2"), (1, 4), 2, ("HALF",)),
    normalize("float16 image", IMAGE.astype("f2"), (1, 4, 1, 1), 0b1100, ("HALF",)),
    normalize(
        "float16, computed in float32",
        GRID.astype("f2"),
        (1, 4),
        2,
        ("HALF",),
        compute_precision="DataType.FLOAT",
    ),
    normalize("int32", GRID.astype("i4"), (1, 4), 2),
    normalize("dynamic layer", dynamic(GRID), (1, 4), 2),
    normalize("dynamic rows", dynamic(GRID, 0), (1, 4), 2),
    normalize("dynamic instance", dynamic(IMAGE, 0, 2, 3), (1, 4, 1, 1), 0b1100),
    normalize("dynamic group", dynamic(IMAGE, 0, 2, 3), (1, 2, 1, 1), 0b1100, num_groups=2),
    normalize("no rows", np.zeros((0, 4), "f4"), (1, 4), 2),
    normalize("constant row", np.ones((2, 4), "f4"), (1, 4), 2),
    *(lrn(f"window {window}", IMAGE, window) for window in (1, 2, 3, 5, 15, 17)),
    lrn("parameters", IMAGE, 3, 0.5, 0.5, 2.0),
    lrn("small beta", IMAGE, 3, 1.0, 0.001, 1.0),
    lrn("k 0", IMAGE, 3, 1.0, 0.75, 0.0),
    lrn("rank 3", IMAGE[0], 3),
    lrn("int32", IMAGE.astype("i4"), 3),
    lrn("dynamic", dynamic(IMAGE, 0, 2, 3), 3),
    scale("uniform", IMAGE, "UNIFORM", 1),
    scale("channel", IMAGE, "CHANNEL", 4),
    scale("elementwise", IMAGE, "ELEMENTWISE", 16),
    scale("channel of wrong count", IMAGE, "CHANNEL", 3),
    scale("uniform of wrong count", IMAGE, "UNIFORM", 2),
    scale("shift only", IMAGE, "CHANNEL", 4, parts="shift"),
    scale("scale only", IMAGE, "CHANNEL", 4, parts="scale"),
    scale("power only", IMAGE, "CHANNEL", 4, parts="power"),
    scale("power of negatives", -IMAGE, "CHANNEL", 4, parts="power"),
    scale("nothing", IMAGE, "UNIFORM", 1, parts=""),
    scale("rank 3", IMAGE[0], "CHANNEL", 4),
    scale("rank 2", GRID, "UNIFORM", 1),
    scale("int32", IMAGE.astype("i4"), "UNIFORM", 1),
    scale("channel axis 0", IMAGE, "CHANNEL", 2, 0),
    scale("channel axis 1", IMAGE, "CHANNEL", 4, 1),
    scale("channel axis 1, rank 5", IMAGE[..., None], "CHANNEL", 4, 1),
    scale("channel axis 1, rank 3", IMAGE[0], "CHANNEL", 2, 1),
    scale("dynamic", dynamic(IMAGE, 0, 2, 3), "CHANNEL", 4),
)
