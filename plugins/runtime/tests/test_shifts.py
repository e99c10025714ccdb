"""Shifts by copies between GPUs, with threads for processes and CPU memory for GPUs.

``tests/test_two_ranks.py`` runs them over gloo, and ``tests/benchmarks/two_gpus.py`` on two GPUs.
"""

import contextlib
import threading

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from torchtrt.errors import EngineError
from torchtrt_runtime.processes.shifts import Buffers

CPU = torch.device("cpu")
shift = torch.ops.torchtrt_collectives.shift


class Group:
    """A group of processes, and a barrier of them."""

    def __init__(self, count):
        self.count = count
        self.barrier = threading.Barrier(count, timeout=30)
        self.memory = {}


class Buffer:
    """Memory that all processes of a group can write to. It is full of a number that no test passes."""

    def __init__(self, group, rank, size):
        self.group, self.rank, self.size = group, rank, size
        self.own = torch.full((size,), 255, dtype=torch.uint8)
        group.memory[rank, size] = self.own

    def of_neighbour(self, distance):
        return self.group.memory[(self.rank + distance) % self.group.count, self.size]

    def wait_for_all(self, channel):
        self.group.barrier.wait()


class Stream:
    """A stream or an event that has nothing to wait for."""

    def __init__(self, *_):
        pass

    def wait_stream(self, other):
        pass

    def record(self, stream):
        pass

    def wait(self):
        pass


class Cpu:
    """The memory of a computer in a GPU's place: each copy is done at once."""

    stream = stream_in_use = event = Stream

    def __init__(self, rank, captures=False):
        self.rank, self.captures, self.made = rank, captures, []

    def shared_buffer(self, size, device, group):
        self.made.append(size)
        return Buffer(group, self.rank, size)

    def is_capturing(self):
        return self.captures

    def register_work(self, tensor, work):
        work.wait()

    def using(self, stream):
        return contextlib.nullcontext()


@pytest.mark.parametrize("count", [2, 3])
def test_each_process_receives_what_the_one_behind_it_passes(count):
    """For any distance, several times with one buffer, and with tensors of several sizes and dtypes."""
    group = Group(count)
    gpus = [Cpu(rank) for rank in range(count)]
    inputs = [torch.rand(4, 3), torch.rand(4, 3), torch.arange(5), torch.rand(2, 3).half()]
    received_by = [[] for _ in range(count)]

    def run(rank):
        buffers = Buffers(group, CPU, gpus[rank])
        for distance in range(1, count):
            for input_ in inputs:
                passed = input_ + rank
                received_by[rank].append((distance, input_, buffers.shift(passed, distance)))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(count)]
    for worker in threads:
        worker.start()
    for thread in threads:
        thread.join()

    for rank in range(count):
        assert gpus[rank].made == [48, 40, 12]
        assert len(received_by[rank]) == 4 * (count - 1)
        for distance, sent, received in received_by[rank]:
            assert torch.equal(received, sent + (rank + distance) % count)


def test_a_buffer_is_not_made_while_a_graph_is_recorded():
    """The error names the size and the remedy."""
    group = Group(1)
    buffers = Buffers(group, CPU, Cpu(0, captures=True))

    with pytest.raises(EngineError, match=r"exchange of 4,000 bytes .* Call the model once before"):
        buffers.shift(torch.rand(1000), 1)


def test_a_shift_has_a_contiguous_result_of_the_same_sizes():
    """Also where PyTorch only describes it."""
    with FakeTensorMode():
        result = shift(torch.rand(3, 4).t(), 1, "0")

    assert result.shape == (4, 3)
    assert result.is_contiguous()
