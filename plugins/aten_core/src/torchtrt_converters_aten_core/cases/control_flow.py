"""Cases of branches and loops that depend on data."""

from typing import Any

import torch

from torchtrt_converters_aten_core.torch_internals import while_loop
from torchtrt_testing.cases import op_case
from torchtrt_testing.tensors import TensorSpec

ONES, MINUS_ONES = (TensorSpec("batch 4", low=value, high=value) for value in (1.0, -1.0))


def scaled_by_sign(x: torch.Tensor, y: torch.Tensor) -> Any:
    """Two results. A branch passes one of them through."""
    return torch.cond(
        x.sum() > 0, lambda a, b: (a * 2 + b, b.clone()), lambda a, b: (a - b, b + 1), (x, y)
    )


def nested(x: torch.Tensor) -> Any:
    """A branch inside a branch."""
    return torch.cond(
        x.sum() > 0,
        lambda a: torch.cond(a.max() > 2, torch.sin, torch.cos, (a,)),
        lambda a: a.exp(),
        (x,),
    )


def doubled_until(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A loop that carries a count and a tensor."""
    (count, result) = while_loop(
        lambda i, a: (a.sum() < 100) & (i < 9),
        lambda i, a: (i + 1, a * 2 + 1),
        (torch.zeros((), dtype=torch.int64), x),
    )
    return count, result


CASES = [
    op_case(
        "higher_order.cond",
        ONES,
        TensorSpec("4"),
        function=scaled_by_sign,
        label="true",
    ),
    op_case(
        "higher_order.cond",
        MINUS_ONES,
        TensorSpec("4"),
        function=scaled_by_sign,
        label="false",
    ),
    *(
        op_case(
            "higher_order.cond",
            TensorSpec("batch 4", low=value, high=value),
            function=nested,
            label=label,
        )
        for label, value in (("nested", 1.0), ("nested-high", 3.0), ("nested-false", -1.0))
    ),
    op_case("higher_order.while_loop", ONES, function=doubled_until),
    op_case(
        "higher_order.while_loop",
        TensorSpec("batch 4", low=90, high=99),
        function=doubled_until,
        label="no trips",
    ),
]
