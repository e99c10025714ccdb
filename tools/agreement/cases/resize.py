"""Resize: every mode, coordinate transformation and rounding; shapes, scales, ranks, types."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.agreement.case import Case, Given, Network, ShapeValues, dynamic

MODES = ("NEAREST", "LINEAR", "CUBIC")
TRANSFORMATIONS = ("ALIGN_CORNERS", "ASYMMETRIC", "HALF_PIXEL")
ROUNDINGS = ("HALF_UP", "HALF_DOWN", "FLOOR", "CEIL")
LINE = np.array([0, 1, 3, 2, 5], np.float32).reshape(1, 1, 1, 5)
IMAGE = (np.arange(12, dtype=np.float32) ** 2).reshape(1, 1, 3, 4)
SIZES = (1, 3, 7)


def case(name: str, mode: str, x: Given, types: tuple[str, ...] = (), **attributes: Any) -> Case:
    """A case of static attributes; texts name enum members."""
    return Case(
        f"resize/{name}",
        {"x": x},
        lambda n: n.layer("resize", n["x"], resize_mode=f"InterpolationMode.{mode}", **attributes),
        types=types,
    )


def transformed(how: str) -> dict[str, str]:
    """The attribute for a coordinate transformation."""
    return {"coordinate_transformation": f"ResizeCoordinateTransformation.{how}"}


def to_tensor(name: str, mode: str, x: Given, like: Given) -> Case:
    """A resize to the shape of another input, or to a shape input."""

    def build(n: Network) -> Any:
        attributes = transformed("HALF_PIXEL")
        layer = n.layer("resize", n["x"], resize_mode=f"InterpolationMode.{mode}", **attributes)
        layer.set_input(1, n["like"] if isinstance(like, ShapeValues) else n.shape(n["like"]))
        return layer

    return Case(f"resize/{name}", {"x": x, "like": like}, build)


CASES = (
    *(
        case(f"{mode}/{how} to {size}", mode, LINE, shape=(1, 1, 1, size), **transformed(how))
        for mode in MODES
        for how in TRANSFORMATIONS
        for size in SIZES
    ),
    *(
        case(
            f"NEAREST/{how} {rounding} to {size}",
            "NEAREST",
            LINE,
            shape=(1, 1, 1, size),
            nearest_rounding=f"ResizeRoundMode.{rounding}",
            **transformed(how),
        )
        for how in TRANSFORMATIONS
        for rounding in ROUNDINGS
        for size in (3, 10)
    ),
    *(case(f"{mode}/defaults", mode, LINE, shape=(1, 1, 1, 7)) for mode in MODES),
    *(
        case(f"{mode}/two dimensions", mode, IMAGE, shape=(1, 1, 5, 6), **transformed("HALF_PIXEL"))
        for mode in MODES
    ),
    *(
        case(f"{mode}/smaller", mode, IMAGE, shape=(1, 1, 2, 2), **transformed("HALF_PIXEL"))
        for mode in MODES
    ),
    *(case(f"{mode}/same shape", mode, IMAGE, shape=(1, 1, 3, 4)) for mode in MODES),
    *(
        case(f"{mode}/scales {how}", mode, LINE, scales=(1.0, 1.0, 1.0, 1.5), **transformed(how))
        for mode in MODES
        for how in TRANSFORMATIONS
    ),
    *(
        case(
            f"{mode}/scales 0.4",
            mode,
            LINE,
            scales=(1.0, 1.0, 1.0, 0.4),
            **transformed("ASYMMETRIC"),
        )
        for mode in MODES
    ),
    *(case(f"{mode}/batch", mode, IMAGE, shape=(2, 1, 3, 4)) for mode in MODES),
    *(case(f"{mode}/channels", mode, IMAGE, shape=(1, 2, 3, 4)) for mode in MODES),
    *(case(f"{mode}/rank 1", mode, LINE[0, 0, 0], shape=(7,)) for mode in MODES),
    *(case(f"{mode}/rank 2", mode, IMAGE[0, 0], shape=(5, 6)) for mode in MODES),
    *(case(f"{mode}/rank 3", mode, IMAGE[0], shape=(1, 5, 6)) for mode in MODES),
    *(case(f"{mode}/rank 5", mode, IMAGE[None], shape=(1, 1, 2, 5, 6)) for mode in MODES),
    *(
        case(
            f"{mode}/float16",
            mode,
            IMAGE.astype("f2"),
            ("HALF",),
            shape=(1, 1, 5, 6),
            **transformed("HALF_PIXEL"),
        )
        for mode in MODES
    ),
    *(case(f"{mode}/int32", mode, IMAGE.astype("i4"), shape=(1, 1, 5, 6)) for mode in MODES),
    *(
        case(
            f"{mode}/dynamic",
            mode,
            dynamic(IMAGE),
            scales=(1.0, 1.0, 2.0, 2.0),
            **transformed("HALF_PIXEL"),
        )
        for mode in MODES
    ),
    *(
        case(
            f"{mode}/single pixel {selector} {how}",
            mode,
            LINE,
            shape=(1, 1, 1, 1),
            selector_for_single_pixel=f"ResizeSelector.{selector}",
            **transformed(how),
        )
        for mode in ("NEAREST", "LINEAR")
        for selector in ("FORMULA", "UPPER")
        for how in ("ALIGN_CORNERS", "HALF_PIXEL")
    ),
    case(
        "CUBIC/coefficient -0.5",
        "CUBIC",
        LINE,
        shape=(1, 1, 1, 7),
        cubic_coeff=-0.5,
        **transformed("HALF_PIXEL"),
    ),
    case(
        "CUBIC/exclude outside",
        "CUBIC",
        LINE,
        shape=(1, 1, 1, 7),
        exclude_outside=True,
        **transformed("HALF_PIXEL"),
    ),
    case("NEAREST/bool", "NEAREST", IMAGE > 1, shape=(1, 1, 5, 6)),
    case("NEAREST/nothing set", "NEAREST", IMAGE),
    case("NEAREST/shape of wrong length", "NEAREST", IMAGE, shape=(5, 6)),
    case("NEAREST/shape with 0", "NEAREST", IMAGE, shape=(1, 1, 0, 6)),
    case("NEAREST/of nothing", "NEAREST", np.zeros((1, 1, 0, 4), "f4"), shape=(1, 1, 0, 6)),
    case("NEAREST/scales of wrong length", "NEAREST", IMAGE, scales=(2.0, 2.0)),
    case("NEAREST/negative scale", "NEAREST", IMAGE, scales=(1.0, 1.0, -1.0, 1.0)),
    case(
        "NEAREST/shape and scales",
        "NEAREST",
        IMAGE,
        shape=(1, 1, 6, 8),
        scales=(1.0, 1.0, 2.0, 2.0),
    ),
    case("NEAREST/scalar", "NEAREST", np.array(1.0, "f4"), shape=()),
    *(
        to_tensor(
            f"{mode}/shape of another", mode, IMAGE, dynamic(np.ones((1, 1, 5, 6), "f4"), 2, 3)
        )
        for mode in MODES
    ),
    *(
        to_tensor(
            f"{mode}/shape input",
            mode,
            IMAGE,
            ShapeValues(np.array([1, 1, 5, 6], "i4"), (1, 1, 1, 1), (1, 1, 9, 9)),
        )
        for mode in MODES
    ),
)
