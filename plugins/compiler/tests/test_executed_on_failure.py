"""The setting ``torch_executed_on_failure``: an op whose converter fails runs in PyTorch."""

import pytest
import torch
from torch import nn

import torchtrt
from torchtrt.errors import ConversionError, ConversionWarning, NoEngineWarning, SettingsError
from torchtrt.packs import ConverterPriority, use_packs
from torchtrt.tensorrt import trt
from torchtrt_reference import VERSIONS

X = torch.rand(4, 4)


def raises(ctx, self, **_):
    """Fails as a faulty converter does."""
    raise ZeroDivisionError("of a test")


def is_refused(ctx, self, **_):
    """Asks for a layer that TensorRT refuses."""
    return ctx.net.add_softmax(ctx.net.add_shape(self).get_output(0)).get_output(0)


def returns_another_shape(ctx, self, **_):
    """Returns what PyTorch did not export."""
    return ctx.net.add_reduce(self, trt.ReduceOperation.SUM, 1, False).get_output(0)


@pytest.fixture(params=[raises, is_refused, returns_another_shape])
def faulty(request):
    """A converter of the program's own for ``erf`` that fails."""
    register = torchtrt.dynamo_tensorrt_converter(
        torch.ops.aten.erf.default,
        priority=ConverterPriority.HIGH,
        supports_dynamic_shapes=True,
    )
    with use_packs():
        register(request.param)
        yield request.param


class Model(nn.Module):
    """Two ops whose converters fail, between others."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        """Returns two results, of which one needs no faulty op."""
        y = self.first(x).relu()
        z = self.second(torch.erf(y) + x)
        return torch.erf(z * 2).sin(), y * 3


class Branch(nn.Module):
    """A faulty op in a branch of a branch."""

    def forward(self, x):
        """Returns what the branch computes."""

        def inner(x):
            return torch.cond(x.sum() > 100, lambda x: torch.erf(x), lambda x: x * 3, (x,))

        return torch.cond(x.sum() > 0, inner, lambda x: x * 2, (x.cos(),)).sin() + 1


def compiled(model, inputs=(X,), **settings):
    """Returns the compiled model; the warning is expected."""
    with pytest.warns(ConversionWarning, match=r"local.* could not convert aten\.erf"):
        return torchtrt.compile(
            model.eval(), inputs, min_block_size=1, torch_executed_on_failure=True, **settings
        )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.usefixtures("faulty")
def test_an_op_whose_converter_fails_runs_in_pytorch(version):
    """With the pack, the node and the reason in the report. All else is in engines."""
    model = Model()
    with torchtrt.use_tensorrt(f"reference@{version}"):
        fast = compiled(model)
        torch.testing.assert_close(fast(X), model(X))
        assert [op.op for op in fast.report.in_torch] == ["aten.erf.default"] * 2
        for op in fast.report.in_torch:
            assert op.codes == ("failed",)
            assert op.node in op.reason
            assert "local" in op.reason
            assert "torch.erf" in op.model_line
        assert sum(row.count for row in fast.report.converted) == 7
        assert len(fast.report.blocks) == 3


@pytest.mark.usefixtures("faulty")
def test_without_the_setting_compiling_ends():
    """The error names the setting."""
    with pytest.raises(ConversionError, match="torch_executed_on_failure=True"):
        torchtrt.compile(Model().eval(), (X,), min_block_size=1)


@pytest.mark.usefixtures("faulty")
def test_an_op_in_a_branch_leaves_the_branch_to_pytorch():
    """Of a branch, no part can be in an engine alone."""
    model = Branch()
    fast = compiled(model)
    for x in (X, -X, X * 100):
        torch.testing.assert_close(fast(x), model(x))
    assert [op.op for op in fast.report.in_torch] == ["higher_order.cond"]


@pytest.mark.usefixtures("faulty")
def test_with_a_cache_and_other_weights(tmp_path):
    """The engines of the other ops are kept, and take other weights."""
    model, other = Model(), Model().eval()
    for _ in range(2):
        fast = compiled(model, engine_cache=tmp_path, immutable_weights=False)
        torch.testing.assert_close(fast(X), model(X))
    fast = torchtrt.refit_module_weights(fast, other)
    torch.testing.assert_close(fast(X), other(X))


@pytest.mark.usefixtures("faulty")
def test_sizes_that_vary():
    """From the smallest on."""
    model = Model()
    fast = compiled(model, [torchtrt.Input(min_shape=(1, 4), opt_shape=(4, 4), max_shape=(8, 4))])
    for size in (1, 8):
        x = torch.rand(size, 4)
        torch.testing.assert_close(fast(x), model(x))


@pytest.mark.usefixtures("faulty")
def test_a_saved_model(tmp_path):
    """Has its report."""
    model = Model()
    torchtrt.save(compiled(model), tmp_path / "model.pt2")
    loaded = torchtrt.load(tmp_path / "model.pt2")
    torch.testing.assert_close(loaded(X), model(X))
    assert [op.codes for op in loaded.report.in_torch] == [("failed",)] * 2


@pytest.mark.usefixtures("faulty")
def test_torch_compile_takes_the_setting():
    """As an option."""
    torch.compiler.reset()  # which would refit the engines of the last model with this code
    options = {"min_block_size": 1, "torch_executed_on_failure": True}
    model = Model().eval()
    fast = torch.compile(model, backend="torchtrt", options=options)
    with torch.no_grad(), pytest.warns(ConversionWarning, match=r"aten\.erf"):
        torch.testing.assert_close(fast(X), model(X))


@pytest.mark.usefixtures("faulty")
def test_a_model_of_which_nothing_remains_runs_in_pytorch():
    """With a warning."""

    class Alone(nn.Module):
        def forward(self, x):
            return torch.erf(x)

    with pytest.warns(NoEngineWarning):
        fast = compiled(Alone())
    torch.testing.assert_close(fast(X), torch.erf(X))


def test_it_contradicts_full_compilation():
    """Nothing may stay in PyTorch there."""
    with pytest.raises(SettingsError, match="Drop one"):
        torchtrt.compile(
            Model(), (X,), torch_executed_on_failure=True, require_full_compilation=True
        )
