"""Plans of models that write buffers or inputs: each is an input and an output of the plan."""

import json

import pytest
import torch
from torch import nn

import torchtrt
from plugins.runtime.tests.saved_models import function, names_in
from torchtrt.errors import SettingsError, UnsupportedProgramError


class Cache(nn.Module):
    """Writes keys into a cache, counts its calls, and changes an input."""

    def __init__(self):
        super().__init__()
        self.keys = nn.Module()
        self.keys.register_buffer("cache", torch.zeros(1, 8, 4))
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))

    def forward(self, x, position):
        self.keys.cache.index_copy_(1, position, x)
        self.count.add_(1)
        x.mul_(2)
        return torch.softmax(x @ self.keys.cache.mT, -1) @ self.keys.cache


def exported_cache(path, **settings):
    """Returns a model that writes, and the description of its plan."""
    model = Cache().eval()
    whole = {"disabled_passes": ["aten_core.partial_writes"], **settings}
    inputs = [torch.rand(1, 1, 4), torch.tensor([0])]
    compiled = torchtrt.compile(model, inputs, min_block_size=1, **whole)
    torchtrt.export_engine(compiled, path)
    return model, json.loads(path.with_name(path.name + ".json").read_text())


def test_tensors_that_a_model_writes_are_inputs_and_outputs_of_its_plan(every_tensorrt, tmp_path):
    """Whoever runs the plan keeps them from call to call."""
    model, description = exported_cache(tmp_path / "m.plan")
    inputs = {input_["name"]: input_.get("is_buffer", False) for input_ in description["inputs"]}
    outputs = {output["name"]: output.get("writes") for output in description["outputs"]}
    assert inputs == {"x": False, "position": False, "keys.cache": True, "count": True}
    assert outputs.pop("output_0") is None
    assert outputs == {"new_keys.cache": "keys.cache", "new_count": "count", "new_x": "x"}
    assert {*inputs, *outputs, "output_0"} == {*names_in(tmp_path / "m.plan", every_tensorrt)}

    step = torchtrt.engine_module(tmp_path / "m.plan", as_dict=True)
    kept = {name: buffer.clone() for name, buffer in model.named_buffers()}
    for position in range(4):
        x = torch.rand(1, 1, 4)
        results = step(x, torch.tensor([position]), **kept)
        expected = model(x, torch.tensor([position]))
        torch.testing.assert_close(results["output_0"], expected)
        torch.testing.assert_close(results["new_x"], x)
        kept = {name: results[f"new_{name}"] for name in kept}
        torch.testing.assert_close(kept, dict(model.named_buffers()))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["y"], ["y", "new_keys.cache", "new_count", "new_x"]),
        (["y", "cache", "calls", "doubled"], ["y", "cache", "calls", "doubled"]),
    ],
)
def test_names_are_for_results_or_for_written_tensors_too(names, expected, tmp_path):
    _, description = exported_cache(tmp_path / "m.plan", output_names=names)
    written = [output["name"] for output in description["outputs"]]
    assert sorted(written) == sorted(expected)
    assert written[0] == "y"


def test_an_argument_and_a_buffer_of_one_name_have_different_names(tmp_path):
    def both(self, x):
        self.x.add_(x)
        x.mul_(2)
        return self.x + x

    model = function(both, x=torch.zeros(4))
    compiled = torchtrt.compile(model, [torch.rand(4)], min_block_size=1)
    torchtrt.export_engine(compiled, tmp_path / "m.plan")

    step = torchtrt.engine_module(tmp_path / "m.plan", as_dict=True)
    x = torch.rand(4)
    results = step(x, buffer_x=torch.zeros(4))
    expected = model(x_of_model := x.clone())
    torch.testing.assert_close(results["output_0"], expected)
    torch.testing.assert_close(results["new_x"], x_of_model)
    torch.testing.assert_close(results["new_buffer_x"], model.x)


def test_another_number_of_names_is_refused_with_the_written_tensors(tmp_path):
    with pytest.raises(SettingsError, match=r"has 2 names, and the engine has 4.*new_count"):
        exported_cache(tmp_path / "m.plan", output_names=["y", "cache"])


def test_a_part_that_pytorch_writes_is_refused_with_the_pass(tmp_path):
    with pytest.raises(UnsupportedProgramError, match=r"index_copy_.*aten_core\.partial_writes"):
        exported_cache(tmp_path / "m.plan", disabled_passes=[])


def test_a_buffer_with_the_name_of_an_argument_is_an_input_of_its_own(tmp_path):
    model = nn.Module()
    model.register_buffer("x", torch.zeros(3))
    model.forward = lambda x: model.x.add_(x) * 3 + x
    compiled = torchtrt.compile(model.eval(), (torch.ones(3),), min_block_size=1)
    assert compiled(torch.ones(3)).tolist() == [4.0] * 3
    torchtrt.export_engine(compiled, tmp_path / "m.plan")
    description = json.loads((tmp_path / "m.plan.json").read_text())
    names = {input_["name"]: input_.get("is_buffer", False) for input_ in description["inputs"]}
    assert names == {"x": False, "buffer_x": True}
    assert [output.get("writes") for output in description["outputs"]] == [None, "buffer_x"]


def test_one_value_that_is_written_twice_is_refused(tmp_path):
    """An output of a plan says of one buffer that it is its new value."""

    def both(self, x):
        self.first.add_(x)
        self.second.copy_(self.first)
        return x * 2

    model = function(both, first=torch.zeros(2, 3), second=torch.ones(2, 3))
    compiled = torchtrt.compile(model, [torch.rand(2, 3)], min_block_size=1)
    with pytest.raises(UnsupportedProgramError, match="writes one value to first and second"):
        torchtrt.export_engine(compiled, tmp_path / "m.plan")
