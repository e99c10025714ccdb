"""Models that torchtrt compiled in files of ExecuTorch: written, read back, and run on ExecuTorch's own runtime."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

import torchtrt
from tests.support.models import FOLDER

has_executorch = find_spec("executorch") is not None or (FOLDER / "executorch").exists()
pytestmark = [
    pytest.mark.skipif(not has_executorch, reason="ExecuTorch is not installed"),
    pytest.mark.skipif(shutil.which("c++") is None, reason="there is no compiler for C++"),
]
Tensor = torch.Tensor
TENSORRT = "reference@11.4.0"


class Layers(torch.nn.Module):
    """Two engines around an op that ExecuTorch runs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.sin(torch.relu(self.first(x)) - y)
        return self.second(h), h.sum(-1)


class Swapped(torch.nn.Module):
    """The engine reads the inputs in another order than the model has."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return (torch.relu(y) - 2 * x).softmax(-1)


class Counting(torch.nn.Module):
    """A buffer that the model writes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.tensor([5.0, -1.0, 0.5]))

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(x.relu())
        return self.count * 2


class Twice(torch.nn.Module):
    """Two equal parts, which become one engine."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.layer(torch.sin(torch.relu(self.layer(x)))))


class Index(torch.nn.Module):
    """Integers and booleans."""

    def forward(self, x: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        return x.gather(1, index) + 1, index > 0


@dataclass
class Example:
    """A model, its inputs for the compilation, those of the calls, and settings."""

    model: Any
    inputs: list[Any]
    calls: list[tuple[Tensor, ...]]
    settings: dict[str, Any]


def rows(*shape: int) -> torchtrt.Input:
    """Returns an input of 1 to 16 rows."""
    return torchtrt.Input(min_shape=(1, *shape), opt_shape=(4, *shape), max_shape=(16, *shape))


def examples() -> dict[str, Example]:
    """Returns what the process of the tests lowers and runs."""
    torch.manual_seed(0)
    in_torch = {"torch_executed_ops": {"aten.sin.default"}, "min_block_size": 1}
    two = torchtrt.Input(ranges=[[(1, 8), (1, 8), (2, 8)], [(4, 8), (8, 8), (16, 8)]])
    named = {"input_names": ["größe", 'pl"a\\ce'], "output_names": ["é", "positive"]}
    integers = torch.rand(3, 5), torch.tensor([[0], [4], [2]])
    return {
        "layers": Example(
            Layers(),
            [rows(8), rows(16)],
            [(torch.rand(n, 8), torch.rand(n, 16)) for n in (1, 5, 16, 2)],
            in_torch,
        ),
        "swapped": Example(
            Swapped(), [rows(4), rows(4)], [(torch.rand(3, 4), torch.rand(3, 4))], {}
        ),
        "counting": Example(Counting(), [torch.ones(3)], [(torch.full((3,), 2.0),)] * 3, {}),
        "twice": Example(Twice(), [rows(6)], [(torch.rand(n, 6),) for n in (16, 1)], in_torch),
        "index": Example(Index(), list(integers), [integers], named),
        "ranges": Example(torch.nn.Linear(8, 8), [two], [(torch.rand(2, 8),)], {}),
    }


def run_beside_executorch(*arguments: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a program in a process of its own, which finds ExecuTorch."""
    path = os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, **options
    )


@pytest.fixture(scope="module")
def lowered(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What became of each model, by name; a process of its own imports ExecuTorch."""
    folder = tmp_path_factory.mktemp("executorch")
    made = examples()
    with torchtrt.use_tensorrt(TENSORRT):
        for name, example in made.items():
            compiled = torchtrt.compile(example.model.eval(), example.inputs, **example.settings)
            torchtrt.save(compiled, folder / f"{name}.pt2")
            torch.save(example.calls, folder / f"{name}.inputs")
    done = run_beside_executorch(Path(__file__).with_name("delegates.py"), folder, TENSORRT)
    answers = {}
    for line in done.stdout.splitlines():
        if line.startswith("answer "):
            answer = json.loads(line.removeprefix("answer "))
            answers[answer.pop("model")] = answer
    assert answers.keys() == made.keys(), done.stderr
    return made, answers, folder


def check(lowered: Any, name: str) -> Any:
    """Compares the results of each call with those of the model, and returns what became of it."""
    made, answers, folder = lowered
    assert "error" not in answers[name], answers[name]["error"]
    results = torch.load(folder / f"{name}.results")
    model = copy.deepcopy(made[name].model)
    for call, result in zip(made[name].calls, results, strict=True):
        expected = model(*call)
        expected = expected if isinstance(expected, tuple) else (expected,)
        torch.testing.assert_close(tuple(result), tuple(value.detach() for value in expected))
    return answers[name]


def test_engines_are_delegates_and_executorch_runs_the_other_ops(lowered: Any) -> None:
    """At each size; the bytes are those of the plans, and the names are the engines'."""
    answer = check(lowered, "layers")

    assert answer["has_plans"]
    assert answer["calls"] == 2 * 4
    first, second = answer["names"]
    assert [is_input for _, is_input in first] == [True, True, False]
    assert [is_input for _, is_input in second] == [True, False, False]
    assert {name for name, is_input in first if is_input} == {"x", "y"}


def test_arguments_are_in_the_order_of_the_delegate(lowered: Any) -> None:
    """The runtime binds them by their positions."""
    answer = check(lowered, "swapped")

    assert answer["calls"] == 1


def test_a_buffer_keeps_what_the_model_writes(lowered: Any) -> None:
    """ExecuTorch owns it, from call to call."""
    answer = check(lowered, "counting")

    assert answer["calls"] == 3


def test_an_engine_that_the_model_calls_twice_is_two_delegates(lowered: Any) -> None:
    """Each has the plan."""
    answer = check(lowered, "twice")

    assert len(answer["names"]) == answer["calls"] / 2 == 2


def test_names_and_integers_pass(lowered: Any) -> None:
    """A name in UTF-8 is written without escapes, which the runtime would not read."""
    answer = check(lowered, "index")

    assert [name for (name, is_input) in answer["names"][0] if is_input] == ["größe", 'pl"a\\ce']
    (metadata,) = answer["metadata"]
    assert list(metadata) == [
        "io_bindings", "aliased_io", "hardware_compatible", "device_id", "serialized_metadata", "target_platform",
    ]  # fmt: skip


def test_what_a_delegate_cannot_run_is_refused(lowered: Any) -> None:
    """With the engine and the reason."""
    _, answers, _ = lowered

    assert answers["ranges"]["error"].startswith(
        "UnsupportedProgramError: ExecuTorch cannot run the engine of block_0: its sizes have several ranges"
    )


def test_the_code_of_the_page_runs(tmp_path: Path) -> None:
    """It writes a file of ExecuTorch."""
    page = Path(__file__).parents[4] / "docs" / "executorch.md"
    (block,) = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    program = tmp_path / "page.py"
    program.write_text(
        f"{block}\nassert 'TensorRTBackend' in str(lowered.to_executorch().executorch_program)\n"
    )

    done = run_beside_executorch(program, cwd=tmp_path)

    assert 0 == done.returncode, done.stderr
    assert (tmp_path / "model.pte").read_bytes()[4:8] == b"ET12"


def test_the_check_that_fixes_sizes_is_refused(tmp_path: Path) -> None:
    """A file with the sizes of the example would refuse all others."""
    code = (
        "import torchtrt_executorch\n"
        "from executorch.exir import EdgeCompileConfig\n"
        "torchtrt_executorch.lower(None, compile_config=EdgeCompileConfig())"
    )

    done = run_beside_executorch("-c", code)

    assert "SettingsError: ExecuTorch's check of operators fixes dynamic sizes" in done.stderr
