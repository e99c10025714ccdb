"""What TensorRT 8.6.0 was seen to compute, element by element and along dimensions: the reference must do the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from plugins.reference.tests.observed import (
    I32,
    INF,
    NAN,
    NONE,
    REFUSED,
    activation,
    arange,
    assert_observed,
    bools,
    cast,
    convolution,
    deconvolution,
    einsum,
    elementwise,
    floats,
    half_constant,
    ints,
    matmul,
    normalization,
    pooling,
    quantize_dequantize,
    reduce,
    softmax,
    typed,
    unary,
)

CASES: list[tuple[str, Any, Any]] = [
    (
        "int32 DIV truncates",
        elementwise("DIV", ints(7, -7, 7, -7, 1), ints(2, 2, -2, -2, 3)),
        ints(3, -3, -3, 3, 0),
    ),
    (
        "int32 FLOOR_DIV floors",
        elementwise("FLOOR_DIV", ints(7, -7, 7, -7, 1), ints(2, 2, -2, -2, 3)),
        ints(3, -4, -4, 3, 0),
    ),
    ("int32 POW", elementwise("POW", ints(2), ints(3)), REFUSED),
    (
        "int32 MAX",
        elementwise("MAX", ints(7, -7, 7, -7, 1), ints(2, 2, -2, -2, 3)),
        ints(7, 2, 7, -2, 3),
    ),
    (
        "int32 SUB",
        elementwise("SUB", ints(7, -7, 7, -7, 1), ints(2, 2, -2, -2, 3)),
        ints(5, -9, 9, -5, -2),
    ),
    ("int32 EQUAL", elementwise("EQUAL", ints(7, -7), ints(2, 2)), bools(False, False)),
    ("int32 LESS", elementwise("LESS", ints(7, -7), ints(2, 2)), bools(False, True)),
    ("int32 AND", elementwise("AND", ints(1), ints(1)), REFUSED),
    (
        "bool EQUAL",
        elementwise("EQUAL", bools(True, False, True), bools(True, True, False)),
        bools(True, False, False),
    ),
    ("bool GREATER", elementwise("GREATER", bools(True), bools(True)), REFUSED),
    (
        "bool XOR",
        elementwise("XOR", bools(True, False, True), bools(True, True, False)),
        bools(False, True, True),
    ),
    ("bool SUM", elementwise("SUM", bools(True), bools(True)), REFUSED),
    ("float and int32 SUM", elementwise("SUM", floats(1), ints(1)), REFUSED),
    ("rank mismatch SUM", elementwise("SUM", torch.ones(2, 3), torch.ones(3)), REFUSED),
    ("int32 NEG", unary("NEG", ints(1)), REFUSED),
    ("int32 ABS", unary("ABS", ints(-2, 0, 3)), ints(2, 0, 3)),
    ("int32 SIGN", unary("SIGN", ints(-2, 0, 3)), ints(-1, 0, 1)),
    ("int32 EXP", unary("EXP", ints(1)), REFUSED),
    ("int32 NOT", unary("NOT", ints(1)), REFUSED),
    ("int32 ROUND", unary("ROUND", ints(1)), REFUSED),
    (
        "ROUND takes ties to even",
        unary("ROUND", floats(0.5, 1.5, 2.5, -0.5)),
        floats(0, 2, 2, -0.0),
    ),
    ("SIGN of NaN is NaN", unary("SIGN", floats(NAN, -2, 0)), floats(NAN, -1, 0)),
    ("ISINF", unary("ISINF", floats(INF, -INF, NAN, 1)), bools(True, True, False, False)),
    ("scalar EXP", unary("EXP", torch.tensor(1.0)), torch.tensor(2.71828)),
    (
        "int32 RELU",
        lambda n: n.net.add_activation(n.input(ints(1)), n.trt.ActivationType.RELU),
        REFUSED,
    ),
    ("THRESHOLDED_RELU", activation("THRESHOLDED_RELU", 1.0), floats(0, 0, 0, 0, 0, 3)),
    ("CLIP with crossed bounds", activation("CLIP", 2.0, 1.0), floats(2, 2, 2, 2, 2, 2)),
    (
        "SOFTPLUS",
        activation("SOFTPLUS", 1.0, 1.0),
        floats(0.0486, 0.3133, 0.6931, 0.9741, 1.3133, 3.0486),
    ),
    ("HARD_SIGMOID", activation("HARD_SIGMOID", 0.2, 0.5), floats(0, 0.3, 0.5, 0.6, 0.7, 1)),
    ("SELU", activation("SELU", 1.67, 1.05), floats(-1.6662, -1.1084, 0, 0.525, 1.05, 3.15)),
    ("CLIP without bounds", activation("CLIP"), floats(-3, -1, 0, 0.5, 1, 3)),
    ("LEAKY_RELU without alpha", activation("LEAKY_RELU"), floats(-0.03, -0.01, 0, 0.5, 1, 3)),
    ("ELU without alpha", activation("ELU"), floats(-0.9502, -0.6321, 0, 0.5, 1, 3)),
    ("reduce with mask 0", reduce("SUM", floats(1, 2), 0), REFUSED),
    ("int32 AVG truncates", reduce("AVG", ints(1, -2)), ints(0)[0]),
    ("int32 MAX through float32", reduce("MAX", ints(16777217, 2)), ints(16777216)[0]),
    ("int32 PROD through float32", reduce("PROD", ints(4097, 4099)), ints(16793604)[0]),
    ("int32 SUM beyond the range", reduce("SUM", ints(2147483647, 1)), ints(-2147483648)[0]),
    ("bool SUM over a dimension", reduce("SUM", bools(True)), REFUSED),
    ("reduce a scalar", reduce("SUM", torch.tensor(1.0)), REFUSED),
    ("reduce beyond the rank", reduce("SUM", floats(1), 2), REFUSED),
    (
        "bool constant",
        lambda n: n.net.add_identity(n.const([True, False], bool)),
        bools(True, False),
    ),
    (
        "float to int32",
        typed(cast(floats(1.9, -1.9, 2.5, INF, NAN), "INT32"), "INT32"),
        ints(1, -1, 2, 2147483647, 0),
    ),
    (
        "float to bool",
        typed(cast(floats(0.5, -1, 0, NAN), "BOOL"), "BOOL"),
        bools(True, True, False, True),
    ),
    ("int32 to bool", typed(cast(ints(2, 0, -1), "BOOL"), "BOOL"), bools(True, False, True)),
    ("bool to float", typed(cast(bools(True, False), "FLOAT"), "FLOAT"), floats(1, 0)),
    ("softmax of rank 1", softmax(floats(1, 2), 1), REFUSED),
    ("softmax of -inf", softmax(floats(-INF, -INF, -INF)[None], 2), floats(NAN, NAN, NAN)[None]),
    ("matmul rank mismatch", matmul(torch.ones(1, 2, 3), torch.ones(3, 4)), REFUSED),
    (
        "matmul batch broadcast",
        matmul(torch.ones(2, 2, 3), torch.ones(1, 3, 4)),
        torch.full((2, 2, 4), 3.0),
    ),
    ("matmul vector", matmul(torch.ones(3), torch.ones(3, 4), "VECTOR"), torch.full((4,), 3.0)),
    ("matmul int32", matmul(torch.ones(2, 3, dtype=I32), torch.ones(3, 4, dtype=I32)), REFUSED),
    # TensorRT 8.6 builds this and reads other elements; its documentation rules it out.
    ("einsum diagonal", einsum("ii->i", torch.diag(floats(0, 1))), REFUSED),
    ("einsum ellipsis", einsum("...i->...", torch.ones(2, 2)), REFUSED),
    ("einsum of three", einsum("ij,jk,kl->il", *[torch.ones(2, 2)] * 3), NONE),
    ("einsum broadcast", einsum("ij,ij->ij", torch.ones(2, 2), torch.ones(1, 2)), torch.ones(2, 2)),
    (
        "einsum product",
        einsum("ij,jk->ik", torch.ones(2, 3), torch.ones(3, 2)),
        torch.full((2, 2), 3.0),
    ),
    ("1-D convolution", convolution(torch.ones(1, 1, 5), (3,)), NONE),
    ("2-D convolution of rank 3", convolution(torch.ones(1, 5, 5), (3, 3)), REFUSED),
    (
        "pooling default stride",
        pooling("MAX", arange(1, 1, 4, 4)),
        floats(5, 6, 7, 9, 10, 11, 13, 14, 15).view(1, 1, 3, 3),
    ),
    (
        "average pooling excludes padding",
        pooling("AVERAGE", arange(1, 1, 4, 4), stride_nd=(2, 2), padding_nd=(1, 1)),
        floats(0, 1.5, 3, 6, 7.5, 9, 12, 13.5, 15).view(1, 1, 3, 3),
    ),
    (
        "average pooling includes padding",
        pooling(
            "AVERAGE",
            arange(1, 1, 4, 4),
            stride_nd=(2, 2),
            padding_nd=(1, 1),
            average_count_excludes_padding=False,
        ),
        floats(0, 0.75, 0.75, 3, 7.5, 4.5, 3, 6.75, 3.75).view(1, 1, 3, 3),
    ),
    (
        "pooling rounds up",
        pooling(
            "MAX", arange(1, 1, 4, 4)[..., :], stride_nd=(2, 2), padding_mode="EXPLICIT_ROUND_UP"
        ),
        floats(5, 7, 13, 15).view(1, 1, 2, 2),
    ),
    ("pooling of rank 3", pooling("MAX", torch.ones(1, 4, 4)), REFUSED),
    ("pooling int32", pooling("MAX", torch.ones(1, 1, 4, 4, dtype=I32)), REFUSED),
    (
        "layer norm",
        normalization(arange(2, 4), torch.ones(1, 4), 2),
        floats(-1.3416, -0.4472, 0.4472, 1.3416).repeat(2, 1),
    ),
    (
        "group norm with [1, G, 1, 1]",
        normalization(arange(1, 4, 2, 2), torch.ones(1, 2, 1, 1), 0b1100, 2),
        torch.nn.functional.group_norm(arange(1, 4, 2, 2), 2),
    ),
    (
        "group norm with [1, C, 1, 1]",
        normalization(arange(1, 4, 2, 2), torch.ones(1, 4, 1, 1), 0b1100, 2),
        REFUSED,
    ),
    ("normalization rank mismatch", normalization(arange(2, 4), torch.ones(4), 2), REFUSED),
    (
        "prelu int32",
        lambda n: n.net.add_parametric_relu(n.input(ints(1)), n.input(ints(1))),
        REFUSED,
    ),
    ("scalar constant", lambda n: n.net.add_identity(n.const(3.0)), torch.tensor(3.0)),
    ("1 against 0", elementwise("SUM", torch.ones(1, 3), torch.ones(0, 3)), torch.ones(0, 3)),
    ("empty SUM", reduce("SUM", torch.ones(0, 3)), floats(0, 0, 0)),
    ("empty PROD", reduce("PROD", torch.ones(0, 3)), floats(1, 1, 1)),
    ("empty MAX", reduce("MAX", torch.ones(0, 3)), floats(-INF, -INF, -INF)),
    ("empty MIN", reduce("MIN", torch.ones(0, 3)), floats(INF, INF, INF)),
    ("empty AVG", reduce("AVG", torch.ones(0, 3)), floats(NAN, NAN, NAN)),
    ("big int32 SUM", reduce("SUM", ints(16777217, 2)), ints(16777218)[0]),
    ("big int32 PROD", reduce("PROD", ints(16777217, 2)), ints(33554432)[0]),
    ("big int32 MIN", reduce("MIN", ints(16777217, 2)), ints(2)[0]),
    ("big int32 AVG", reduce("AVG", ints(16777217, 2)), ints(8388609)[0]),
    ("reduce MAX ignores NaN", reduce("MAX", floats(NAN, 3)), torch.tensor(3.0)),
    ("elementwise MAX of NaN", elementwise("MAX", floats(1, NAN), floats(NAN, 2)), floats(NAN, 2)),
    (
        "POW of negatives",
        elementwise("POW", floats(-2, -2, 0, 0), floats(2, 0.5, 0, -1)),
        floats(4, NAN, 1, INF),
    ),
    (
        "float FLOOR_DIV",
        elementwise("FLOOR_DIV", floats(7, -7, 1), floats(2, 2, 0)),
        floats(3, -4, INF),
    ),
    ("int32 divided by 0", elementwise("DIV", ints(1, -1), ints(0, 0)), ints(-1, -1)),
    ("int32 SUM wraps", elementwise("SUM", ints(2147483647), ints(1)), ints(-2147483648)),
    (
        "int32 PROD is exact",
        elementwise("PROD", ints(131073, 16777217), ints(1, 3)),
        ints(131073, 50331651),
    ),
    ("int32 EQUAL is exact", elementwise("EQUAL", ints(16777217), ints(16777216)), bools(False)),
    ("matmul over nothing", matmul(torch.ones(2, 0), torch.ones(0, 4)), torch.zeros(2, 4)),
    (
        "half output",
        typed(elementwise("SUM", floats(1, 2).half(), floats(1, 2).half()), "HALF"),
        floats(2, 4).half(),
    ),
    (
        "half input, float output",
        elementwise("SUM", floats(1, 2).half(), floats(1, 2).half()),
        floats(2, 4),
    ),
    ("cast to half", typed(cast(floats(1, 1e6), "HALF"), "HALF"), floats(1, INF).half()),
    ("int32 output of a float", typed(elementwise("SUM", floats(1), floats(1)), "INT32"), REFUSED),
    (
        "cast to int8 saturates",
        # Fractions are truncated by some kernels and rounded by others.
        typed(cast(floats(1, 300, -5), "INT8"), "INT8"),
        torch.tensor([1, 127, -5], dtype=torch.int8),
    ),
    ("bool output", elementwise("GREATER", floats(1, 0), floats(0, 1)), bools(True, False)),
    (
        "deconvolution",
        deconvolution((1, 1), (1, 1)),
        floats(1, 2, 1, 2, 4, 2, 1, 2, 1).view(1, 1, 3, 3),
    ),
    (
        "deconvolution with output padding",
        deconvolution((1, 1), (0, 0)),
        floats(1, 2, 1, 1, 2, 4, 2, 2, 1, 2, 1, 1, 1, 2, 1, 1).view(1, 1, 4, 4),
    ),
    (
        "softmax along axis 0",
        softmax(torch.tensor([[0.0, 0.0], [0.0, 2.0]]), 1),
        torch.tensor([[0.5, 0.1192], [0.5, 0.8808]]),
    ),
    ("softmax of rank 5", softmax(torch.zeros(1, 2, 1, 1, 2), 2), torch.full((1, 2, 1, 1, 2), 0.5)),
    ("half weights in a constant", half_constant, floats(2, 4)),
    ("TANH", activation("TANH"), torch.tanh(floats(-3, -1, 0, 0.5, 1, 3))),
    (
        "identity of nothing",
        lambda n: n.net.add_identity(n.input(torch.ones(0, 3))),
        torch.ones(0, 3),
    ),
    ("half ERF", typed(unary("ERF", floats(0.5, 1).half()), "HALF"), floats(0.5205, 0.8427).half()),
    ("SQRT at the edges", unary("SQRT", floats(-1, 0, 2, -0.5)), floats(NAN, 0, 1.4142, NAN)),
    ("LOG at the edges", unary("LOG", floats(-1, 0, 2, -0.5)), floats(NAN, -INF, 0.6931, NAN)),
    ("RECIP at the edges", unary("RECIP", floats(-1, 0, 2, -0.5)), floats(-1, INF, 0.5, -2)),
    ("ASIN at the edges", unary("ASIN", floats(-1, 0, 2, -0.5)), floats(-1.5708, 0, NAN, -0.5236)),
    ("FLOOR at the edges", unary("FLOOR", floats(-1, 0, 2, -0.5)), floats(-1, 0, 2, -1)),
    ("quantize and dequantize", quantize_dequantize, floats(0, 1, 1, 63.5, -64)),
    (
        "lrn",
        lambda n: n.net.add_lrn(n.input(torch.ones(1, 4, 1, 1)), 3, 1.0, 0.75, 1.0),
        floats(0.6817, 0.5946, 0.5946, 0.6817).view(1, 4, 1, 1),
    ),
]


@pytest.mark.parametrize(("name", "make", "expected"), CASES, ids=[case[0] for case in CASES])
def test_the_reference_does_what_tensorrt_8_6_was_seen_to_do(
    bench: Any, name: str, make: Any, expected: Any
) -> None:
    """Acceptance, shape, type and values of one small network agree with the observation."""
    assert_observed(bench, name, make, expected)
