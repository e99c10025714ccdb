"""Engines that compute in memory of PyTorch's allocator, which the reference TensorRT writes to while it runs."""

import threading
import weakref

import pytest
import torch
from torch import nn

import torchtrt
from tests.support.compiled import engines_of
from torchtrt.errors import SettingsError
from torchtrt_reference.running.execution_memory import LentMemory
from torchtrt_reference.semantics.tensor_facts import RefusedError
from torchtrt_runtime import RuntimeSettings
from torchtrt_runtime.modules.execution_memory import ExecutionMemory

SHARING = {"share_execution_memory": True, "min_block_size": 1}
ROWS = torchtrt.Input(min_shape=(1, 16), opt_shape=(4, 16), max_shape=(100, 16))


@pytest.fixture
def model():
    """Four layers."""
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(16, 16) for _ in range(4))).eval()


@pytest.fixture
def lent(monkeypatch):
    """Notes the memory of each execution: its size and a weak reference."""
    noted, lend = [], ExecutionMemory.lend

    def note(self):
        memory = lend(self)
        noted.append((memory.numel(), weakref.ref(memory)))
        return memory

    monkeypatch.setattr(ExecutionMemory, "lend", note)
    return noted


def test_engines_give_their_memory_back_after_each_execution(model, version, lent):
    """So the next engine may have it. Larger sizes need more, and a size may come again."""
    compiled = torchtrt.compile(model, [ROWS], max_engine_bytes=1200, **SHARING)

    for count in (1, 100, 3, 100):
        x = torch.randn(count, 16)
        lent.clear()
        torch.testing.assert_close(compiled(x), model(x))
        assert 4 == len(lent) == len(engines_of(compiled))
        assert all(memory() is None for _, memory in lent)
        if version != "reference@8.6.0":  # which returns only what the largest sizes need
            assert all(64 * count <= size < 64 * count + 1024 for size, _ in lent)


def test_threads_share_no_memory_at_the_same_time(model, version):
    """Each call has memory of its own; the reference notices other writers."""
    compiled = torchtrt.compile(model, [ROWS], max_engine_bytes=1200, **SHARING)
    failed = []

    def work(seed):
        x = torch.randn(10 + seed, 16, generator=torch.Generator().manual_seed(seed))
        try:
            for _ in range(30):
                torch.testing.assert_close(compiled(x), model(x))
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not failed


def test_several_profiles_and_sizes_from_data_have_memory(version, lent):
    """Whichever profile a call needs, and whatever size a result has."""

    class Chosen(nn.Module):
        def forward(self, x):
            """Returns the positive elements."""
            return x[x > 0] * 2

    x = torch.randn(6)
    ranges = torchtrt.Input(ranges=[((1, 4), (2, 4), (3, 4)), ((8, 4), (9, 4), (12, 4))])
    doubled = torchtrt.compile(nn.Softmax(1).eval(), [ranges], **SHARING)
    chosen = torchtrt.compile(Chosen().eval(), [x], **SHARING)

    for count in (2, 12, 1, 8):
        y = torch.randn(count, 4)
        torch.testing.assert_close(doubled(y), torch.softmax(y, 1))
    torch.testing.assert_close(chosen(x), x[x > 0] * 2)
    torch.testing.assert_close(chosen(-x), -x[x < 0] * 2)
    assert 6 <= len(lent)


def test_a_compiled_model_may_share_later_and_stop(model, lent, tmp_path):
    """The setting is no part of the engine: a file keeps it, and an engine cache does not read it."""
    settings = {"min_block_size": 1, "engine_cache": tmp_path / "cache"}
    compiled = torchtrt.compile(model, [ROWS], **settings)
    x = torch.randn(5, 16)
    compiled(x)
    assert not lent

    compiled.runtime_settings = RuntimeSettings(share_execution_memory=True)
    torch.testing.assert_close(compiled(x), model(x))
    assert 1 == len(lent)

    torchtrt.save(compiled, tmp_path / "model.pt2")
    loaded = torchtrt.load(tmp_path / "model.pt2")
    assert RuntimeSettings() == loaded.runtime_settings  # a file has those of the compilation
    again = torchtrt.compile(model, [ROWS], share_execution_memory=True, **settings)
    assert [True] == [block.cached for block in again.report.blocks]
    torchtrt.save(again, tmp_path / "model.pt2")
    loaded = torchtrt.load(tmp_path / "model.pt2")
    torch.testing.assert_close(loaded(x), model(x))
    assert 2 == len(lent)

    loaded.runtime_settings = RuntimeSettings()
    loaded(x)
    assert 2 == len(lent)


def test_a_switch_is_true_or_false(model):
    """As a setting of a compilation, and of a compiled model."""
    compiled = torchtrt.compile(model, [ROWS], min_block_size=1)
    with pytest.raises(SettingsError, match=r"assign a torchtrt\.RuntimeSettings"):
        compiled.runtime_settings = {"share_execution_memory": True}
    with pytest.raises(SettingsError, match="share_execution_memory"):
        torchtrt.compile(nn.ReLU(), [torch.rand(2)], share_execution_memory="yes")
    with pytest.raises(SettingsError, match="share_execution_memory=1 is not usable"):
        RuntimeSettings(share_execution_memory=1)


def test_the_reference_refuses_what_fails_on_a_gpu(model, version):
    """No memory, too little, memory that is not aligned, and memory for a context that has its own."""
    compiled = torchtrt.compile(model, [ROWS], min_block_size=1)
    (module,) = engines_of(compiled)
    engine = module.deserialize(torch.device("cpu")).engine
    x, y = torch.randn(50, 16), torch.empty(50, 16)
    memory = torch.empty(10_000, dtype=torch.uint8)
    address = memory.data_ptr() + -memory.data_ptr() % 256

    def context_of(lend):
        context = RuntimeSettings(share_execution_memory=True).new_context(engine, b"")
        context.set_input_shape(module.inputs[0].name, (50, 16))
        context.set_tensor_address(module.inputs[0].name, x.data_ptr())
        context.set_tensor_address(next(iter(module.outputs)), y.data_ptr())
        lend(context)
        return context

    def lend(address, size):
        def to(context):
            if version == "reference@8.6.0":
                context.device_memory = address
            else:
                context.set_device_memory(address, size)

        return to

    assert not context_of(lambda context: None).execute_async_v3(0)
    assert not context_of(lend(address + 1, 9000)).execute_async_v3(0)
    if version != "reference@8.6.0":  # whose interface has no size
        assert not context_of(lend(address, 3000)).execute_async_v3(0)
    assert context_of(lend(address, 9000)).execute_async_v3(0)
    torch.testing.assert_close(y, model(x))
    with pytest.raises(RuntimeError, match="memory of its own"):
        lend(address, 9000)(engine.create_execution_context())


def test_the_reference_notices_who_else_writes_to_the_memory():
    """As a program does that frees the memory too early, and puts another tensor there."""
    memory = torch.empty(1024, dtype=torch.uint8)
    lent = LentMemory()
    lent.address = memory.data_ptr() + -memory.data_ptr() % 256

    with lent.in_use(512, memory.device):
        pass
    with (
        pytest.raises(RefusedError, match="something else wrote"),
        lent.in_use(512, memory.device),
    ):
        memory.zero_()
