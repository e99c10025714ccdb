"""Modules made of plans, saved as models and as parts of models."""

import pytest
import torch
from torch import nn

import torchtrt
from plugins.runtime.tests.test_plans import compiled_with, foreign_plan
from torchtrt.errors import InputError, SizeWarning

ROWS = torchtrt.Input(min_shape=(1, 4), opt_shape=(2, 4), max_shape=(8, 4))


def saved_and_loaded(module, path):
    """Returns what a file of a module holds, as torchtrt reads it and as PyTorch does."""
    torchtrt.save(module, path)
    return torchtrt.load(path), torch.export.load(path)


def test_a_plan_of_another_tool_is_saved_with_its_profiles(every_tensorrt, tmp_path):
    """Two of the profiles are equal: their numbers are the plan's. Its file's name need not be a name in Python."""
    plan = tmp_path / "a foreign-1.engine"
    plan.write_bytes(foreign_plan([(1, 2, 4), (1, 2, 4), (8, 8, 16)]))
    module = torchtrt.engine_module(plan, as_dict=True)
    loaded, program = saved_and_loaded(module, tmp_path / "m.pt2")

    for rows in (1, 16, 4, 8):
        x, shift = torch.randn(rows, 3), torch.tensor(0.5)
        expected = {"above": x > shift, "sum": x + shift}
        torch.testing.assert_close(loaded(shift=shift, data=x), expected)
        torch.testing.assert_close(program.module()(x, shift), expected)
    with pytest.raises(InputError, match=r"is 6, but the model was compiled for 1 to 4 or 8 to 16"):
        loaded(torch.rand(6, 3), torch.tensor(0.0))


@pytest.mark.parametrize("described", [True, False], ids=["described", "not described"])
def test_a_plan_is_a_part_of_a_saved_model(described, tmp_path):
    """PyTorch's form of its file is a module like any other, whose outputs have known sizes if they are described."""
    inner = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
    plan = tmp_path / "m.plan"
    torchtrt.export_engine(compiled_with(inner, [ROWS]), plan)
    loaded, program = saved_and_loaded(
        torchtrt.engine_module(plan, description=described), tmp_path / "m.pt2"
    )

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.plan = program.module()
            self.last = nn.Linear(8, 3)
            self.training = False

        def forward(self, x):
            return self.last(self.plan(x * 2)[0])

    model = Model()
    compiled = torchtrt.compile(model, [ROWS], min_block_size=1)
    assert "torchtrt.execute_engine.default" not in [row.op for row in compiled.report.in_torch]
    torchtrt.save(compiled, tmp_path / "whole.pt2")
    again = torchtrt.load(tmp_path / "whole.pt2")

    for rows in (1, 3, 8):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(loaded(x)[0], inner(x))
        torch.testing.assert_close(compiled(x), model.last(inner(x * 2)))
        torch.testing.assert_close(again(x), compiled(x))
    assert len(compiled.report.blocks) == 1 + described


def test_sizes_that_follow_from_each_other_stay_so(tmp_path):
    """Those of inputs are checked, and those of outputs are expressions."""

    class Model(nn.Module):
        def forward(self, x, y):
            return torch.cat([x, x]) @ y, x.shape[0] * y

    n = torch.export.Dim("n", min=2, max=8)
    model, inputs = Model(), [torch.rand(4, 3), torch.rand(3, 4)]
    compiled = compiled_with(model, inputs, dynamic_shapes=({0: n}, {1: n}))
    torchtrt.export_engine(compiled, tmp_path / "m.plan")
    loaded, program = saved_and_loaded(
        torchtrt.engine_module(tmp_path / "m.plan"), tmp_path / "m.pt2"
    )

    x, y = torch.rand(5, 3), torch.rand(3, 5)
    torch.testing.assert_close(loaded(x, y), model(x, y))
    torch.testing.assert_close(program.module()(x, y), model(x, y))
    with pytest.raises(InputError):
        loaded(x, torch.rand(3, 4))


@pytest.mark.parametrize("described", [True, False], ids=["described", "not described"])
def test_sizes_that_depend_on_data_stay_so(described, every_tensorrt, tmp_path):
    """And integers of 64 bits, where the description has them."""

    class Nonzero(nn.Module):
        def forward(self, x):
            return torch.nonzero(x.relu())

    model, plan = Nonzero(), tmp_path / "m.plan"
    torchtrt.export_engine(compiled_with(model, [torch.rand(4, 3)]), plan)
    module = torchtrt.engine_module(plan, description=described)
    for saved in saved_and_loaded(module, tmp_path / "m.pt2"):
        callable_ = saved if isinstance(saved, nn.Module) else saved.module()
        for _ in range(2):
            x = torch.randn(4, 3)
            torch.testing.assert_close(callable_(x)[0], model(x), check_dtype=described)


def test_a_description_of_other_output_sizes_is_refused(tmp_path):
    """They would be those of the saved model."""
    plan = tmp_path / "m.plan"
    torchtrt.export_engine(compiled_with(nn.Linear(4, 3), [ROWS]), plan)
    description = tmp_path / "m.plan.json"
    text = description.read_text()
    assert '["symbol", "n0"], 3]' in text
    description.write_text(text.replace('["symbol", "n0"], 3]', '["symbol", "n0"], 5]'))

    with pytest.raises(torchtrt.errors.UnreadableFileError, match=r"the engine has \[-1, 3\]"):
        torchtrt.engine_module(plan)


def test_a_model_around_an_engine_takes_the_sizes_that_the_engine_takes(tmp_path):
    """A call with others is refused before anything runs."""
    inner = nn.Sequential(nn.Linear(4, 8), nn.ReLU()).eval()
    torchtrt.save(compiled_with(inner, [ROWS]), tmp_path / "m.pt2")
    part = torch.export.load(tmp_path / "m.pt2").module()
    wide = torchtrt.Input(min_shape=(1, 4), opt_shape=(4, 4), max_shape=(64, 4))

    class Model(nn.Module):
        def forward(self, x):
            return part(x * 2).sin()

    with pytest.warns(SizeWarning, match="Compiled for 1 to 8"):
        compiled = torchtrt.compile(Model().eval(), [wide], min_block_size=1)

    torch.testing.assert_close(compiled(torch.ones(8, 4)), inner(torch.ones(8, 4) * 2).sin())
    with pytest.raises(InputError, match="is 9, but the model was compiled for 1 to 8"):
        compiled(torch.ones(9, 4))
