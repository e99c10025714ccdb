"""Tensor-parallel models in two processes, over gloo."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest
import torch

from tests.support.processes import TESTING, run_python
from tests.support.simulated_ranks import as_rank
from torchtrt.errors import EngineError, ProcessGroupError
from torchtrt_runtime.processes.groups import Processes, as_broken_exchange, engine_failure

PROGRAMS = [Path(__file__).with_name(f"parallel_{name}.py") for name in ("parts", "program")]
PROCESSES = Processes(2, 1, {"0": (0, 1)})


CHECKS = [
    name
    for program in PROGRAMS
    for name in re.findall(r"^def (check_\w+)", program.read_text(), re.MULTILINE)
]
SLOW = {"check_generated_texts", "check_divided_rows_with_torch_compile"}
"""Checks that take long. The others divide models in the same way; generation and ``torch.compile`` have tests."""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory, request):
    """For each check, the errors of both ranks; one pair of processes makes all but unselected slow ones."""
    folder = tmp_path_factory.mktemp("ranks")
    chosen = {item.name for item in request.session.items if item.path == request.path}
    left_out = [name for name in SLOW if f"test_two_processes[{name}]" not in chosen]
    command = ("-m", "tests.parallel_program", str(folder), *left_out)
    done = run_python(*command, libraries=TESTING, timeout=200)
    files = [folder / f"outcomes-{rank}.json" for rank in range(2)]
    outcomes_ = [json.loads(file.read_text()) if file.exists() else {} for file in files]
    return outcomes_, done.stderr[-3000:]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in CHECKS],
)
def test_two_processes(name, outcomes):
    """The docstring of a check holds in both ranks, over gloo."""
    results, printed = outcomes

    for rank in range(2):
        error, _ = results[rank].get(name, (f"an earlier check failed: {printed}", 0))
        assert not error, f"rank {rank}: {error}"


@pytest.mark.slow  # what the test above does, as a user would start it
def test_the_program_of_the_page_runs(tmp_path):
    """``torchrun`` starts it."""
    page = Path(__file__).parents[1] / "docs" / "several-gpus.md"
    (code,) = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "parallel.py").write_text(code)
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")

    done = run_python(*torchrun, "parallel.py", cwd=tmp_path, timeout=300)

    assert done.returncode == 0, done.stderr[-3000:]
    first, second = re.findall(r"tensor\((.*?)[,)]", done.stdout)
    assert first == second
    assert {"model-0.pt2", "model-1.pt2"} <= {path.name for path in tmp_path.iterdir()}


def test_a_part_needs_the_other_processes():
    """A program that is started alone prints how to start several."""
    with pytest.raises(ProcessGroupError, match="torchrun --nproc-per-node 2"):
        PROCESSES.check()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"world_size": 4}, "Start 4 processes, or compile the model again"),
        ({"rank": 0}, "Each rank has a file of its own"),
        ({"groups": {"another group": (0, 1)}}, "does not exist. Make the same device meshes"),
        ({"groups": {"all": (1,)}}, "when the model was compiled, it had"),
    ],
)
def test_a_part_takes_its_own_place_only(changes, words):
    """The number of processes, the rank and the groups are those of the compilation."""
    with as_rank(1, 2):
        everyone = torch.distributed.group.WORLD.group_name
        processes = dataclasses.replace(PROCESSES, groups={everyone: (0, 1)})
        processes.check()

        if "all" in changes.get("groups", ()):
            changes = {"groups": {everyone: changes["groups"]["all"]}}
        with pytest.raises(ProcessGroupError, match=words):
            dataclasses.replace(processes, **changes).check()


def test_an_error_of_another_op_keeps_its_words():
    """Only a collective's error gets advice about processes."""
    with pytest.raises(RuntimeError) as caught:
        torch.ones(2) @ torch.ones(3)

    assert as_broken_exchange(caught.value) is None


def test_an_engine_keeps_the_words_of_other_failures():
    """Advice about processes is for the layers that exchange tensors."""
    for text, exchanges in (("Scale: out of memory", True), ("dist_collective", False)):
        error = engine_failure("block_0", text, exchanges)
        assert (EngineError, f"The engine of block_0 failed: {text}") == (type(error), str(error))


def test_a_description_survives_a_file():
    """JSON has strings and lists only."""
    assert Processes.from_json(PROCESSES.to_json()) == PROCESSES
    assert Processes.from_json(None) is None
