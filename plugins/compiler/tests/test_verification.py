"""``verify="reference"`` compares the networks with eager PyTorch."""

import dataclasses
import math

import pytest
import torch

import torchtrt
import torchtrt_rtx
from tests.support.modules import Function
from torchtrt.errors import SettingsError, TensorRTUnavailableError, VerificationError
from torchtrt.packs import use_packs
from torchtrt.packs.state import current_packs
from torchtrt.registry import dynamo_tensorrt_converter
from torchtrt.tensorrt import Capability, supports
from torchtrt.tensorrt.probes import answering_for
from torchtrt_compiler.comparison import largest_difference
from torchtrt_compiler.verification import closest_reference
from torchtrt_testing.faults import watched_tensorrt

REFERENCE = "reference@11.4.0"
needs_wheels = pytest.mark.skipif(
    not torchtrt_rtx.VERSIONS, reason="the wheels of TensorRT for RTX are not installed"
)
VARYING = torchtrt.Input(min_shape=(1, 8), opt_shape=(3, 8), max_shape=(6, 8))


class TwoResults(torch.nn.Module):
    """Results of two dtypes."""

    def forward(self, x):
        return torch.softmax(x * 3, -1), x.argmax(-1)


def compiled(model, inputs, **settings):
    """Returns a model, compiled and verified."""
    return torchtrt.compile(
        model.eval(), inputs, verify="reference", require_full_compilation=True, **settings
    )


@needs_wheels
def test_what_this_machine_cannot_run_is_compared_at_the_limits_of_each_range():
    """The report has a row for each output and size."""
    with torchtrt.use_tensorrt("rtx"):
        report = compiled(TwoResults(), [VARYING]).report

    rows = [(row.output, row.sizes) for row in report.verified]
    expected = [(f"output {output}", ((batch, 8),)) for batch in (1, 3, 6) for output in (0, 1)]
    assert expected == rows
    assert {REFERENCE} == {row.tensorrt for row in report.verified}
    assert all(row.agrees for row in report.verified)
    assert 0 == report.verified[1].tolerance


@needs_wheels
def test_a_loaded_model_keeps_the_rows(tmp_path):
    """As it keeps the rest of its report."""
    with torchtrt.use_tensorrt("rtx"):
        model = compiled(TwoResults(), [torch.rand(2, 8)])
    torchtrt.save(model, tmp_path / "model.ttrt")

    assert model.report.verified == torchtrt.load(tmp_path / "model.ttrt").report.verified


def test_a_wrong_network_is_an_error_that_names_output_sizes_and_difference():
    """A TensorRT that is wrong by 1 for each element."""

    def off_by_one(execution):
        (output,) = execution.outputs.values()
        output += 1

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())

    wrong = watched_tensorrt(changes=off_by_one)
    with torchtrt.use_tensorrt(REFERENCE), wrong, pytest.raises(VerificationError) as caught:
        compiled(model, [VARYING])

    (first, *_) = str(caught.value).splitlines()
    assert first.startswith(
        f"output 0 differs from eager PyTorch by 1 on {REFERENCE} for inputs of 1 x 8;"
    )
    assert "the tolerance is 0.000" in first
    assert [1, 3, 6] == [row.sizes[0][0] for row in caught.value.outputs]


class Doubled(torch.nn.Module):
    """Calls an op of its own, whose converter is wrong."""

    def forward(self, x):
        return torch.ops.torchtrt_verification.doubled(x)


def test_a_wrong_converter_is_found():
    """It builds, and only running it tells."""
    with torch.library._scoped_library("torchtrt_verification", "DEF") as library:
        library.define("doubled(Tensor x) -> Tensor")
        library.impl("doubled", lambda x: x * 2, "CompositeExplicitAutograd")

        @dynamo_tensorrt_converter("torchtrt_verification::doubled", supports_dynamic_shapes=True)
        def identity(ctx, x):
            return ctx.net.add_identity(x).get_output(0)

        with torchtrt.use_tensorrt(REFERENCE), pytest.raises(VerificationError, match="output 0"):
            compiled(Doubled(), [torch.rand(2, 8)])


def test_what_eager_pytorch_does_not_run_cannot_be_compared():
    """PyTorch has no QR factorization of float16 on a CPU."""
    model = Function(torch.linalg.qr)
    with pytest.raises(VerificationError, match=r"Nothing can be compared, .*'Half'"):
        compiled(model, [torch.rand(3, 3).half()])


def test_memory_that_the_model_writes_to_is_unchanged():
    """A comparison calls the model several times."""

    class Counts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(8))

        def forward(self, x):
            self.count.add_(x)
            return self.count * 2

    model = Counts().eval()
    x = torch.rand(8)
    with torchtrt.use_tensorrt(REFERENCE):
        result = torchtrt.compile(model, [x], verify="reference", min_block_size=1)

    assert 0 == model.count.abs().max()
    torch.testing.assert_close(result(x), 2 * x)


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        ([1.0, math.inf], [1.0, math.inf], 0),
        ([math.nan], [math.nan], 0),
        ([math.nan], [1.0], math.inf),
        ([1.0, 2.0], [1.0, 2.5], 0.5),
        ([1.0], [1.0, 2.0], math.inf),
        ([1000.01, 0.00001], [1000.0, 0.0], 0.01),
        ([1000.01, 0.001], [1000.0, 0.0], 0.001),
    ],
)
def test_the_largest_difference(mine, theirs, expected):
    """Equal infinities and NaN in both do not differ."""
    difference = largest_difference(torch.tensor(mine), torch.tensor(theirs), 1e-4).difference

    assert difference == pytest.approx(expected, rel=0.01)


def test_integers_are_equal_or_differ():
    """They have no tolerance."""
    assert (1, 0, (0,)) == largest_difference(torch.tensor([2]), torch.tensor([3]), 0.5)


@pytest.mark.parametrize(
    ("in_use", "expected"),
    [("8.6.0", "8.6.0"), ("10.3.0", "10.16.1"), ("11.4.0", "11.4.0"), ("12.0.1", "11.4.0")],
)
def test_the_reference_of_the_closest_interface_is_used(machine, in_use, expected):
    """A major version is further away than any minor one."""
    machine.has_tensorrt(in_use)

    with torchtrt.use_tensorrt("real"):
        assert expected == closest_reference()


def test_without_the_reference_the_error_says_what_to_install():
    """Before exporting."""
    packs = current_packs()
    others = tuple(other for other in packs.others if other.info.name != "reference")
    refused = pytest.raises(TensorRTUnavailableError, match="pip install torchtrt-reference")
    with (
        torchtrt.use_tensorrt(REFERENCE),
        use_packs(dataclasses.replace(packs, others=others)),
        refused,
    ):
        compiled(torch.nn.Tanh(), [torch.rand(2)])


def test_another_value_is_an_error():
    """There is one kind of verification."""
    with pytest.raises(SettingsError, match="must be 'engines', 'reference', False or None"):
        torchtrt.explain(torch.nn.Tanh(), [torch.rand(2)], verify=True)


@needs_wheels
def test_converters_see_the_capabilities_of_the_tensorrt_that_is_checked():
    """So the reference builds the network that TensorRT for RTX built."""
    with torchtrt.use_tensorrt("rtx") as rtx, torchtrt.use_tensorrt(REFERENCE):
        assert supports(Capability.DATA_DEPENDENT_SIZES)
        with answering_for(rtx):
            assert not supports(Capability.DATA_DEPENDENT_SIZES)
            assert supports(Capability.RUNTIME_CACHE)
