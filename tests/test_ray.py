"""Ray computes a data set with a saved model, and compiles many models, and loses nothing with a worker.

They are slow because a cluster starts, and each worker imports PyTorch.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.triton_server import FOLDER, needs_serving
from tests.test_docs import CODE_BLOCK, PAGES

pytestmark = [pytest.mark.slow, needs_serving]
BLOCKS = CODE_BLOCK.findall(PAGES["ray.md"])
SETUP, DATA, MODELS, SHUTDOWN = BLOCKS
CLASSIFIER = DATA.partition("\n\nx = ")[0]
BUILD = MODELS.partition("\n\nwidths = ")[0]

KILL_A_WORKER = """
import os, signal, time


class Slow(Classifier):
    def __call__(self, batch):
        time.sleep(0.2)
        return {**super().__call__(batch), "pid": [os.getpid()] * len(batch["id"])}


x = torch.rand(1000, 16)
items = [{"id": i, "x": row} for i, row in enumerate(x.numpy())]
data = ray.data.from_items(items, override_num_blocks=20)
workers = ray.data.ActorPoolStrategy(size=2)
results = data.map_batches(Slow, fn_constructor_args=(str(path),), compute=workers, batch_size=25)
rows, killed = [], None
for row in results.iter_rows():
    rows.append(row)
    if killed is None:
        killed = row["pid"]
        os.kill(killed, signal.SIGKILL)
pids = {row["pid"] for row in rows}
assert 3 == len(pids), pids  # two, and the one in the place of the killed one
assert list(range(1000)) == sorted(row["id"] for row in rows)
rows.sort(key=lambda row: row["id"])
found = torch.stack([torch.from_numpy(row["logits"].copy()) for row in rows])
torch.testing.assert_close(found, model(x))
print("all rows")
"""

KILL_A_BUILDER = """
import os, signal, time


@ray.remote(max_retries=3)
def build_or_die(width, folder, cache):
    replace, mark = os.replace, folder / "died"

    def dying(source, target):
        if str(cache) in str(target) and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)  # with the lock, before the engine has its name
        replace(source, target)

    os.replace = dying
    try:
        return local(width, folder, cache)
    finally:
        os.replace = replace


local = build._function
outcomes = ray.get([build_or_die.remote(20, path.parent, cache) for _ in range(6)])
assert (path.parent / "died").exists()
assert 5 == sum(outcomes), outcomes  # one built it, the others found it
engine = torchtrt.load(path.parent / "width_20.pt2")
torch.manual_seed(20)
eager = torch.nn.Sequential(torch.nn.Linear(16, 20), torch.nn.Tanh()).eval()
x = torch.rand(64, 16)
torch.testing.assert_close(engine(x), eager(x))
print("built once")
"""


def run(folder: Path, *blocks: str) -> str:
    """Returns what a program prints that starts a cluster of its own."""
    program = folder / "program.py"
    program.write_text("\n".join(blocks), encoding="utf-8")
    environment = {
        **os.environ,
        "PYTHONPATH": str(FOLDER),
        "HOME": str(folder),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_enable_metrics_collection": "0",
        "OMP_NUM_THREADS": "1",
    }
    output = folder / "output.txt"
    with output.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, program],
            cwd=folder,
            env=environment,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
        try:
            status = process.wait(200)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait()
    text = output.read_text(errors="replace")
    assert 0 == status, text[-5000:]
    return text


def test_the_code_of_the_page_runs(tmp_path):
    """On a cluster of one machine with two workers."""
    run(tmp_path, *BLOCKS)


def test_a_killed_worker_loses_no_row(tmp_path):
    """Each row is there once, with what eager PyTorch computes."""
    assert "all rows" in run(tmp_path, SETUP, CLASSIFIER, KILL_A_WORKER, SHUTDOWN)


def test_a_killed_builder_leaves_the_cache_usable(tmp_path):
    """Its task runs again, and the engine is built once."""
    assert "built once" in run(tmp_path, SETUP, BUILD, KILL_A_BUILDER, SHUTDOWN)
