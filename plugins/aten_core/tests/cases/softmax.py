"""Cases of softmax and its logarithm."""

import math

import torch

from ..harness import T, case

F16, I64 = torch.float16, torch.int64
large = T(values=[[0.0, 150.0], [-1e4, 1e4], [-math.inf, 0.0]])

CASES = [
    case("aten.softmax.int", "b s", -1),
    case("aten.softmax.int", "b s 3", 0, label="first"),
    case("aten.softmax.int", "5", 0, label="vector"),
    case("aten.softmax.int", "", 0, label="scalar"),
    case("aten.softmax.int", T("b s", I64), -1, torch.float32, label="int"),
    case("aten.softmax.int", large, 1, label="large"),
    case("aten.softmax.int", T("b s", F16), 1, label="half", tolerance=2e-3),
    case("aten._softmax.default", "b s", 1, False),
    case("aten.log_softmax.int", "b s", -1),
    case("aten.log_softmax.int", large, 1, label="large"),
    case("aten.log_softmax.int", "", 0, label="scalar"),
    case("aten.log_softmax.int", T("b s", F16), 1, label="half", tolerance=2e-3),
    case("aten._log_softmax.default", "b s", 0, False),
    case("aten.logsumexp.default", "b s 4", [1, 2]),
    case("aten.logsumexp.default", large, [1], True, label="large"),
    case(
        "aten.logsumexp.default", T(values=[-math.inf, -math.inf]), [0], label="all-minus-infinity"
    ),
]
