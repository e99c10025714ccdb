"""Engines that compute something else than PyTorch are found while they are built, and their blocks divided."""

import contextlib
import re
import warnings

import pytest
import sympy
import torch
from torch import nn

import torchtrt
from tests.support.doubling import doubling_op
from tests.support.modules import Function
from torchtrt.conversion.inputs import SizeRange
from torchtrt.errors import BuildError, ConversionWarning, NoEngineWarning
from torchtrt_compiler.building.engine_checks import sizes_to_compare
from torchtrt_testing.faults import watched_tensorrt

VARYING = torchtrt.Input(
    min_shape=(1, 2, 8), opt_shape=(3, 4, 8), max_shape=(6, 7, 8), device="cpu"
)
OF_ONE = torchtrt.Input(min_shape=(1, 4, 8), opt_shape=(3, 4, 8), max_shape=(6, 4, 8), device="cpu")


class Waves(nn.Module):
    """Three ops."""

    def forward(self, x):
        return (x.sin() * 2).cos()


def of(execution):
    """Returns the input and the output of an engine that has one of each."""
    (x,), (y,) = execution.inputs.values(), execution.outputs.values()
    return x, y


def changed(how):
    """Returns a TensorRT whose engines compute another output, of their input and the right output."""

    def changes(execution):
        x, y = of(execution)
        y.copy_(how(x, y))

    return watched_tensorrt(changes=changes)


@pytest.fixture
def wrong_together():
    """Engines with a sine and a cosine are wrong for more than two rows. Returns the shapes of the inputs of calls."""

    def wrong(execution):
        x, y = of(execution)
        if {"sin", "cos"} <= set(re.findall(r"aten\.(sin|cos)", " ".join(execution.layers))):
            y += x.shape[0] > 2

    with watched_tensorrt(changes=wrong) as tensorrt:
        yield tensorrt.executions


def compiled(**settings):
    """Returns the model, compiled with sizes that vary."""
    return torchtrt.compile(
        Waves().eval(), [settings.pop("spec", VARYING)], min_block_size=1, **settings
    )


def test_a_wrong_engine_is_divided_until_its_parts_are_right(wrong_together):
    """The report says what differed, and for which sizes."""
    model = compiled(verify="engines")

    assert 2 == len(model.report.blocks)
    assert (
        "computes something else than PyTorch for inputs of the sizes [3, 4, 8]: output 0"
        in str(model.report.splits[0])
    )
    x = torch.randn(5, 3, 8)
    torch.testing.assert_close(model(x), Waves()(x))


def test_right_engines_stay_whole(wrong_together):
    """They run at the limits, and with each size at one limit and the others at the other."""
    model = torchtrt.compile(nn.Tanh().eval(), [VARYING], min_block_size=1, verify="engines")

    assert not model.report.splits
    sizes = [(3, 4, 8), (1, 2, 8), (6, 7, 8), (6, 2, 8), (1, 7, 8)]
    assert [(size,) for size in sizes] == wrong_together


@pytest.mark.parametrize(
    ("settings", "is_compared"),
    [({}, True), ({"verify": False}, False), ({"spec": OF_ONE}, False)],
    ids=["default", "off", "one-size"],
)
def test_a_tensorrt_that_needs_it_is_compared_where_several_sizes_vary(
    machine, settings, is_compared
):
    """And only there, unless the setting turns it off. Here a comparison fails, because its inputs are on a CPU."""
    machine.has_tensorrt("8.6.0")
    machine.has_gpu((9, 0))
    fails = pytest.raises(BuildError, match=r"block_0 cannot run: .* the tensors are on cpu")
    with torchtrt.use_tensorrt("real"), fails if is_compared else contextlib.nullcontext():
        assert not compiled(**settings).report.splits


def test_nothing_is_compared_by_default(wrong_together):
    """TensorRT without this defect needs no comparison."""
    assert not compiled().report.splits
    assert [] == wrong_together


def test_a_wrong_engine_of_one_op_stays_in_pytorch():
    """Or ends the compilation, where nothing may stay there."""
    tripled = changed(lambda x, y: 3 * y)
    with tripled, pytest.raises(BuildError, match="computes something else than PyTorch"):
        torchtrt.compile(
            nn.Tanh().eval(), [VARYING], require_full_compilation=True, verify="engines"
        )
    model = Waves().eval()
    with changed(lambda x, y: 3 * y), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        left = torchtrt.compile(
            model, [VARYING], min_block_size=1, torch_executed_on_failure=True, verify="engines"
        )
    assert [ConversionWarning] * 3 + [NoEngineWarning] == [warning.category for warning in caught]
    assert "computes something else" in str(caught[0].message)
    assert not left.report.blocks
    torch.testing.assert_close(left(torch.ones(2, 3, 8)), model(torch.ones(2, 3, 8)))


def test_an_engine_that_destroys_the_context_ends_the_compilation():
    """No call of this process could use the GPU afterwards."""

    def crash(execution):
        raise torch.AcceleratorError("an illegal memory access was encountered")

    ends = pytest.raises(BuildError, match="In a new process, compile for fewer or smaller ranges")
    with watched_tensorrt(changes=crash), ends:
        compiled(verify="engines")


def test_sizes_that_the_model_does_not_take_are_left_out(tmp_path):
    """The record says why, and the others are compared."""

    def kernel(x):
        if x.shape[0] < 2:
            raise RuntimeError("out of memory")
        return x + x

    recorded = torchtrt.record_compilation(tmp_path / "record")
    with doubling_op(kernel) as op, watched_tensorrt() as tensorrt, recorded:
        model = Function(op).eval()
        made = torchtrt.compile(model, [VARYING], min_block_size=1, verify="engines")

    assert [((3, 4, 8),), ((6, 7, 8),), ((6, 2, 8),)] == tensorrt.executions
    assert 1 == len(made.report.blocks)
    assert not made.report.splits
    log = (tmp_path / "record" / "compilation.log").read_text()
    assert log.count("not compared   RuntimeError: out of memory") == 2


class Nearest(nn.Module):
    """Differences of numbers that are about equal, and rows of a table that are about as near as others."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(500, 8, generator=torch.Generator().manual_seed(0)))

    def forward(self, x):
        """Two outputs, and neither is anywhere near the same where numbers are rounded."""
        products = x @ self.table.T
        one = x.sin() ** 2 + x.cos() ** 2 - 1
        return one * 1e6, (products == products.amax(-1, keepdim=True)).float().cumsum(-1)


@pytest.mark.parametrize("is_wrong", [False, True], ids=["rounded", "wrong"])
def test_rounding_that_grows_is_no_mistake(is_wrong):
    """PyTorch, with its numbers rounded, shows how much it grows; a larger difference is a mistake."""
    nearest = Nearest().eval()

    def rounded(execution):
        (x,) = execution.inputs.values()
        for output, value in zip(execution.outputs.values(), nearest(x * 1.0003), strict=True):
            output.copy_(value * (1e4 if is_wrong else 1))

    settings = {"min_block_size": 1, "verify": "engines", "torch_executed_on_failure": True}
    with watched_tensorrt(changes=rounded), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = torchtrt.compile(nearest, [VARYING], **settings)

    assert is_wrong == bool(model.report.splits)


def test_sizes_that_a_computer_has_no_memory_for_are_left_out(tmp_path):
    """Here the largest ones need an input of 1,024 x 1,024 x 300 elements, and an op's result."""
    large = torchtrt.Input(
        min_shape=(1, 2, 300), opt_shape=(3, 4, 300), max_shape=(1024, 1024, 300)
    )
    with watched_tensorrt() as tensorrt, torchtrt.record_compilation(tmp_path / "record"):
        torchtrt.compile(nn.Tanh().eval(), [large], min_block_size=1, verify="engines")

    others = [(3, 4, 300), (1, 2, 300), (1024, 2, 300), (1, 1024, 300)]
    assert [(size,) for size in others] == tensorrt.executions
    log = (tmp_path / "record" / "compilation.log").read_text()
    assert "not compared   the sizes 1024, 1024 need 2.3 GiB" in log


class Reader(nn.Module):
    """Reads a table, an example, flags and numbers."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5, 8)

    def forward(self, ids, x, flags, count):
        """Each input with one size that varies."""
        rows = self.table(ids) + x
        return torch.where(flags[:, None], rows, 0.0) * count[:, None]


def test_inputs_are_valid_indices_or_resized_examples():
    """A row that the table lacks would end the process on a GPU."""
    seen = []

    def note(execution):
        seen.append([tensor.clone() for tensor in execution.inputs.values()])

    examples = [torch.tensor([1, 4]), torch.arange(16.0).reshape(2, 8)]
    size = torch.export.Dim("n", min=1, max=9)
    specs = [
        torchtrt.Input(min_shape=(1,), opt_shape=(4,), max_shape=(9,), dtype=dtype)
        for dtype in (torch.int64, torch.bool, torch.int64)
    ]
    input_ = torchtrt.Input(min_shape=(1, 8), opt_shape=(4, 8), max_shape=(9, 8))
    with watched_tensorrt(changes=note):
        torchtrt.compile(
            Reader().eval(), [specs[0], input_, *specs[1:]], min_block_size=1, verify="engines"
        )
        torchtrt.compile(
            Reader().eval(),
            [*examples, torch.ones(2, dtype=torch.bool), torch.tensor([3, 5])],
            dynamic_shapes=({0: size},) * 4,
            min_block_size=1,
            verify="engines",
        )

    generated, resized = seen[2], seen[-1]
    assert {0, 1, 2, 3, 4} >= set(generated[0].tolist()) > {0}
    assert generated[2].all()
    assert not generated[3].any()
    assert [1, 4, 1, 4, 1, 4, 1, 4, 1] == resized[0].tolist()
    torch.testing.assert_close(resized[1][2:4], examples[1])
    assert [3, 5, 3] == resized[3][:3].tolist()


def test_sizes_at_opposite_limits_are_compared():
    """An engine may be right for the limits of all sizes together, and wrong for others."""
    profile = {"a": SizeRange(1, 2, 3), "b": SizeRange(4, 4, 4), "c": SizeRange(5, 6, 7)}

    points = [tuple(sizes.values()) for sizes in sizes_to_compare(profile)]

    assert [(2, 4, 6), (1, 4, 5), (3, 4, 7), (3, 4, 5), (1, 4, 7)] == points


class EightBits(nn.Module):
    """An output in FP8."""

    def forward(self, x):
        return x.tanh().to(torch.float8_e4m3fn)


def test_sizes_that_no_call_has_are_not_compared():
    """TensorRT 8.6 ends the process for a slice beyond the end of a tensor."""
    whole, part = sympy.symbols("whole part", integer=True)
    profile = {whole: SizeRange(1, 4, 7), part: SizeRange(1, 4, 7)}
    points = [(sizes[whole], sizes[part]) for sizes in sizes_to_compare(profile, [part <= whole])]

    assert {(1, 1), (4, 4), (7, 1), (7, 7)} <= {*points}
    assert all(part <= whole for whole, part in points)


def test_outputs_in_fp8_are_compared():
    """PyTorch has few ops for them."""
    with torchtrt.use_tensorrt("reference@11.4.0"):
        model = torchtrt.compile(EightBits().eval(), [VARYING], min_block_size=1, verify="engines")

    assert not model.report.splits
    x = torch.randn(3, 2, 8)
    torch.testing.assert_close(model(x).float(), EightBits()(x).float(), rtol=0.07, atol=0.01)
