"""Sizes in saved models: whatever PyTorch computes of sizes is loaded again, or refused before a file is written."""

from __future__ import annotations

import io
import json
import math
import re
import warnings
import zipfile

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

import torchtrt
from plugins.runtime.tests.saved_models import SVD, function
from torchtrt.errors import UnsupportedProgramError

ROWS = torchtrt.Input(min_shape=(2, 6), opt_shape=(4, 6), max_shape=(16, 6))
COLUMNS = {
    1: Dim("n", min=3, max=16)
}  # PyTorch 2.11 takes no matrices with fewer columns than rows


def expressions_in(path):
    """Returns the texts of sizes in a saved program."""
    with zipfile.ZipFile(path) as file:
        (name,) = (member for member in file.namelist() if member.endswith("models/model.json"))
        waiting, expressions = [json.loads(file.read(name))], set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            expressions |= {value["expr_str"]} if "expr_str" in value else set()
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return expressions


def check_saved(model, compiled, path, *calls):
    """Checks that a model computes the same after saving, and after saving what was loaded."""
    torchtrt.save(compiled, path)
    loaded = torchtrt.load(path)
    again = path.with_name("again.pt2")
    torchtrt.save(loaded, again)
    program = torch.export.load(path)
    for x in calls:
        expected = model(x)
        torch.testing.assert_close(compiled(x), expected)
        torch.testing.assert_close(loaded(x), expected)
        torch.testing.assert_close(torchtrt.load(again)(x), expected)
        torch.testing.assert_close(program.module()(x), expected)


@pytest.mark.parametrize("factor", [1.5, (1.5, 2.5), 0.75])
def test_a_size_that_is_computed_with_a_fraction_is_loaded(every_tensorrt, tmp_path, factor):
    """As ``Upsample`` does."""
    model = nn.Sequential(nn.Conv2d(3, 3, 3), nn.Upsample(scale_factor=factor)).eval()
    image = torchtrt.Input(
        min_shape=(1, 3, 8, 8), opt_shape=(1, 3, 16, 16), max_shape=(1, 3, 32, 32)
    )
    compiled = torchtrt.compile(model, [image], min_block_size=1)

    check_saved(
        model, compiled, tmp_path / "model.pt2", torch.rand(1, 3, 9, 11), torch.rand(1, 3, 32, 8)
    )


class Evenly(nn.Module):
    """Pads to an even number of rows."""

    def forward(self, x):
        if x.shape[0] % 2 == 1:
            x = torch.cat([x, x.new_zeros(1, x.shape[1])])
        return torch.linalg.svdvals(x.reshape(-1, 2, x.shape[1])) * 2


class Padded(nn.Module):
    """Pads by a number of rows."""

    def forward(self, x):
        return F.pad(x * 2, [0, 0, 0, x.shape[0] % 2]) + 1


@pytest.mark.parametrize("model", [Evenly(), Padded()])
def test_a_scripted_model_that_pads_to_an_even_number_of_rows_is_loaded(
    every_tensorrt, tmp_path, model
):
    """Its number of rows depends on data for PyTorch, and may be inside an engine."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(model)
    compiled = torchtrt.compile(scripted, [ROWS], min_block_size=1)

    check_saved(model, compiled, tmp_path / "model.pt2", torch.rand(5, 6), torch.rand(4, 6))


@pytest.mark.parametrize(
    "call",
    [
        lambda m, x: torch.cat([x[x[:, 0] > 0.5], x[:1]]) * 2,
        lambda m, x: torch.cat([x[x[:, 0] > 0.5]] * 3 + [x[:1]]) * 2,
        lambda m, x: SVD(torch.cat([x[x[:, 0] > 0.5], x[:2]])[:, None] * 2) + 1,
        lambda m, x: (
            torch.cat([x[x[:, 0] > 0.5], x[:1]]),
            torch.cat([x[x[:, 0] > 0.5], x[:2]]).T,
            torch.cat([x[x[:, 1] > 0.5], x[x[:, 2] > 0.5]]),
        ),
        lambda m, x: torch.cat([x[x[:, 0] > 0.5], x]).reshape(-1),
        lambda m, x: x.nonzero().reshape(-1) + 1,
        lambda m, x: torch.cat([x[x[:, 0] > 0.5], x])[::2].T[None] * 2,
    ],
)
def test_rows_that_only_an_engine_counts_are_loaded(every_tensorrt, tmp_path, call):
    """PyTorch's reader wants the number of rows by itself, and the engine returns more rows."""
    model = function(call)
    compiled = torchtrt.compile(model, [ROWS], min_block_size=1)

    check_saved(model, compiled, tmp_path / "model.pt2", torch.rand(5, 6), torch.rand(16, 6))


def test_sizes_that_depend_on_the_same_data_stay_related(tmp_path):
    """A reader knows of the strides, and of each size what it has in common with the others."""
    model = function(
        lambda m, x: (y := torch.cat([x[x[:, 0] > 0.5], x[:1]]), torch.cat([y, x[:2]]))
    )
    with torchtrt.use_tensorrt("reference@11.4.0"):
        torchtrt.save(torchtrt.compile(model, [ROWS], min_block_size=1), tmp_path / "model.pt2")
    program = torch.export.load(tmp_path / "model.pt2")

    first, second = (node.meta["val"] for node in program.graph.output_node().args[0])
    difference = second.shape[0].node.expr - first.shape[0].node.expr
    assert 2 == difference
    assert (6, 1) == first.stride()


@pytest.mark.parametrize(
    "call",
    [
        lambda m, x: SVD(x + 1) * (1 / math.sqrt(x.shape[1])),
        lambda m, x: SVD(x + 1) * math.sqrt(x.shape[1] * 2 + 1) * x.shape[1] ** 0.5,
        lambda m, x: SVD(x + 1) * torch.sym_ite(x.shape[1] > 4, x.shape[1], x.shape[1] * 2),
        lambda m, x: SVD(x + 1) * math.ceil(x.shape[1] * 1.5) * math.floor(x.shape[1] * 0.7),
        lambda m, x: SVD(x + 1) * abs(x.shape[1] - 5) * round(x.shape[1] * 0.25),
        lambda m, x: SVD(x + 1) * round(x.shape[1] * 0.5) * round(-x.shape[1] * 0.5),
    ],
)
def test_numbers_that_pytorch_does_not_read_are_loaded(tmp_path, call):
    """PyTorch's reader would make a function without a meaning of a square root, and has no ``floor``."""
    model = function(call)
    program = torch.export.export(
        model, (torch.rand(3, 6),), dynamic_shapes=(COLUMNS,), strict=True
    )
    compiled = torchtrt.compile(program, min_block_size=1, torch_executed_ops={"aten.mul.Tensor"})

    calls = [torch.rand(3, size) for size in (9, 4, 3, 10, 11)]
    check_saved(model, compiled, tmp_path / "model.pt2", *calls)
    assert not [
        expression
        for expression in expressions_in(tmp_path / "model.pt2")
        if "Opaque" in expression
    ]


def test_a_condition_with_a_square_root_is_checked_after_loading(tmp_path):
    """Conditions of the export are those of a file."""

    class Model(nn.Module):
        def forward(self, x):
            return x * 2 if 1 / math.sqrt(x.shape[1]) < 0.4 else x + 3

    example = torch.rand(3, 9)
    program = torch.export.export(
        Model().eval(), (example,), dynamic_shapes=({1: Dim.AUTO(min=7, max=64)},), strict=True
    )
    program.range_constraints.update()
    compiled = torchtrt.compile(program, min_block_size=1)

    check_saved(Model(), compiled, tmp_path / "model.pt2", torch.rand(3, 8), example)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, x: SVD(x + 1) * round(x.shape[1] * 0.7, 1), "builtins.round"),
        (lambda m, x: (SVD(x + 1), x.shape[1] > 4), "returns the condition"),
    ],
)
def test_a_model_that_no_file_can_have_is_refused_before_a_file_is_touched(tmp_path, call, message):
    """A file that is there stays, and a file object gets nothing."""
    path, memory = tmp_path / "model.pt2", io.BytesIO()
    path.write_text("earlier")
    program = torch.export.export(
        function(call), (torch.rand(3, 6),), dynamic_shapes=(COLUMNS,), strict=True
    )
    compiled = torchtrt.compile(program, min_block_size=1)

    for file in (path, memory):
        with pytest.raises(UnsupportedProgramError, match=message) as raised:
            torchtrt.save(compiled, file)
        assert "Traceback" not in str(raised.value)
    assert "earlier" == path.read_text()
    assert [path] == list(tmp_path.iterdir())
    assert not memory.getvalue()


def test_what_loading_would_refuse_is_refused_by_saving(tmp_path, monkeypatch):
    """Saving reads again what it is going to write, whatever it is that a reader does not take."""
    compiled = torchtrt.compile(function(lambda m, x: x * 2), [ROWS], min_block_size=1)
    monkeypatch.setattr("torchtrt_runtime.serialization.file_safety._NAME", re.compile("no name"))

    with pytest.raises(
        UnsupportedProgramError, match=r"since torchtrt\.load would refuse it: The file"
    ):
        torchtrt.save(compiled, tmp_path / "model.pt2")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "context",
    [
        torch.inference_mode,
        torch.no_grad,
        lambda: torch.device("meta"),
        lambda: torch.autocast("cpu"),
    ],
)
def test_models_are_saved_and_loaded_in_any_mode_of_pytorch(tmp_path, context):
    """What is on there has no effect on the file, nor on what is loaded."""
    model = function(
        lambda m, x: SVD(x * m.w) + 1 + m.none.sum(), w=torch.rand(6), none=torch.rand(0)
    )
    compiled = torchtrt.compile(model, [ROWS], min_block_size=1)
    with context():
        torchtrt.save(compiled, tmp_path / "model.pt2")
        loaded = torchtrt.load(tmp_path / "model.pt2")
    x = torch.rand(5, 6)

    torch.testing.assert_close(loaded(x), model(x))


def test_padding_to_whole_windows_is_loaded(every_tensorrt, tmp_path):
    """Window attention rounds a size up."""

    class Model(nn.Module):
        def forward(self, x):
            rows = math.ceil(x.shape[0] / 4)
            x = F.pad(x, [0, 0, 0, rows * 4 - x.shape[0]])
            return SVD(x.reshape(rows, 4, x.shape[1]) + 1)

    rows = torchtrt.Input(min_shape=(5, 6), opt_shape=(8, 6), max_shape=(16, 6))
    compiled = torchtrt.compile(Model().eval(), [rows], min_block_size=1)

    check_saved(Model(), compiled, tmp_path / "model.pt2", torch.rand(6, 6), torch.rand(16, 6))
