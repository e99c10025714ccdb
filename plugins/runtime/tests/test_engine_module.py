"""Engines as modules: devices, damage, copies, threads."""

import copy
import io
import threading

import pytest
import torch

import torchtrt
from tests.support.compiled import engines_of
from torchtrt.errors import EngineError


@pytest.fixture(scope="module")
def compiled():
    """A model of one engine with a dynamic batch, whose answer depends on every input element."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Sigmoid()).eval()
    shapes = torchtrt.Input(min_shape=(0, 4), opt_shape=(4, 4), max_shape=(64, 4))
    return torchtrt.compile(model, [shapes], require_full_compilation=True)


def engine_of(compiled):
    """Returns the compiled model's engine."""
    (engine,) = engines_of(compiled)
    return engine


def test_an_empty_batch_gives_an_empty_result(compiled):
    """A tensor without elements has no address, and needs none."""
    assert (0, 4) == tuple(compiled(torch.rand(0, 4)).shape)


def test_an_empty_result_of_unknown_size_has_memory_for_whole_elements():
    """PyTorch copies memory by elements where it keeps strides, as slice_scatter does."""

    class Chosen(torch.nn.Module):
        def forward(self, x):
            return x[x > 0] * 2

    compiled = torchtrt.compile(
        Chosen().eval(), (torch.ones(3, dtype=torch.float16),), require_full_compilation=True
    )
    for x in (torch.ones(3), -torch.ones(3)):
        result = compiled(x.half())
        assert result.untyped_storage().nbytes() % result.element_size() == 0
        torch.slice_scatter(result, result[:1], 0, 0, 1)


def test_a_damaged_plan_is_an_error_and_no_result(compiled):
    """Flipped and missing bytes are noticed when the engine is loaded."""
    plan = bytes(engine_of(compiled).plan)
    for damaged in (
        plan[:-1],
        plan[: len(plan) // 2],
        b"",
        plan[:-9] + bytes([plan[-9] ^ 1]) + plan[-8:],
    ):
        broken = copy.deepcopy(engine_of(compiled))
        broken.plan = damaged

        with pytest.raises(EngineError, match="could not load the engine of block_0"):
            broken(torch.rand(2, 4))


class Sum(torch.nn.Module):
    """Has two inputs."""

    def forward(self, x, y):
        return x + y


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_is_refused(compiled):
    """Also where another input of its type came before: a comparison must not read its strides."""
    engine, x = engine_of(compiled), torch.rand(2, 4)
    engine(x)
    with pytest.raises(EngineError, match="block_0 got a nested tensor"):
        engine(torch.nested.nested_tensor([torch.rand(4), torch.rand(4)]))


def test_zeros_without_memory_are_read_as_zeros():
    """As PyTorch makes them in forward mode: their address is null."""
    x, zeros = torch.rand(1000), torch._efficientzerotensor(1000)
    compiled = torchtrt.compile(Sum().eval(), [x, x], require_full_compilation=True)
    for tensor in (zeros, x, zeros):
        torch.testing.assert_close(compiled(x, tensor), x + tensor)


def test_zeros_without_memory_overlap_with_nothing():
    """A model that writes looks whether its inputs share memory."""

    class Adds(torch.nn.Module):
        def forward(self, x, y):
            return x.add_(y)

    x, zeros = torch.rand(4), torch._efficientzerotensor(4)
    compiled = torchtrt.compile(Adds().eval(), [x.clone(), x.clone()], min_block_size=1)
    torch.testing.assert_close(compiled(x.clone(), zeros), x)


def test_inputs_on_two_devices_are_refused():
    """An engine reads raw memory: an address of another device must never get there, and the next call is right."""
    x = torch.rand(2)
    engine = engine_of(torchtrt.compile(Sum().eval(), [x, x], require_full_compilation=True))
    elsewhere = torch.rand(2, device="meta")

    for _ in range(2):
        with pytest.raises(EngineError, match=r"of block_0 are on cpu and meta; move them"):
            engine(x, elsewhere)
        torch.testing.assert_close(engine(x, x)[0], x + x)


@pytest.mark.filterwarnings("ignore:.*treespec:FutureWarning")  # PyTorch about its own pickling
def test_copies_and_saved_modules_work(compiled):
    """deepcopy, and torch.save followed by torch.load, give a module of the same behaviour."""
    x = torch.rand(3, 4)
    expected = compiled(x)
    buffer = io.BytesIO()
    torch.save(compiled, buffer)
    buffer.seek(0)

    loaded = torch.load(buffer, weights_only=False)

    copied = copy.deepcopy(compiled)
    assert engine_of(copied).plan is engine_of(compiled).plan
    torch.testing.assert_close(copied(x), expected)
    torch.testing.assert_close(loaded(x), expected)
    with pytest.raises(torchtrt.errors.InputError, match="0 to 64"):
        loaded(torch.rand(65, 4))


def test_threads_may_share_a_module(compiled):
    """Each caller gets the answer to its own input."""
    wrong = []

    def work(value):
        x = torch.full((4 + value, 4), float(value))
        expected = compiled(x)
        for _ in range(30):
            if not torch.equal(compiled(x), expected):
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [] == wrong


def test_fractions_are_never_cut_off():
    """What PyTorch traced as integers and computes as fractions, as PyTorch 2.9 does for some quotients."""
    model = torch.nn.ReLU().eval()
    compiled = torchtrt.compile(model, [torch.ones(2, 4, dtype=torch.int32)], min_block_size=1)

    with pytest.raises(EngineError, match=r"computed torch\.float32 .* traced it as an integer"):
        engine_of(compiled)(torch.rand(2, 4))
