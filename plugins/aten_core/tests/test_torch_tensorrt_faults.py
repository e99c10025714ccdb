"""Every fault of an operator that was seen in Torch-TensorRT 2.14, each shown not to be one here."""

import pytest
import torch
import torch.nn.functional as F

import torchtrt
from torchtrt.testing import TensorSpec, op_case, run_compiled
from torchtrt_testing.checking import check_where_exact

from .test_pack import Function

I64, I32, F16 = torch.int64, torch.int32, torch.float16
FAR = 2**24 + 1
"""The minimum integer that float32 does not hold."""

SCATTERED = ("batch 5", 1, TensorSpec("batch length", I64, 0, 4), "batch length")
WHOLE = TensorSpec("batch length", I64, -9, 9)
HUGE = TensorSpec(values=[2**31 - 1, -(2**31) + 1, 7, -7], dtype=I32)

AGREE = {
    "log_softmax of distant numbers is not the logarithm of an underflow": [
        op_case((), TensorSpec(values=[0.0, 150.0]), 0, function=torch.log_softmax)
    ],
    "scatter_reduce with mean keeps fractions": [
        op_case((), *SCATTERED, "mean", function=torch.scatter_reduce)
    ],
    "scatter_reduce without itself lowers": [
        op_case((), *SCATTERED, way, function=torch.scatter_reduce, include_self=False)
        for way in ("sum", "prod", "mean", "amax", "amin")
    ],
    "an integer times a fraction is a fraction": [
        op_case((), WHOLE, function=lambda x: x * 1.5),
        op_case((), WHOLE, function=lambda x: x + 0.5),
    ],
    "an integer is compared with a fraction as a fraction": [
        op_case((), WHOLE, function=lambda x: x > 0.5),
        op_case((), WHOLE, function=lambda x: x == 1.5),
    ],
    "integers are divided truly": [
        op_case((), WHOLE, TensorSpec("batch length", I64, 1, 4), function=torch.div)
    ],
    "remainders of large integers do not overflow": [
        op_case((), HUGE, TensorSpec(values=[3, 3, -4, 4], dtype=I32), function=function)
        for function in (torch.fmod, torch.remainder)
    ],
    "truncation of large numbers is exact": [
        op_case((), TensorSpec(values=[3e9, -3e9, 1.5, -1.5, 1e20]), function=torch.trunc)
    ],
    "the modulus of sizes rounds down as Python's does": [
        op_case((), "batch length", function=lambda x: x + (-x.shape[0]) % 4 + (-x.shape[1]) % 3)
    ],
    "extremes of large integers are exact": [
        op_case((), TensorSpec(values=[[FAR, FAR - 1], [3, -FAR]], dtype=I64), 1, function=function)
        for function in (torch.amax, torch.amin)
    ],
    "products of large integers are exact": [
        op_case((), TensorSpec(values=[[4097, 4099], [-3, 5]], dtype=I64), 1, function=torch.prod)
    ],
    "means of integers are in the dtype asked for": [
        op_case((), WHOLE, 1, function=torch.mean, dtype=torch.float32)
    ],
    "sums and products come in the dtype asked for": [
        op_case((), WHOLE, 1, function=function, dtype=torch.float32)
        for function in (torch.sum, torch.cumsum, torch.prod)
    ],
    "expm1 and log1p keep the digits of small numbers": [
        op_case((), TensorSpec(values=[1e-7, -1e-7, 1e-4, 0.5]), function=function, tolerance=1e-6)
        for function in (torch.expm1, torch.log1p)
    ],
    "elu has all three of its factors": [
        op_case((), "batch length", 0.7, 1.3, 0.4, function=torch.ops.aten.elu.default)
    ],
    "softplus has its threshold": [
        op_case((), TensorSpec(values=[-30.0, 0.0, 1.0, 9.0, 30.0]), 2.0, 3.0, function=F.softplus)
    ],
    "an added attention mask is added, not taken for a causal one": [
        op_case(
            (),
            *["batch 2 length 4"] * 3,
            function=lambda q, k, v: F.scaled_dot_product_attention(
                q, k, v, torch.triu(torch.ones(q.shape[2], q.shape[2]), 1)
            ),
        )
    ],
    "a view of a weight is not read from a copy that is gone": [
        op_case(
            (),
            "batch 5",
            function=lambda x: F.linear(x, torch.arange(15.0).reshape(5, 3).T),
        )
    ],
    "integers have bits": [
        op_case((), WHOLE, TensorSpec("batch length", I64, -9, 9), function=function)
        for function in (torch.bitwise_and, torch.bitwise_or, torch.bitwise_xor)
    ],
    "pooling has dilation and ceil_mode": [
        op_case((), "batch 2 7 8", 2, 1, 0, 2, function=F.max_pool2d),
        op_case((), "batch 2 7 8", 3, 2, 1, ceil_mode=True, function=F.max_pool2d),
        op_case((), "batch 2 7 8", 3, 2, 1, ceil_mode=True, function=F.avg_pool2d),
    ],
    "more than 3840 elements are ranked": [op_case((), "5000", 4000, function=torch.topk)],
    "a dynamic dimension is split": [
        op_case((), "length 4", function=lambda x: torch.split(x, [1, x.shape[0] - 1])),
    ],
    "dynamic dimensions inside lists are dimensions": [
        op_case((), ["length 4", "length 4"], function=lambda tensors: torch.cat(tensors)),
        op_case(
            (), ["batch length", "batch length"], function=lambda tensors: torch.stack(tensors, 1)
        ),
    ],
}
"""For each fault, as the rule that it breaks, computations that agree with PyTorch."""


@pytest.mark.parametrize("rule", AGREE)
def test_what_was_wrong_there_agrees_with_pytorch(rule, version):
    """The rule holds at least, usual and maximum sizes."""
    for example in AGREE[rule]:
        check_where_exact(example)


def layers(function, *inputs):
    """Returns how many layers a function becomes."""
    compiled = torchtrt.compile(
        Function(function).eval(), inputs, require_full_compilation=True, min_block_size=1
    )
    return sum(block.layers for block in compiled.report.blocks)


def test_scatter_add_has_as_many_layers_for_any_number_of_rows(version):
    """Nothing is unrolled."""

    def count(rows):
        index = torch.randint(0, 9, (rows, 4))
        return layers(
            lambda x, i, s: x.scatter_add(0, i, s), torch.zeros(9, 4), index, torch.rand(rows, 4)
        )

    assert 0 < count(10) == count(1000)


@pytest.mark.parametrize("draw", [torch.rand_like, torch.randn_like], ids=["rand", "randn"])
def test_random_numbers_are_drawn_in_every_run(draw, version):
    """They are not constants of the engine."""
    model = Function(lambda x: draw(x) + 0 * x).eval()
    x = torch.zeros(64)
    compiled = torchtrt.compile(model, [x], require_full_compilation=True, min_block_size=1)
    assert not torch.equal(run_compiled(compiled, x), run_compiled(compiled, x))


def test_a_random_order_is_drawn_in_every_run(version):
    """It is no constant of the engine either, and an order each time."""
    model = Function(lambda x: torch.randperm(64) + x).eval()
    x = torch.zeros(64, dtype=torch.int64)
    compiled = torchtrt.compile(model, [x], require_full_compilation=True, min_block_size=1)
    first, second = run_compiled(compiled, x), run_compiled(compiled, x)
    assert not torch.equal(first, second)
    assert torch.equal(torch.arange(64), first.sort()[0])


def test_softmax_over_another_dimension_is_another_engine():
    """What decides is the network with its attributes, not the names of its ops."""
    x = torch.rand(3, 3)
    rows, columns = (
        torchtrt.compile(Function(lambda x, d=d: x.softmax(d)).eval(), [x], min_block_size=1)
        for d in (1, 0)
    )
    torch.testing.assert_close(run_compiled(rows, x), x.softmax(1))
    torch.testing.assert_close(run_compiled(columns, x), x.softmax(0))


def test_the_optimal_size_is_never_above_the_maximum():
    """A dynamic input with a maximum size alone still has sizes in order."""
    model = Function(lambda x: x * 2).eval()
    dim = torch.export.Dim("n", min=1, max=2)
    exported = torch.export.export(
        model, (torch.rand(2, 3),), dynamic_shapes={"inputs": ({0: dim},)}, strict=False
    )
    compiled = torchtrt.compile(exported, min_block_size=1)
    for rows in (1, 2):
        x = torch.rand(rows, 3)
        torch.testing.assert_close(run_compiled(compiled, x), x * 2)
