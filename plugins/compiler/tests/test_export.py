"""``torchtrt.export``, and passes that a compilation leaves out."""

import pytest
import torch
from torch import nn

import torchtrt
from torchtrt.errors import ExportError, InputError, SettingsError
from torchtrt.registry import lowering_passes


class Mapped(nn.Module):
    """Applies a function transform, which a plain exported program keeps as a call of its own."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, scale):
        return torch.vmap(self.linear)(x) * scale


def test_a_program_is_exported_once_and_compiled_several_times(every_tensorrt, tmp_path):
    """With dynamic sizes and inputs by name, also from a file."""
    model = Mapped().eval()
    rows = torchtrt.Input(min_shape=(2, 3, 4), opt_shape=(4, 3, 4), max_shape=(8, 3, 4))
    named = {"scale": torch.rand(4)}
    program = torchtrt.export(model, [rows], kwarg_inputs=named)
    torch.export.save(program, tmp_path / "model.pt2")

    for source in (program, program, torch.export.load(tmp_path / "model.pt2")):
        compiled = torchtrt.compile(
            source, [rows], kwarg_inputs=named, require_full_compilation=True
        )
        for count in (2, 8):
            x = torch.randn(count, 3, 4)
            torch.testing.assert_close(compiled(x, **named), model(x, **named))
        with pytest.raises(InputError, match="compiled for 2 to 8"):
            compiled(torch.randn(9, 3, 4), **named)


def test_what_cannot_be_exported_is_the_error_of_compile():
    """The same classes."""
    with pytest.raises(InputError, match="needs example inputs"):
        torchtrt.export(nn.ReLU())
    with pytest.raises(ExportError):
        torchtrt.export(nn.Linear(4, 4).eval(), [torch.rand(3)])


def test_a_program_refuses_the_sizes_that_the_model_refuses():
    """Those about which the model's code asks."""

    class Asks(nn.Module):
        def forward(self, x):
            return x * 3 if x.shape[0] == 1 else x.sum(0, keepdim=True)

    rows = torchtrt.Input(min_shape=(1, 4), opt_shape=(4, 4), max_shape=(8, 4))
    program = torchtrt.export(Asks().eval(), [rows])
    with pytest.warns(UserWarning, match="You asked for 1 to 8"):
        compiled = torchtrt.compile(program, [rows], min_block_size=1)
    with pytest.raises(InputError):
        compiled(torch.rand(1, 4))


class Step(nn.Module):
    """Writes a part of a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(8, 3))

    def forward(self, x):
        self.cache[2:4] = x * 2
        return self.cache.sum(0)


def test_a_disabled_pass_does_not_run():
    """In this compilation only; results are the same."""
    x, name = torch.rand(2, 3), "aten_core.partial_writes"
    for disabled in ((), (name,), ()):
        model, expected = Step().eval(), Step().eval()
        compiled = torchtrt.compile(model, [x], min_block_size=1, disabled_passes=disabled)
        ran = [pass_.partition(" ")[0] for pass_ in compiled.report.passes]

        assert ("partial_writes" in ran) is (not disabled)
        torch.testing.assert_close(compiled(x), expected(x))
        torch.testing.assert_close(model.cache, expected.cache)


def test_all_passes_can_be_disabled():
    """None has to run for a model of plain ops."""
    model, names = Mapped().eval(), [pass_.qualified_name for pass_ in lowering_passes()]
    inputs = torch.randn(2, 3, 4), torch.rand(4)
    compiled = torchtrt.compile(model, inputs, min_block_size=1, disabled_passes=names)
    assert [] == compiled.report.passes
    torch.testing.assert_close(compiled(*inputs), model(*inputs))


def test_a_pass_that_no_pack_has_is_an_error_with_the_closest():
    """A list of letters is no list of names."""
    with pytest.raises(SettingsError, match=r"Did you mean 'aten_core\.partial_writes'"):
        torchtrt.compile(
            nn.ReLU().eval(), [torch.rand(2)], disabled_passes=["aten_core.partial_write"]
        )
    with pytest.raises(SettingsError, match="a collection of names"):
        torchtrt.CompilationSettings(disabled_passes="aten_core.autocast")


def test_an_error_of_a_model_of_torchs_layers_names_the_layer():
    """And no line of torchtrt, although its code is between the layer and PyTorch while exporting."""
    with pytest.raises(
        ExportError, match=r"File \"\S*linear\.py\", line \d+, in forward"
    ) as caught:
        torchtrt.compile(nn.Sequential(nn.Linear(4, 4)).eval(), [torch.rand(2, 5)])

    assert "torchtrt_converters" not in str(caught.value).partition(": RuntimeError")[0]


@pytest.mark.parametrize(
    "factor",
    [
        lambda rows: max(rows - 3, 1),
        lambda rows: max(rows - 3, 1, 2),
        lambda rows: max([rows, 4]),
        lambda rows: min(rows, 4),
    ],
)
def test_the_larger_of_two_sizes_in_a_branch(factor):
    """PyTorch replaces ``max`` while it exports, and Dynamo, which interprets the branch, took it for ``min``."""

    class Scaled(nn.Module):
        def forward(self, x):
            return torch.cond(
                x.sum() > 0, lambda x: x * factor(x.shape[0]), lambda x: x.cos(), (x,)
            )

    model = Scaled().eval()
    rows = torchtrt.Input(min_shape=(2,), opt_shape=(3,), max_shape=(6,))
    compiled = torchtrt.compile(model, [rows], min_block_size=1)

    for size in range(2, 7):
        torch.testing.assert_close(compiled(torch.ones(size)), model(torch.ones(size)))


def test_a_branch_that_was_exported_for_fixed_sizes_is_exported_for_others():
    """Dynamo compares the sizes with those of the graph that it has of the same code."""

    class Branch(nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, torch.neg, torch.clone, (x,))

    model = Branch().eval()
    torchtrt.compile(model, [torch.rand(5, 3)], min_block_size=1)
    sizes = torchtrt.Input(min_shape=(1, 1), opt_shape=(5, 3), max_shape=(9, 6))
    compiled = torchtrt.compile(model, [sizes], min_block_size=1)
    for shape in ((1, 1), (5, 3), (9, 6)):
        x = torch.rand(shape)
        torch.testing.assert_close(compiled(x), model(x))
