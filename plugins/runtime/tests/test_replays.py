"""Replays: what is distinguished, refused, overtaken or run in several threads."""

import contextlib
import threading

import pytest
import torch
from torch import nn

import torchtrt
from plugins.runtime.tests.recording import Model, Tape, check, compiled_model
from torchtrt_runtime.executors.cuda_graphs import CudaGraphs

# Without a GPU the setting has no effect; here the tape gives it one.
pytestmark = [
    pytest.mark.usefixtures("tape"),
    pytest.mark.filterwarnings("ignore::torchtrt.errors.SettingsWarning"),
]


def captured_model():
    """Returns a model, compiled, and the inputs that calls of it were captured with."""
    model, compiled = compiled_model()
    x, y = torch.randn(2, 4), torch.randn(3)
    for _ in range(3):
        check(compiled, model, x, y)
    return model, compiled, x, y


def two_graphs():
    """Returns the graphs of two models, inputs, and what the second returns for them."""
    _, compiled = compiled_model()
    _, donor = compiled_model(Model())
    inputs = torch.randn(2, 4), torch.randn(3)
    return compiled.graph_module, donor.graph_module, inputs, list(donor(*inputs))


def test_slices_of_what_grows_are_inputs_like_the_last():
    """As the last of the ids and masks of a text: its stride along a size of 1 is the text's length."""

    class Last(nn.Module):
        def forward(self, ids, mask):
            return ids * 2 + mask

    model, compiled = compiled_model(Last(), (torch.ones(1, 1), torch.ones(1, 1)))
    for length in range(2, 9):
        text = torch.rand(1, length)
        check(compiled, model, text[:, -1:], text[:, :1])
    assert Tape.made == 1
    (capture,) = compiled.executor._captures.values()
    assert len(capture.entries) == 1


def test_inputs_of_other_kinds_have_graphs_of_their_own():
    """Strides, and negative bits, are of the memory that a captured graph reads."""
    model, compiled = compiled_model()
    x, y = torch.rand(4, 4), torch.rand(3)
    turned, negative = x.t(), torch.complex(x, -x).conj().imag
    assert negative.is_neg()
    for _ in range(3):
        for tensor in (x, turned, negative, x):
            check(compiled, model, tensor, y)
    assert len(compiled.executor._captures["a stream"].entries) == 3
    captured = Tape.made
    for tensor in (x, turned, negative):
        check(compiled, model, tensor, y)
    assert Tape.made == captured


def test_gradients_and_inference_mode_are_as_without():
    """Results of inference mode are no results of another."""
    _, compiled = compiled_model()
    x, y = torch.randn(2, 4), torch.randn(3)
    for _ in range(3):
        with torch.inference_mode():
            assert compiled(x, y)[0].is_inference()
        assert not compiled(x, y)[0].is_inference()
        moving = torch.randn(2, 4, requires_grad=True)
        result = compiled(moving, y)[0]
        assert result.requires_grad
        with pytest.raises(torchtrt.errors.EngineError, match="compute no gradients"):
            result.sum().backward()


def test_a_call_like_the_last_one_is_replayed_unchecked():
    """What was captured passed the checks; other inputs are checked."""
    model, compiled, x, y = captured_model()
    compiled.checks.check = lambda _: pytest.fail("checked")
    check(compiled, model, x.normal_(), y.normal_())
    with pytest.raises(pytest.fail.Exception, match="checked"):
        compiled(torch.randn(3, 4), y)


def forward_mode():
    """Gradients from the inputs on."""
    return torch.autograd.forward_ad.dual_level()


def half_autocast():
    """Casts that the model was not compiled with."""
    return torch.autocast("cpu", dtype=torch.float16)


@contextlib.contextmanager
def elsewhere_autocast():
    """Casts on a device that no input is on."""
    torch.set_autocast_enabled("cuda", True)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", False)


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        (forward_mode, "compute no gradients"),
        (half_autocast, "inside another"),
        (elsewhere_autocast, "inside another"),
    ],
)
@pytest.mark.parametrize("compiled_in_autocast", [False, True])
def test_a_replay_is_refused_where_a_call_is(mode, message, compiled_in_autocast):
    """In modes that the model was not compiled for, though its inputs are like those before."""
    x, y = torch.randn(2, 4), torch.randn(3)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=compiled_in_autocast):
        _, compiled = compiled_model()
        for _ in range(3):
            compiled(x, y)
        assert Tape.made == 1
        with mode(), pytest.raises(torchtrt.errors.EngineError, match=message):
            compiled(x, y)
        compiled(x, y)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_replays_refuse_what_calls_refuse():
    """Weights that have changed, nested tensors, other values of what is no tensor, and too few inputs."""
    model, compiled, x, y = captured_model()
    nested = torch.nested.nested_tensor([torch.randn(2, 4)])
    for inputs, message in (
        ((nested, y), "nested|strided"),
        ((x, None), "must be a tensor"),
        ((x, y.double()), "float64"),
        ((x,), "Missing"),
    ):
        with pytest.raises(torchtrt.errors.InputError, match=message):
            compiled(*inputs)
    check(compiled, model, x, y)
    with torch.no_grad():
        model.linear.weight.mul_(2)
    with pytest.raises(torchtrt.errors.EngineError, match="has changed"):
        compiled(x, y)


def test_another_graph_is_never_replayed_from_the_old_ones_graph():
    """Not even where it is put in its place while the old one is captured, which ends later."""
    old, new, inputs, expected = two_graphs()
    calls = []

    def run(graph_module, leaves):
        calls.append(graph_module)
        if calls == [old, old]:
            for _ in range(3):
                runner(new, inputs)
        return graph_module.forward(*leaves)

    runner = CudaGraphs(capture=Tape, inner=run)
    runner(old, inputs)
    runner(old, inputs)
    replayed = runner.replay(new, inputs)
    torch.testing.assert_close(replayed or runner(new, inputs), expected)


def test_a_call_that_another_graph_overtakes_is_captured_for_neither():
    """Between its look at the graph and at the captured graphs, another thread puts a new one in its place."""
    old, new, inputs, expected = two_graphs()

    class Overtaken(CudaGraphs):
        """Runs the new graph where the test asks for it."""

        is_overtaken = False

        @property
        def refusal(self):
            if self.is_overtaken:
                self.is_overtaken = False
                self(new, inputs)
            return self.reason

        @refusal.setter
        def refusal(self, reason):
            self.reason = reason

    runner = Overtaken(capture=Tape)
    for _ in range(3):
        runner(old, inputs)
    runner.is_overtaken = True
    runner(old, inputs)
    assert not runner.is_overtaken
    for _ in range(3):
        results = runner.replay(new, inputs) or runner(new, inputs)
        torch.testing.assert_close(list(results), expected)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_replay_that_fails_leaves_the_next_call_alone(error):
    """Nothing stays locked."""
    model, compiled, x, y = captured_model()
    (capture,) = compiled.executor._captures.values()
    (entry,) = capture.entries.values()
    replay = entry.graphs[0].replay

    def fail():
        entry.graphs[0].replay = replay
        raise error

    entry.graphs[0].replay = fail
    with pytest.raises(error):
        compiled(x, y)
    check(compiled, model, x, y)


def test_threads_may_share_a_compiled_model():
    """Each result belongs to its call."""
    model, compiled = compiled_model()
    failures = []

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        for _ in range(30):
            x = torch.randn(1 + seed % 2, 4, generator=generator)
            y = torch.randn(3, generator=generator)
            result = compiled(x, y)
            with torch.no_grad():
                if not torch.allclose(result[0], model(x, y)[0], atol=1e-5):
                    failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
