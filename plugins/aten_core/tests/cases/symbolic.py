"""Cases of arithmetic on sizes."""

import math
import operator

import torch

from ..harness import T, case


def on_sizes(op, compute, label=""):
    """Returns a case that adds a number computed from sizes, which may be a condition, to a tensor."""

    def function(x):
        return x + torch.full((1,), compute(x.shape[0], x.shape[1]), dtype=torch.float32)

    return case(op, "b s", function=function, label=label)


CASES = [
    case("aten.sym_size.int", "b s", function=lambda x: x.view(x.shape[1], x.shape[0])),
    case("aten.sym_numel.default", "b s", function=lambda x: torch.full((1,), torch.ops.aten.sym_numel(x))),
    on_sizes("operator.add", lambda b, s: b + s + 1),
    on_sizes("operator.sub", lambda b, s: s - b),
    on_sizes("operator.mul", lambda b, s: 2 * b * s),
    on_sizes("operator.floordiv", lambda b, s: s // 2),
    on_sizes("operator.mod", lambda b, s: s % 3),
    on_sizes("operator.neg", lambda b, s: -s),
    on_sizes("operator.pow", lambda b, s: s**2),
    on_sizes("operator.truediv", lambda b, s: b / s),
    on_sizes("torch.sym_max", lambda b, s: torch.sym_max(b, s)),
    on_sizes("torch.sym_min", lambda b, s: torch.sym_min(b, s)),
]
