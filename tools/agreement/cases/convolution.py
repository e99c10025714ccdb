"""Convolution, deconvolution, fully connected, padding: attributes, modes, groups, ranks, dynamic weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.agreement.case import Case, Given, Network, dynamic

MODES = (
    *("EXPLICIT_ROUND_DOWN", "EXPLICIT_ROUND_UP", "SAME_UPPER", "SAME_LOWER"),
    *("CAFFE_ROUND_DOWN", "CAFFE_ROUND_UP"),
)


def image(*shape: int) -> np.ndarray:
    """Small integers in a shape."""
    return (np.arange(int(np.prod(shape))) % 7 - 2).astype(np.float32).reshape(shape)


SMALL, FOUR, VOLUME = image(1, 1, 5, 6), image(1, 4, 4, 4), image(1, 1, 3, 4, 4)


def case(
    name: str,
    x: Given,
    maps: int,
    kernel: tuple[int, ...],
    weights: tuple[int, ...],
    kind: str = "convolution_nd",
    bias: bool = False,
    types: tuple[str, ...] = (),
    **attributes: Any,
) -> Case:
    """A case of static weights with the shape ``weights``."""

    def build(n: Network) -> Any:
        more = [n.weights(np.arange(maps) + 1)] if bias else []
        return n.layer(kind, n["x"], maps, kernel, n.weights(image(*weights)), *more, **attributes)

    family = kind.replace("_nd", "") if kind.endswith("_nd") else f"{kind} without nd"
    return Case(f"convolution/{family}/{name}", {"x": x}, build, types=types, tolerance=1e-4)


def dynamic_weights(name: str, kernel: Given, with_static: bool = False) -> Case:
    """A convolution whose kernel is an input."""

    def build(n: Network) -> Any:
        static = n.weights(image(1, 1, 3, 3)) if with_static else n.trt.Weights()
        layer = n.layer("convolution_nd", n["x"], 1, (3, 3), static)
        layer.set_input(1, n["kernel"])
        return layer

    return Case(f"convolution/{name}", {"x": SMALL, "kernel": kernel}, build, tolerance=1e-4)


def fully_connected(name: str, x: Given, count: int) -> Case:
    """A case of the deprecated fully connected layer, with 2 outputs."""
    return Case(
        f"convolution/fully connected/{name}",
        {"x": x},
        lambda n: n.layer("fully_connected", n["x"], 2, n.weights(image(2, count))),
        tolerance=1e-4,
    )


def padding(name: str, x: Given, pre: Any, post: Any, kind: str = "padding_nd") -> Case:
    """A case of Padding."""
    return Case(f"convolution/{kind}/{name}", {"x": x}, lambda n: n.layer(kind, n["x"], pre, post))


def deconvolution(name: str, x: Given, maps: int, kernel: Any, weights: Any, **more: Any) -> Case:
    """A case of Deconvolution."""
    return case(name, x, maps, kernel, weights, "deconvolution_nd", **more)


KERNEL = ((3, 3), (1, 1, 3, 3))

CASES = (
    case("plain", SMALL, 1, *KERNEL),
    case("bias", FOUR, 2, (3, 3), (2, 4, 3, 3), bias=True),
    case("1 x 1", FOUR, 3, (1, 1), (3, 4, 1, 1)),
    case("stride", SMALL, 1, *KERNEL, stride_nd=(2, 2)),
    case("dilation", SMALL, 1, *KERNEL, dilation_nd=(2, 2)),
    case("padding", SMALL, 1, *KERNEL, padding_nd=(1, 2)),
    case("asymmetric padding", SMALL, 1, *KERNEL, pre_padding=(1, 0), post_padding=(0, 2)),
    case("groups", FOUR, 4, (3, 3), (4, 2, 3, 3), num_groups=2),
    case("depthwise", FOUR, 4, (3, 3), (4, 1, 3, 3), num_groups=4),
    case("groups that do not divide", FOUR, 4, (3, 3), (4, 1, 3, 3), num_groups=3),
    case("three dimensions", VOLUME, 1, (2, 2, 2), (1, 1, 2, 2, 2)),
    case(
        "three dimensions, stride",
        VOLUME,
        1,
        (2, 2, 2),
        (1, 1, 2, 2, 2),
        stride_nd=(1, 2, 2),
        padding_nd=(1, 0, 0),
    ),
    case("kernel of one dimension", image(1, 1, 5), 1, (3,), (1, 1, 3)),
    case("rank 3", image(1, 5, 5), 1, *KERNEL),
    case("kernel of two, input of three dimensions", VOLUME, 1, *KERNEL),
    case("kernel of four dimensions", image(1, 1, 2, 2, 2, 2), 1, (1, 1, 1, 1), (1, 1, 1, 1, 1, 1)),
    case("too few weights", SMALL, 2, *KERNEL),
    case("too many weights", SMALL, 1, (3, 3), (2, 1, 3, 3)),
    case("kernel larger than the image", image(1, 1, 2, 2), 1, *KERNEL),
    case("kernel larger than the image, stride 2", image(1, 1, 2, 2), 1, *KERNEL, stride_nd=(2, 2)),
    case("stride 0", SMALL, 1, *KERNEL, stride_nd=(0, 1)),
    case("dilation 0", SMALL, 1, *KERNEL, dilation_nd=(0, 1)),
    case("negative padding", SMALL, 1, *KERNEL, padding_nd=(-1, -1)),
    case("batch", image(3, 1, 4, 4), 1, *KERNEL),
    case("no batch", image(0, 1, 4, 4), 1, *KERNEL),
    case("dynamic", dynamic(SMALL, 0, 2, 3), 1, *KERNEL, padding_nd=(1, 1)),
    case("dynamic channels", dynamic(FOUR, 1), 1, (3, 3), (1, 4, 3, 3)),
    case("int32", SMALL.astype("i4"), 1, *KERNEL),
    case("float16", SMALL.astype("f2"), 1, *KERNEL, types=("HALF",)),
    *(
        case(
            f"{mode} stride {stride}",
            SMALL,
            1,
            *KERNEL,
            padding_mode=f"PaddingMode.{mode}",
            stride_nd=(stride, stride),
            padding_nd=(1, 1),
        )
        for mode in MODES
        for stride in (1, 2, 3)
    ),
    *(
        case(
            f"{mode} stride 4, small kernel",
            SMALL,
            1,
            (1, 2),
            (1, 1, 1, 2),
            padding_mode=f"PaddingMode.{mode}",
            stride_nd=(4, 4),
        )
        for mode in MODES[2:4]
    ),
    case("plain", SMALL, 1, *KERNEL, kind="convolution", stride=(2, 2)),
    dynamic_weights("kernel as input", image(1, 1, 3, 3)),
    dynamic_weights("kernel as dynamic input", dynamic(image(1, 1, 3, 3), 0)),
    dynamic_weights("kernel as input of other shape", image(1, 1, 2, 3)),
    dynamic_weights("kernel as input and weights", image(1, 1, 3, 3), True),
    deconvolution("plain", SMALL, 1, *KERNEL),
    deconvolution("bias", FOUR, 2, (3, 3), (4, 2, 3, 3), bias=True),
    deconvolution("stride", SMALL, 1, *KERNEL, stride_nd=(2, 2)),
    deconvolution("stride above the kernel", SMALL, 1, (2, 2), (1, 1, 2, 2), stride_nd=(3, 3)),
    deconvolution("dilation", SMALL, 1, *KERNEL, dilation_nd=(2, 2)),
    deconvolution("padding", SMALL, 1, *KERNEL, padding_nd=(1, 1)),
    deconvolution(
        "asymmetric padding",
        SMALL,
        1,
        *KERNEL,
        stride_nd=(2, 2),
        pre_padding=(1, 1),
        post_padding=(0, 0),
    ),
    deconvolution("padding beyond the output", image(1, 1, 1, 1), 1, *KERNEL, padding_nd=(2, 2)),
    deconvolution("negative padding", SMALL, 1, *KERNEL, padding_nd=(-1, -1)),
    deconvolution("groups", FOUR, 4, (3, 3), (4, 2, 3, 3), num_groups=2),
    deconvolution("three dimensions", VOLUME, 1, (2, 2, 2), (1, 1, 2, 2, 2), stride_nd=(2, 2, 2)),
    deconvolution("rank 3", image(1, 5, 5), 1, *KERNEL),
    deconvolution("kernel of one dimension", image(1, 1, 5), 1, (3,), (1, 1, 3)),
    deconvolution("too few weights", SMALL, 2, *KERNEL),
    deconvolution("dynamic", dynamic(SMALL, 0, 2, 3), 1, *KERNEL, stride_nd=(2, 2)),
    deconvolution("float16", SMALL.astype("f2"), 1, *KERNEL, types=("HALF",)),
    *(
        deconvolution(
            f"{mode} stride {stride}",
            SMALL,
            1,
            *KERNEL,
            padding_mode=f"PaddingMode.{mode}",
            stride_nd=(stride, stride),
        )
        for mode in MODES
        for stride in (2, 4)
    ),
    case("plain", SMALL, 1, *KERNEL, kind="deconvolution", stride=(2, 2)),
    fully_connected("rank 4", image(2, 2, 1, 2), 4),
    fully_connected("rank 3", image(2, 2, 2), 4),
    fully_connected("wrong count", image(2, 2, 1, 2), 5),
    padding("both sides", SMALL, (1, 2), (0, 1)),
    padding("negative crops", SMALL, (-1, 0), (0, -2)),
    padding("mixed signs", SMALL, (1, -1), (-1, 1)),
    padding("crops everything", SMALL, (-5, 0), (0, 0)),
    padding("one dimension", SMALL, (1,), (1,)),
    padding("three dimensions", SMALL, (1, 1, 1), (1, 1, 1)),
    padding("rank 2", image(3, 4), (1, 1), (1, 1)),
    padding("rank 3", image(2, 3, 4), (1, 1), (1, 1)),
    padding("rank 5", VOLUME, (1, 1), (1, 1)),
    padding("rank 1", image(4), (1, 1), (1, 1)),
    padding("int32", SMALL.astype("i4"), (1, 1), (1, 1)),
    padding("bool", SMALL > 0, (1, 1), (1, 1)),
    padding("dynamic", dynamic(SMALL, 0, 2, 3), (1, 1), (1, 1)),
    padding("plain", SMALL, (1, 2), (0, 1), "padding"),
)
