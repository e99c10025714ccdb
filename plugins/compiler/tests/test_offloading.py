"""Weights in the memory of the CPU while TensorRT builds.

Where there is no GPU, the CPU stands for it: weights move to other memory of the CPU, and theirs is freed.
"""

from __future__ import annotations

import pytest
import torch

import torchtrt
from torchtrt.errors import BuildError
from torchtrt_compiler import offloading
from torchtrt_testing.faults import watched_tensorrt

X = torch.rand(3, 16)


class Model(torch.nn.Module):
    """Tied weights, views of one memory, a buffer that a call writes to, and a weight that PyTorch reads."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(16, 16)
        self.tied = torch.nn.Linear(16, 16, bias=False)
        self.tied.weight = self.first.weight
        both = torch.rand(32, 16)
        self.upper, self.lower = torch.nn.Buffer(both[:16]), torch.nn.Buffer(both[16:].T)
        self.register_buffer("calls", torch.zeros(1))
        self.angle = torch.nn.Parameter(torch.rand(16))

    def forward(self, x):
        self.calls.add_(1)
        x = self.tied(self.first(x)) @ self.upper + x @ self.lower
        return torch.atan2(x, self.angle) + self.calls


@pytest.fixture
def while_building(monkeypatch):
    """Lets the CPU stand for a GPU, and calls a function before each build; returns where to put it."""
    monkeypatch.setattr(offloading, "OFFLOADED", frozenset({"cpu"}))
    watching = []

    def call(build):
        for callback in watching:
            callback()
        return ""

    with watched_tensorrt(refuses=call):
        yield watching


def compiled_of(model, **settings):
    options = {"min_block_size": 1, "torch_executed_ops": "aten.atan2", **settings}
    return torchtrt.compile(model, [X], offload_module_to_cpu=True, **options)


@pytest.mark.parametrize(
    "settings",
    [{}, {"immutable_weights": False}, {"strip_engine_weights": True}],
    ids=["plain", "refittable", "stripped"],
)
def test_weights_are_elsewhere_during_a_build_and_the_same_after_it(while_building, settings):
    """Their own memory is free meanwhile; objects, ties, views and versions are what they were."""
    model = Model().eval()
    row = model.first.weight.detach()[2]  # which only the test holds
    values = {name: weight.clone() for name, weight in model.state_dict().items()}
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    versions = {name: tensor._version for name, tensor in tensors.items()}
    storages = {name: tensor.untyped_storage() for name, tensor in tensors.items()}
    addresses = {name: storage._cdata for name, storage in storages.items()}
    seen = []

    def look():
        seen.append({name: storage.nbytes() for name, storage in storages.items()})
        for name, tensor in tensors.items():
            torch.testing.assert_close(tensor, values[name], rtol=0, atol=0)
        assert model.tied.weight is model.first.weight
        assert model.upper.untyped_storage()._cdata == model.lower.untyped_storage()._cdata

    while_building.append(look)
    compiled = compiled_of(model, **settings)

    assert seen
    assert all(size == 0 for weight in seen for size in weight.values())
    for name, tensor in tensors.items():
        torch.testing.assert_close(tensor, values[name], rtol=0, atol=0)
        assert tensor.untyped_storage()._cdata == addresses[name]
        assert tensor._version == versions[name]
    torch.testing.assert_close(row, values["first.weight"][2])
    assert row.untyped_storage()._cdata == addresses["first.weight"]
    eager = Model().eval()
    eager.load_state_dict(values)
    for _ in range(2):
        torch.testing.assert_close(compiled(X), eager(X))
    assert model.calls == 2


def test_a_refit_knows_the_weights_that_were_moved(while_building):
    """The engine was built from other memory than the model's."""
    model, other = Model().eval(), Model().eval()
    while_building.append(lambda: None)
    compiled = compiled_of(model, immutable_weights=False)

    refitted = torchtrt.refit_module_weights(compiled, other)

    torch.testing.assert_close(refitted(X), other(X))


def test_weights_come_back_when_a_build_fails(while_building):
    """And the error is the build's."""
    model = Model().eval()
    values = {name: weight.clone() for name, weight in model.state_dict().items()}
    storage = model.first.weight.untyped_storage()

    def fail():
        assert storage.nbytes() == 0
        raise BuildError("no memory")

    while_building.append(fail)
    with pytest.raises(BuildError, match="no memory"):
        compiled_of(model, require_full_compilation=False)
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(weight, values[name], rtol=0, atol=0)
    assert storage.nbytes() == 16 * 16 * 4


@pytest.mark.parametrize(
    "error", [RuntimeError("out of memory"), KeyboardInterrupt()], ids=["memory", "interrupt"]
)
def test_weights_are_the_same_if_a_copy_to_the_cpu_fails(while_building, monkeypatch, error):
    """What comes back is never memory that the copy has not filled."""
    model = Model().eval()
    values = {name: weight.clone() for name, weight in model.state_dict().items()}
    contents, calls = offloading._Move._contents, []

    def failing(self):
        calls.append(self)
        if len(calls) == 3:
            raise error
        return contents(self)

    monkeypatch.setattr(offloading._Move, "_contents", failing)
    with pytest.raises(type(error)):
        compiled_of(model)
    assert len(calls) > 3  # the others came back
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(weight, values[name], rtol=0, atol=0)


def test_weights_whose_memory_is_not_pytorchs_stay(while_building):
    """Such as those of a mapped file."""
    model = torch.nn.Linear(16, 16).eval()
    borrowed = bytearray(model.weight.detach().numpy().tobytes())
    model.weight = torch.nn.Parameter(torch.frombuffer(borrowed, dtype=torch.float32).view(16, 16))
    address = model.weight.data_ptr()
    sizes = []
    while_building.append(
        lambda: sizes.append((model.weight.data_ptr(), model.bias.untyped_storage().nbytes()))
    )

    compiled = compiled_of(model, torch_executed_ops=())

    assert [size[0] for size in sizes] == [address]
    torch.testing.assert_close(compiled(X), model(X))


def test_a_model_on_the_cpu_has_nothing_to_move():
    """A warning says that the setting has no effect."""
    with pytest.warns(torchtrt.errors.SettingsWarning, match="no weights on a GPU"):
        compiled_of(Model().eval())
