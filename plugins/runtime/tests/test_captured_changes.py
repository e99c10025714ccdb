"""Recorded calls are dropped where something has changed: weights, modules, engines."""

import copy
import pickle
from contextlib import nullcontext as no_warning

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrize import register_parametrization

import torchtrt
from plugins.runtime.tests.recording import Model, Tape, check, compiled_model
from torchtrt_runtime.executors.cuda_graphs import CudaGraphs

# Without a GPU the setting has no effect; here the tape gives it one.
pytestmark = [
    pytest.mark.usefixtures("tape"),
    pytest.mark.filterwarnings("ignore::torchtrt.errors.SettingsWarning"),
]


def test_parts_of_a_buffer_are_written_by_a_graph():
    """A cache stays where it is, and gets what is new."""

    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("cache", torch.zeros(8, 3))

        def forward(self, x, position):
            self.cache.index_copy_(0, position, x)
            self.cache[:1, 1:] = x[:, 1:]
            return self.cache.sum(0) + x

    model, compiled = compiled_model(Cache(), [torch.randn(1, 3), torch.tensor([1])])
    eager = copy.deepcopy(model)
    x, position = torch.randn(1, 3), torch.tensor([1])
    for number in range(6):
        check(compiled, eager, x.normal_(), position.fill_(number))
        torch.testing.assert_close(model.cache, eager.cache)
    assert Tape.made == 1


def test_new_weights_drop_what_was_captured():
    """Refitted in place, and buffers of the parts in PyTorch that are others now."""
    model, compiled = compiled_model(immutable_weights=False)
    inputs = torch.randn(2, 4), torch.randn(3)
    for _ in range(3):
        check(compiled, model, *inputs)
    other = Model().eval()
    torchtrt.refit_module_weights(compiled, other, in_place=True)
    for _ in range(3):
        check(compiled, other, *inputs)


@pytest.mark.parametrize("version", ["10.16.1", "11.4.0"])
def test_calls_are_captured_again_where_the_budget_of_weights_changes(version):
    """TensorRT lets no call be captured that streams weights; with all weights on the GPU, the next calls are."""
    with torchtrt.use_tensorrt(f"reference@{version}"):
        model, compiled = compiled_model(enable_weight_streaming=True)
    weights = torchtrt.weight_streaming(compiled)

    class Streaming(Tape):
        @staticmethod
        def capture_graph(function):
            if weights.device_budget < weights.total_device_budget:
                raise RuntimeError("operation not permitted when stream is capturing")
            return Tape.capture_graph(function)

    compiled.executor = CudaGraphs(capture=Streaming)
    inputs = torch.randn(2, 4), torch.randn(3)
    numbers = []
    for budget in (weights.total_device_budget, 16, weights.total_device_budget):
        weights.device_budget = budget
        check(compiled, model, *inputs)
        is_streaming = budget < weights.total_device_budget
        with (
            pytest.warns(UserWarning, match="cannot be captured") if is_streaming else no_warning()
        ):
            check(compiled, model, *inputs)
        for _ in range(2):
            check(compiled, model, *inputs)
        numbers.append(Tape.made)

    assert 0 < numbers[0] == numbers[1] < numbers[2]


class Left(nn.Module):
    """A model that stays in PyTorch, with its weights."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Module()
        self.inner.weight = nn.Parameter(torch.randn(3))
        self.register_buffer("offset", torch.randn(3))

    def forward(self, x):
        return torch.sigmoid(x * self.inner.weight) + self.offset


class Doubled(nn.Module):
    def forward(self, x):
        return x * 2


def moved(module):
    """Gives a weight other memory."""
    module.inner.weight.data = torch.randn(3)


def moved_buffer(module):
    """Gives a buffer other memory."""
    module.offset.data = torch.randn(3)


def replaced(module):
    """Puts another buffer in its place."""
    module.offset = torch.randn(3)


def replaced_around(module):
    """Puts another module in the place of a weight's."""
    module.inner = Left().inner


def edited(module):
    """Changes the graph."""
    (add,) = module.graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor)
    add.target = torch.ops.aten.sub.Tensor
    module.recompile()


@pytest.mark.parametrize("change", [moved, moved_buffer, replaced, replaced_around, edited])
def test_what_is_another_or_elsewhere_drops_what_was_captured(change):
    """A captured graph reads where weights were: memory that may be another's by now."""
    ops = {"aten.sigmoid", "aten.mul", "aten.add"}
    _, compiled = compiled_model(Left(), [torch.randn(2, 3)], torch_executed_ops=ops)
    graph_module, x = compiled.graph_module, torch.randn(2, 3)
    for _ in range(4):
        torch.testing.assert_close(compiled(x), graph_module(x)[0])
    assert Tape.made == 1
    change(graph_module)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), graph_module(x)[0])
    assert Tape.made == 2


def test_another_engine_drops_what_was_captured():
    """It runs from the next call on."""
    model, compiled = compiled_model()
    other = Model().eval()
    _, donor = compiled_model(other)
    inputs = torch.randn(2, 4), torch.randn(3)
    for _ in range(4):
        check(compiled, model, *inputs)
    for name, engine in donor.graph_module.named_children():
        setattr(compiled.graph_module, name, engine)
    made = Tape.made
    for _ in range(3):
        check(compiled, other, *inputs)
    assert Tape.made == made + 1


def test_a_weight_that_is_computed_is_never_replayed():
    """Its module computes it anew whenever it is read."""
    ops = {"aten.sigmoid", "aten.mul", "aten.add"}
    _, compiled = compiled_model(Left(), [torch.randn(2, 3)], torch_executed_ops=ops)
    graph_module, x = compiled.graph_module, torch.randn(2, 3)
    register_parametrization(graph_module.inner, "weight", Doubled())
    for _ in range(4):
        torch.testing.assert_close(compiled(x), graph_module(x)[0])
    graph_module.inner.parametrizations.weight.original.data = torch.randn(3)
    torch.testing.assert_close(compiled(x), graph_module(x)[0])
    assert not Tape.made


@pytest.mark.filterwarnings("ignore:.*treespec:FutureWarning")  # PyTorch about its own copying
def test_copies_record_for_themselves():
    """Neither deepcopy nor pickle takes a captured graph along."""
    model, compiled = compiled_model()
    inputs = torch.randn(2, 4), torch.randn(3)
    for _ in range(3):
        check(compiled, model, *inputs)
    twin = copy.deepcopy(compiled)
    assert not twin.executor._captures
    check(twin, model, *inputs)
    assert isinstance(pickle.loads(pickle.dumps(CudaGraphs())), CudaGraphs)


def test_what_writes_is_checked_in_each_call():
    """The memory of inputs that are like those before may be the model's own."""

    class Keeping(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("last", torch.zeros(3))

        def forward(self, x):
            self.last.copy_(x)
            return self.last * 2

    model, compiled = compiled_model(Keeping(), [torch.randn(3)])
    eager = copy.deepcopy(model)
    held = [torch.randn(3) for _ in range(4)]
    for x in held:  # each elsewhere, so what is captured reads a copy
        check(compiled, eager, x)
    with pytest.raises(torchtrt.errors.InputError, match="shares memory"):
        compiled(model.last)
