"""Cases of random ops: what must hold of every number that is drawn."""

from collections.abc import Sequence

import torch

from torchtrt_testing.cases import op_case
from torchtrt_testing.tensors import TensorSpec

F16, I64 = torch.float16, torch.int64
aten = torch.ops.aten


def within(drawn: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """Returns which elements are from ``low`` to below ``high``: all of them."""
    return (drawn >= low) & (drawn < high)


def mean_near(drawn: torch.Tensor, mean: float, allowed: float) -> torch.Tensor:
    """Returns whether the mean of many numbers is near the expected one."""
    return (drawn.float().mean() - mean).abs() < allowed


def drops(
    drawn: torch.Tensor, x: torch.Tensor, values: Sequence[float]
) -> tuple[torch.Tensor, ...]:
    """Returns whether every element is one of two multiples of ``x``, and both occur."""
    first, second = ((drawn - factor * x).abs() < 1e-5 for factor in values)
    return (first | second).all(), first.any(), second.any()


CASES = [
    op_case(
        "aten.rand_like.default",
        "batch length",
        function=lambda x: within(torch.rand_like(x), 0, 1),
    ),
    op_case(
        "aten.rand_like.default",
        "",
        function=lambda x: within(torch.rand_like(x), 0, 1),
        label="scalar",
    ),
    op_case(
        "aten.rand_like.default",
        TensorSpec("64 64", F16),
        function=lambda x: within(torch.rand_like(x), 0, 1),
        label="half",
    ),
    op_case(
        "aten.rand_like.default",
        "64 64",
        function=lambda x: mean_near(torch.rand_like(x), 0.5, 0.05),
        label="mean",
    ),
    op_case(
        "aten.rand_like.default",
        "batch length",
        function=lambda x: (torch.rand_like(x) == torch.rand_like(x)).sum() > x.numel() // 2,
        label="twice",
    ),
    op_case(
        "aten.rand.default",
        "batch length",
        function=lambda x: within(torch.rand(x.shape[0], 3) + 0 * x[:, :1], 0, 1),
    ),
    op_case(
        "aten.randn_like.default",
        "64 64",
        function=lambda x: (
            mean_near(torch.randn_like(x), 0.0, 0.1),
            mean_near(torch.randn_like(x) ** 2, 1.0, 0.2),
        ),
    ),
    op_case(
        "aten.randn_like.default",
        "batch length",
        function=lambda x: torch.randn_like(x).abs() < 100,
        label="dynamic",
    ),
    op_case(
        "aten.randn.default",
        "batch length",
        function=lambda x: torch.randn(x.shape[0], 1) + 0 * x < 100,
    ),
    op_case(
        "aten.randint_like.low_dtype",
        "batch length",
        function=lambda x: within(torch.randint_like(x, -2, 3, dtype=I64), -2, 3),
    ),
    op_case(
        "aten.randint_like.default",
        "64 64",
        function=lambda x: (
            within(torch.randint_like(x, 4), 0, 4),
            mean_near(torch.randint_like(x, 4), 1.5, 0.15),
            (torch.randint_like(x, 4) == 3).any(),
        ),
    ),
    op_case(
        "aten.randint.low",
        "batch length",
        function=lambda x: within(torch.randint(2, 5, (x.shape[0], 1)) + 0 * x, 2, 5),
    ),
    op_case(
        "aten.randint.default",
        "batch length",
        function=lambda x: within(torch.randint(5, (x.shape[0], 1)) + 0 * x, 0, 5),
    ),
    op_case(
        "aten.bernoulli.default",
        TensorSpec(values=[[0.0, 1.0, 0.0], [1.0, 1.0, 0.0]]),
        function=lambda x: torch.bernoulli(x) == x,
    ),
    op_case(
        "aten.bernoulli.p",
        "64 64",
        function=lambda x: (
            mean_near(aten.bernoulli.p(x, 0.25), 0.25, 0.1),
            ((aten.bernoulli.p(x, 0.25) * 2 - 1).abs() == 1).all(),
            aten.bernoulli.p(x, 1.0) == 1,
            aten.bernoulli.p(x, 0.0) == 0,
        ),
    ),
    op_case(
        "aten.uniform.default",
        "batch length",
        function=lambda x: within(aten.uniform.default(x, -2.0, 5.0), -2, 5),
    ),
    op_case(
        "aten.normal.Tensor_Tensor",
        "batch length",
        TensorSpec("length", low=0.0, high=0.0),
        function=lambda mean, deviation: aten.normal.Tensor_Tensor(mean, deviation),
    ),
    op_case(
        "aten.normal.Tensor_float",
        TensorSpec("64 64", low=4.0, high=4.0),
        function=lambda mean: mean_near(torch.normal(mean, 0.5), 4.0, 0.1),
    ),
    op_case(
        "aten.normal.float_Tensor",
        TensorSpec("64 64", low=0.5, high=0.5),
        function=lambda deviation: mean_near(torch.normal(4.0, deviation), 4.0, 0.1),
    ),
    op_case(
        "aten.normal_functional.default",
        "64 64",
        function=lambda x: mean_near(aten.normal_functional.default(x, 4.0, 0.5), 4.0, 0.1),
    ),
    op_case(
        "aten.exponential.default",
        "64 64",
        function=lambda x: (
            within(aten.exponential.default(x, 2.0), 0, 100),
            mean_near(aten.exponential.default(x, 2.0), 0.5, 0.1),
        ),
    ),
    op_case(
        "aten.geometric.default",
        "64 64",
        function=lambda x: (
            within(aten.geometric.default(x, 0.5), 1, 1000),
            mean_near(aten.geometric.default(x, 0.5), 2.0, 0.2),
        ),
    ),
    op_case(
        "aten.cauchy.default",
        "64 64",
        function=lambda x: mean_near((aten.cauchy.default(x, 2.0, 3.0) < 5.0) * 1.0, 0.75, 0.05),
    ),
    op_case(
        "aten.log_normal.default",
        "64 64",
        function=lambda x: mean_near(aten.log_normal.default(x, 1.0, 0.5).log(), 1.0, 0.1),
    ),
    op_case("aten.dropout.default", "batch 4", 0.5, False),
    op_case(
        "aten.dropout.default",
        TensorSpec("64 64", low=1.0, high=3.0),
        function=lambda x: drops(aten.dropout.default(x, 0.25, True), x, (0.0, 1 / 0.75)),
        label="training",
    ),
    op_case(
        "aten.dropout.default",
        "batch length",
        function=lambda x: (aten.dropout.default(x, 1.0, True), aten.dropout.default(x, 0.0, True)),
        label="all-or-nothing",
    ),
    op_case("aten.feature_dropout.default", "batch 4", 0.5, False),
    op_case(
        "aten.feature_dropout.default",
        TensorSpec("64 8 3 3", low=1.0, high=3.0),
        function=lambda x: (
            *drops(aten.feature_dropout.default(x, 0.5, True), x, (0.0, 2.0)),
            (aten.feature_dropout.default(x, 0.5, True) / x).flatten(2).std(2) < 1e-3,
        ),
        label="training",
    ),
    op_case("aten.alpha_dropout.default", "batch 4", 0.5, False),
    op_case(
        "aten.alpha_dropout.default",
        TensorSpec("64 64", low=1.0, high=1.0),
        function=lambda x: (
            aten.alpha_dropout.default(x, 0.5, True).amin(),
            aten.alpha_dropout.default(x, 0.5, True).amax(),
            aten.alpha_dropout.default(x, 1.0, True),
        ),
        label="training",
    ),
    op_case("aten.feature_alpha_dropout.default", "batch 4", 0.5, False),
    op_case(
        "aten.feature_alpha_dropout.default",
        "batch 4 length",
        function=lambda x: (
            (aten.feature_alpha_dropout.default(x, 0.5, True) - x).abs() < 10,
            aten.feature_alpha_dropout.default(x, 1.0, True),
        ),
        label="training",
    ),
    op_case("aten.native_dropout.default", "batch length", 0.5, False),
    op_case(
        "aten.native_dropout.default",
        TensorSpec("64 64", low=1.0, high=3.0),
        function=lambda x: aten.native_dropout.default(x, 0.5, True)[1].any(),
        label="training",
    ),
    op_case("aten.rrelu.default", "batch length", 0.1, 0.3, False),
    op_case(
        "aten.rrelu.default",
        TensorSpec("batch length", low=-3.0, high=-1.0),
        function=lambda x: within(aten.rrelu.default(x, 0.1, 0.3, True) / x, 0.1, 0.3001),
        label="training",
    ),
    op_case(
        "aten.randperm.default",
        "7",
        function=lambda x: x[torch.sort(torch.randperm(7))[0]],
        label="all-once",
    ),
    op_case(
        "aten.randperm.default",
        "900",
        function=lambda x: ((torch.randperm(900) == torch.randperm(900)) & (x < 9)).sum() < 90,
        label="twice",
    ),
    op_case(
        "aten.multinomial.default",
        TensorSpec(values=[[0.0, 2.0, 0.0], [0.0, 0.0, 0.5]]),
        function=lambda x: torch.multinomial(x, 1),
    ),
    op_case(
        "aten.multinomial.default",
        TensorSpec("batch 6", low=0.5, high=1.0),
        function=lambda x: torch.multinomial(x, 6).sort()[0],
        label="all",
    ),
    op_case(
        "aten.multinomial.default",
        TensorSpec(values=[1.0, 0.0, 3.0]),
        function=lambda x: mean_near(torch.multinomial(x, 2000, True), 1.5, 0.2),
        label="again",
    ),
    op_case(
        "aten.multinomial.default",
        "batch length",
        function=lambda x: torch.multinomial(torch.tensor([0.0, 2.0]), x.shape[1], True) * x,
        label="again-size",
    ),
]
