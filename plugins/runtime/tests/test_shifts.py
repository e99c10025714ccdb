"""Shifts by copies between GPUs, with threads for processes and CPU memory for GPUs.

``tests/test_two_ranks.py`` runs them over gloo, and ``tests/benchmarks/two_gpus.py`` on two GPUs.
"""

import contextlib
import threading

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from torchtrt.errors import EngineError
from torchtrt_runtime.processes import shifts

CPU = torch.device("cpu")
shift = torch.ops.torchtrt_collectives.shift


class Processes:
    """Buffers of several processes, and their barrier."""

    def __init__(self, count):
        self.count = count
        self.barrier = threading.Barrier(count, timeout=30)
        self.memory = {}
        self.position = threading.local()

    def buffer(self, size, device, group):
        """Returns the buffer of this thread's process."""
        return Buffer(self, self.position.rank, size)


class Buffer:
    """What ``SharedBuffer`` is on a GPU. It is full of a number that no test passes."""

    def __init__(self, processes, rank, size):
        self.processes, self.rank, self.size = processes, rank, size
        self.own = torch.full((size,), 255, dtype=torch.uint8)
        processes.memory[rank, size] = self.own

    def of_neighbour(self, distance):
        return self.processes.memory[(self.rank + distance) % self.processes.count, self.size]

    def wait_for_all(self, channel):
        self.processes.barrier.wait()


class Stream:
    """A stream that has nothing to wait for."""

    def __init__(self, *_, **__):
        pass

    def wait_stream(self, other):
        pass

    def record(self, *_):
        pass

    def wait(self):
        pass


@pytest.fixture
def no_gpu(monkeypatch):
    """Streams, events, and captures that do nothing."""
    for name in ("Stream", "Event", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(shifts, "is_capturing", lambda: False)
    monkeypatch.setattr(shifts, "register_work", lambda tensor, work: work.wait())


@pytest.mark.parametrize("count", [2, 3])
def test_each_process_receives_what_the_one_behind_it_passes(count, no_gpu, monkeypatch):
    """For any distance, several times with one buffer, and with tensors of several sizes and dtypes."""
    processes = Processes(count)
    monkeypatch.setattr(shifts, "SharedBuffer", processes.buffer)
    monkeypatch.setattr(shifts.weakref, "ref", lambda group: lambda: group)
    inputs = [torch.rand(4, 3), torch.rand(4, 3), torch.arange(5), torch.rand(2, 3).half()]
    received_by = [[] for _ in range(count)]

    def run(rank):
        processes.position.rank = rank
        buffers = shifts._Buffers("group", CPU)
        for distance in range(1, count):
            for input_ in inputs:
                passed = input_ + rank
                received_by[rank].append((distance, input_, buffers.shift(passed, distance)))
        assert len(buffers._buffers) == 3

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(count)]
    for worker in threads:
        worker.start()
    for thread in threads:
        thread.join()

    for rank in range(count):
        assert len(received_by[rank]) == 4 * (count - 1)
        for distance, sent, received in received_by[rank]:
            assert torch.equal(received, sent + (rank + distance) % count)


def test_a_buffer_is_not_made_while_a_graph_is_recorded(no_gpu, monkeypatch):
    """The error names the size and the remedy."""
    monkeypatch.setattr(shifts.weakref, "ref", lambda group: lambda: group)
    monkeypatch.setattr(shifts, "is_capturing", lambda: True)
    buffers = shifts._Buffers("group", CPU)

    with pytest.raises(EngineError, match=r"exchange of 4,000 bytes .* Call the model once before"):
        buffers.shift(torch.rand(1000), 1)


def test_a_shift_has_a_contiguous_result_of_the_same_sizes():
    """Also where PyTorch only describes it."""
    with FakeTensorMode():
        result = shift(torch.rand(3, 4).t(), 1, "0")

    assert result.shape == (4, 3)
    assert result.is_contiguous()
