"""Models that C++ programs run: those of the page on the library, with engines of the stand-in."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.export import Dim

import torchtrt
from plugins.cpp.tests.plans import TENSORRT
from torchtrt_runtime.modules.engine import EngineModule

PROGRAMS = {"aot_inductor": ("run_model", "model.pt2"), "torchscript": ("run_script", "model.ts")}


class Doubled(nn.Module):
    """An engine for 2 * x + 1 that is called twice, and an op between that stays in PyTorch."""

    def forward(self, x):
        return torch.cumsum(x * 2 + 1, 0) * 2 + 1


class Positives(nn.Module):
    """An engine whose output has a size that depends on data, and an op that stays in PyTorch."""

    def forward(self, x):
        return torch.cumsum(x[x > 0] * 2 + 1, 0)


def save(model, path, form, kind="output", sizes="1,2 8,2"):
    """Saves a model whose engines are replaced by those of the stand-in for 2 * x + 1."""
    compiled = torchtrt.compile(
        model.eval(),
        [torch.ones(4, 2)],
        dynamic_shapes=({0: Dim("rows", min=1, max=8)},),
        torch_executed_ops={"torch.ops.aten.cumsum.default"},
        min_block_size=1,
    )
    for engine in compiled.graph_module.children():
        if isinstance(engine, EngineModule):
            (source,), (name,) = engine.inputs, engine.outputs
            plan = (
                f"stand-in plan\ninput {source.name} float32\nprofile {source.name} {sizes}\n"
                f"{kind} {name} float32 {source.name} 2 1\n"
            )
            engine.reload(plan=plan.encode(), tensorrt=TENSORRT)
    torchtrt.save(compiled, path, format=form)


def numbers(text):
    """Returns the numbers that a program printed of its tensors."""
    lines = [line for line in text.splitlines() if not line.startswith(("[", "TensorRT", "("))]
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", "\n".join(lines))]


REFUSALS = {
    "aot_inductor": "refused the shape (9, 2) of its input",
    "torchscript": "The model was compiled for 1 to 8 in",
}
"""What is said of a size in no range: the engine's reason, or that of the file, which checks it before."""


@pytest.mark.parametrize("form", PROGRAMS)
def test_a_program_runs_engines_and_the_ops_between_them(programs, tmp_path, form):
    """A size in no range is an error with a reason, which Inductor's own error does not have."""
    name, file = PROGRAMS[form]
    save(Doubled(), tmp_path / file, form)

    for rows in (3, 8):
        command = [programs / name, tmp_path / file, str(rows), "2"]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        expected = Doubled()(torch.ones(rows, 2)).flatten().tolist()
        assert expected == numbers(result.stdout)
        assert result.stdout.endswith("TensorRT 10.16.1.11, engines in memory: 1\n")

    command = [programs / name, tmp_path / file, "9", "2"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 1 == refused.returncode
    assert REFUSALS[form] in refused.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("form", PROGRAMS)
def test_a_program_runs_engines_whose_sizes_depend_on_data(programs, tmp_path, form):
    name, file = PROGRAMS[form]
    save(Positives(), tmp_path / file, form, "positives")

    command = [programs / name, tmp_path / file, "2", "2"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)

    assert [3, 6, 9, 12] == numbers(result.stdout)


def test_the_page_shows_the_programs_that_are_run():
    """Each has at most fifty lines."""
    plugin = Path(__file__).parents[1]
    page = (plugin.parents[1] / "docs/cpp.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```cpp\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)

    programs = [plugin / "examples" / f"{name}.cpp" for name, _ in PROGRAMS.values()]
    assert shown == [path.read_text(encoding="utf-8") for path in programs]
    assert all(len(program.splitlines()) <= 50 for program in shown)
