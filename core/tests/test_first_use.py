"""The first use of everything, from whatever thread or process it comes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

import pytest

from tests.support.processes import COMPILING, ONLY_TORCH, run_python
from tests.support.shards import shards

THREADS = """
import sys, threading, traceback

sys.setswitchinterval(1e-5)
for name in sys.argv[1:]:
    __import__(name)
barrier, done, references = threading.Barrier(8), [], set()


def first_use():
    barrier.wait()
    try:
        import torch, torchtrt
        from torchtrt.tensorrt.selection import current

        assert torchtrt.DYNAMO_CONVERTERS.candidates(torch.ops.aten.relu.default)
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()
        x = torch.randn(2, 4)
        compiled = torchtrt.compile(model, (x,), min_block_size=1)
        torch.testing.assert_close(compiled(x), model(x))
        references.add(id(current()))
        done.append(compiled)
    except BaseException:
        traceback.print_exc()


threads = [threading.Thread(target=first_use) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(done), len(references))
"""

PROCESSES = """
import multiprocessing, sys, torch, torchtrt

model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()
x = torch.ones(2, 4)


def child(compiled, queue):
    results = compiled(x), torchtrt.compile(compiled.original, (x,), min_block_size=1)(x)
    queue.put([result.tolist() for result in results])


if __name__ == "__main__":
    compiled = torchtrt.compile(model, (x,), min_block_size=1)
    compiled.original = model
    context = multiprocessing.get_context(sys.argv[1])
    queue = context.Queue()
    process = context.Process(target=child, args=(compiled, queue))
    process.start()
    results = queue.get(timeout=100)
    process.join()
    assert process.exitcode == 0
    assert results == [compiled(x).tolist()] * 2
    print("same")
"""


def run(*arguments: str, libraries: Sequence[str] = COMPILING) -> subprocess.CompletedProcess[str]:
    """Runs a Python of its own on the reference TensorRT."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHTRT_TENSORRT": "reference"}
    return run_python(*arguments, env=environment, libraries=libraries)


@pytest.mark.parametrize("imported", [(), ("torch",), ("torchtrt",)], ids=str)
@pytest.mark.parametrize("attempt", shards(2, quick=1))
def test_the_first_use_may_come_from_eight_threads_at_once(
    imported: tuple[str, ...], attempt: int
) -> None:
    """Each of them imports, looks up, compiles and calls; there is one TensorRT for all."""
    libraries = ONLY_TORCH if imported else ()  # the threads race for what is not imported
    done = run("-c", THREADS, *imported, libraries=libraries)

    assert (done.stdout, done.stderr) == ("8 1\n", "")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_process_can_call_and_compile(method: str, tmp_path: object) -> None:
    """After the parent has compiled: what the parent made, and a model of its own."""
    script = f"{tmp_path}/processes.py"
    with open(script, "w") as file:
        file.write(PROCESSES)

    done = run(script, method)

    assert done.stdout == "same\n", done.stderr
