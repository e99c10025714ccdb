"""Where the reference is known to differ from TensorRT 8.6.0, and why. A test asserts that it still does."""

from __future__ import annotations

from collections.abc import Mapping

_CASES: Mapping[str, tuple[str, ...]] = {
    (
        "TensorRT accepts what its documentation rules out, with results that mean nothing or cannot be "
        "foreseen; the reference refuses it."
    ): (
        "fill/RANDOM_UNIFORM/uniform int32",
        "matrix/einsum/ii->i",
        "matrix/einsum/ii->",
        "normalization/int32",
        "pooling/MAX/window above the image",
        "pooling/AVERAGE/window above the image",
        "quantization/scale 0",
        "quantization/negative scale",
    ),
    (
        "TensorRT does not compare the values of a shape input with the profile when it runs; the "
        "reference does."
    ): (
        "shuffle/input/outside the profile",
        "slice/STRICT_BOUNDS/size as input outside the profile",
    ),
    (
        "Of several updates to one place any may win; TensorRT was seen to take another one than "
        "the reference."
    ): (
        "scatter/ELEMENT/axis -1",
        "scatter/ELEMENT/repeated",
    ),
    ("TensorRT reads memory that is not the tensor's; the reference refuses when it runs."): (
        "indices/reverse/length beyond",
    ),
    ("TensorRT crashes; the reference refuses to build."): (
        "shuffle/second transpose/beyond the rank",
    ),
    ("Both refuse it, at different stages."): (
        "gather/DEFAULT/constant nothing",
        "indices/non-zero then as long static",
        "indices/non-zero then as long dynamic",
    ),
    (
        "TensorRT drops a cast forth and back in a weakly typed network even where the flag allows the "
        "type; the reference rounds."
    ): (
        "cast/float32 to HALF and back, with the flag",
        "cast/float32 to INT8 and back, with the flag",
    ),
    ("TensorRT refuses a comparison of integers as an output whose type is not declared."): (
        "elementwise/EQUAL/undeclared",
    ),
}
REASONS: Mapping[str, str] = {name: reason for reason, names in _CASES.items() for name in names}
