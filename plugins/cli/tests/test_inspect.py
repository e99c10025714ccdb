"""``torchtrt inspect``: what a saved model contains."""

from __future__ import annotations

import json

import pytest
import rich
import torch
from safetensors.torch import save_file
from torch import nn

import torchtrt
from tests.support.processes import run_python
from torchtrt_cli import main
from torchtrt_runtime import inspect_file


@pytest.fixture
def path(tmp_path):
    """A saved model of two engines."""

    class Model(nn.Module):
        def forward(self, x, flag):
            return torch.linalg.svdvals(x * 2 + 1).half() * 3 + flag

    sizes = torchtrt.Input(min_shape=(2, 6), opt_shape=(4, 6), max_shape=(16, 6))
    with torchtrt.use_tensorrt("reference@10.16.1"):
        compiled = torchtrt.compile(Model().eval(), [sizes, True], min_block_size=1)
        torchtrt.save(compiled, tmp_path / "model.pt2")
    return tmp_path / "model.pt2"


def test_a_saved_model_is_described_as_data(path, capsys):
    """Inputs, ranges, engines, layers, precision, TensorRT, GPU, settings, packs and what PyTorch runs."""
    assert 0 == main(["inspect", str(path), "--json"])
    answer = json.loads(capsys.readouterr().out)

    x, flag = answer["inputs"]
    (name,) = answer["ranges"]
    assert {"name": "x", "dtype": "float32", "sizes": [name, 6]} == x
    assert {"name": "flag", "value": True} == flag
    assert [2, 4, 16] == answer["ranges"][name]
    assert "reference@10.16.1" == answer["tensorrt"]
    assert "" == answer["gpu"]
    assert 1 == answer["settings"]["min_block_size"]
    first, second = answer["engines"]
    assert [[2, 6], [16, 6]] == [first["inputs"][0][bound] for bound in ("min", "max")]
    assert 2 <= first["layers"]
    assert any("float16" in row["dtypes"] for row in answer["converted"])
    assert second["plan_bytes"]
    assert {"aten_core 0.1.0"} == set(first["packs"])
    assert ["aten.linalg_svdvals.default"] == [row["op"] for row in answer["in_torch"]]
    assert any(row["op"] == "aten.mul.Tensor" and row["count"] == 2 for row in answer["converted"])
    assert path.stat().st_size > first["plan_bytes"] + second["plan_bytes"]


def test_a_saved_model_is_described_to_a_person(path, capsys):
    """The tables name what the data holds."""
    assert 0 == main(["inspect", str(path)])
    text = capsys.readouterr().out

    for part in (
        "reference@10.16.1",
        "always True",
        "float32 [2 to 16, 6]",
        "float16",
        "aten_core 0.1.0",
    ):
        assert part in text


class Infinite(nn.Module):
    """No integer is infinite."""

    def forward(self, x):
        return torch.isposinf(x)


@pytest.mark.parametrize("inductor", [False, True, "max-autotune"])
def test_what_inductor_compiles_and_what_was_measured_is_told(tmp_path, capsys, inductor):
    """In the heading of what PyTorch runs, as in the report; and what tuning tried."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()
    compiled = torchtrt.compile(
        model,
        [torch.rand(2, 4)],
        min_block_size=1,
        torch_executed_ops={"aten.relu"},
        inductor=inductor,
    )
    compiled.report.tried.append("as it was partitioned: 1 ms")
    torchtrt.save(compiled, tmp_path / "model.pt2")
    assert 0 == main(["inspect", str(tmp_path / "model.pt2")])
    inspected = capsys.readouterr().out
    rich.print(compiled.report)
    for printed in (inspected, capsys.readouterr().out, str(compiled.report)):
        assert ("compiled by Inductor" in printed) == bool(inductor)
        assert ("max-autotune when" in printed) == (inductor == "max-autotune")
        assert compiled.report.tried[0] in printed
    main(["inspect", str(tmp_path / "model.pt2"), "--json"])
    assert compiled.report.tried == json.loads(capsys.readouterr().out)["tried"]


def test_a_file_that_is_no_saved_model_makes_no_sense(tmp_path, capsys):
    """Exit status 2, and why."""
    (tmp_path / "text.pt2").write_text("hello")
    torch.export.save(torch.export.export(nn.ReLU(), (torch.ones(2),)), tmp_path / "program.pt2")
    for name in ("text.pt2", "program.pt2", "nothing.pt2"):
        assert 2 == main(["inspect", str(tmp_path / name)])
        assert name in capsys.readouterr().err


def test_inspecting_loads_no_engine(path):
    """Neither a TensorRT nor what runs engines is started."""
    code = (
        "import sys; from torchtrt_cli import main; main(['inspect', sys.argv[1], '--json'])\n"
        "assert 'torchtrt_reference' not in sys.modules and 'tensorrt' not in sys.modules"
    )
    done = run_python("-c", code, str(path))

    assert 0 == done.returncode, done.stderr


def test_a_report_without_engines_does_not_speak_of_engines(capsys):
    """The only result is a constant: there is nothing to compile."""
    model = torch.export.export(Infinite(), (torch.arange(3),))
    rich.print(torchtrt.compile(model, min_block_size=1).report)
    assert "Every result is an input or a constant." in capsys.readouterr().out


def test_engines_without_weights_are_told_and_profile_takes_a_file_of_them(tmp_path, capsys):
    """The file of weights is for saved models without weights only."""
    model, x = torch.nn.Linear(4, 4).eval(), torch.rand(2, 4)
    options = {"min_block_size": 1, "strip_engine_weights": True}
    with torchtrt.use_tensorrt("reference@10.16.1"):
        torchtrt.save(torchtrt.compile(model, [x], **options), tmp_path / "model.pt2")
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    file, weights = str(tmp_path / "model.pt2"), str(tmp_path / "model.safetensors")
    assert main(["inspect", file]) == 0
    assert "The engines have no weights in the file" in capsys.readouterr().out
    assert [engine["has_weights"] for engine in inspect_file(file)["engines"]] == [False]
    assert main(["profile", file, "--calls", "1"]) == 2
    assert "no weights for its engines" in capsys.readouterr().err
    assert main(["profile", file, "--calls", "1", "--weights", weights]) == 0
    program = tmp_path / "program.pt2"
    torch.export.save(torch.export.export(model, (x,)), program)
    capsys.readouterr()
    assert main(["profile", str(program), "--weights", weights]) == 2
    assert "--weights is for saved models without" in capsys.readouterr().err
