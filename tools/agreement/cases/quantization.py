"""Quantize and Dequantize: rounding, saturation, scales per tensor and per channel."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.agreement.case import Case, Given, Network, dynamic

X = np.array([[0.1, 0.25, 0.75, 1.25, 99, -99, -0.75, -0.25]], np.float32)
INT8 = ("INT8",)


def round_trip(
    name: str,
    x: Given,
    scale: Any,
    axis: int | None = None,
    zero: Any = None,
    flags: Any = INT8,
    **more: Any,
) -> Case:
    """A tensor quantized and dequantized."""
    attributes = {} if axis is None else {"axis": axis}

    def build(n: Network) -> Any:
        factor = n.constant(np.asarray(scale), np.float32)
        there = n.layer("quantize", n["x"], factor, **attributes)
        back = n.layer("dequantize", there.get_output(0), factor, **attributes)
        if zero is not None:
            for layer in (there, back):
                layer.set_input(2, n.constant(np.asarray(zero), np.int8))
        return back

    return Case(f"quantization/{name}", {"x": x}, build, flags=flags, **more)


def alone(name: str, kind: str, x: Given, types: tuple[str, ...] = (), scale: Any = 0.5) -> Case:
    """One of the two layers."""
    return Case(
        f"quantization/{name}",
        {"x": x},
        lambda n: n.layer(kind, n["x"], n.constant(np.asarray(scale), np.float32)),
        flags=INT8,
        types=types,
    )


CASES = (
    round_trip("scale 0.5", X, 0.5),
    round_trip("scale 0.5, without the flag", X, 0.5, flags=()),
    round_trip("scale 1", X, 1.0),
    round_trip("scale 0.3", X, 0.3),
    round_trip("scale of one element", X, [0.5]),
    round_trip("per column", X, [0.5, 0.25, 1, 2, 1, 0.5, 0.1, 1], 1),
    round_trip("per row", X.reshape(2, 4), [0.5, 2.0], 0),
    round_trip("per row, wrong count", X.reshape(2, 4), [0.5, 2.0, 1.0], 0),
    round_trip("per column, no axis", X.reshape(2, 4), [0.5, 2.0]),
    round_trip("axis beyond the rank", X, [0.5], 2),
    round_trip("negative axis", X, [0.5] * 8, -1),
    round_trip("scale 0", X, 0.0),
    round_trip("negative scale", X, -0.5),
    round_trip("zero point 0", X, 0.5, zero=0),
    round_trip("zero point 1", X, 0.5, zero=1),
    round_trip("nan and inf", np.array([[np.nan, np.inf, -np.inf]], "f4"), 0.5),
    round_trip("scalar", np.array(0.75, "f4"), 0.5),
    round_trip("vector", X[0], 0.5),
    round_trip("rank 4", X.reshape(1, 2, 2, 2), 0.5),
    round_trip("nothing", np.zeros((0, 4), "f4"), 0.5),
    round_trip("dynamic", dynamic(X), 0.5),
    round_trip("int32", X.astype("i4"), 0.5),
    round_trip("float16", X.astype("f2"), 0.5),
    alone("quantize alone", "quantize", X, INT8),
    alone("quantize alone, undeclared", "quantize", X),
    alone("dequantize alone", "dequantize", np.array([[-128, 0, 127]], np.int8)),
    alone("dequantize of float32", "dequantize", X),
    alone("quantize of int8", "quantize", np.array([[-128, 0, 127]], np.int8), INT8),
)
