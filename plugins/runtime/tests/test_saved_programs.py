"""Programs drawn at random: what is saved is loaded in a new process, and calls compute the same."""

from __future__ import annotations

import importlib.util
import json
import warnings
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import torchtrt
from tests.support.shards import shards
from tests.support.size_texts import texts
from torchtrt.errors import UnsupportedProgramError

MODEL = """
import math

import torch


def choose(condition, value, other):
    return torch.sym_ite(condition, value, other)


def negated(condition):
    return torch.sym_not(condition)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Buffer(torch.tensor([1.5, -2.0, 3.0]))

    def forward(self, x):
        n, m = x.shape[0], x.shape[1]
        {body}
"""
BODIES = [
    "return (torch.linalg.svdvals(x + 1) * {float}).sin()",
    "return torch.linalg.svdvals(x + 1)[:1] * {whole}, x * 2",
    "return x.sum() + {whole}, {whole}",
    "return x.new_ones(max(1, min(8, {whole}))) * 2, x + 1",
    "return torch.nn.functional.pad(x, [0, abs({whole}) % 5]) * 2",
    "return (x * 2 if {condition} else torch.linalg.svdvals(x)), self.w * 2",
    "y = x[x[:, 0] > 0.5]\n        return torch.cat([y, x[: {number}]]) * 2, y.sum(0)",
    "y = torch.cat([x[x[:, 0] > 0.5], x[:1]])\n        return torch.linalg.svdvals(y[:, None] + y.shape[0] * n) + 1",
]
FRONT_ENDS = ["export", "strict", "script"]
SIZES = [(5, 6), (8, 3), (7, 7), (12, 10)]
LOADING = """
import json, sys, torch, torchtrt
torch.manual_seed(0)
for path in sys.argv[1:]:
    loaded = torchtrt.load(path)
    outcomes = []
    for size in {sizes}:
        x = torch.rand(size, generator=torch.Generator().manual_seed(size[0]))
        try:
            results = torch.utils._pytree.tree_leaves(loaded(x))
            outcomes.append([each.tolist() if isinstance(each, torch.Tensor) else each for each in results])
        except torchtrt.errors.InputError:
            outcomes.append("refused")
    print(json.dumps(outcomes))
"""


def inputs(size: tuple[int, int]) -> torch.Tensor:
    return torch.rand(size, generator=torch.Generator().manual_seed(size[0]))


@st.composite
def programs(draw: Any) -> tuple[str, str]:
    """Draws the source of a model, and a front end."""
    body = draw(st.sampled_from(BODIES))
    for kind in ("whole", "float", "condition", "number"):
        while "{" + kind + "}" in body:
            body = body.replace("{" + kind + "}", draw(texts(kind, 2)), 1)
    return MODEL.replace("{body}", body), draw(st.sampled_from(FRONT_ENDS))


def compiled_model(source: str, front_end: str, path: Any) -> Any:
    """Returns what is compiled of a model; None where PyTorch or torchtrt refuses it."""
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.Model().eval()
    rows, columns = (
        torch.export.Dim("rows", min=4, max=16),
        torch.export.Dim("columns", min=3, max=12),
    )
    try:
        if front_end == "script":
            declared = [torchtrt.Input(min_shape=(4, 3), opt_shape=(5, 6), max_shape=(16, 12))]
            return torchtrt.compile(torch.jit.script(model), declared, min_block_size=1)
        program = torch.export.export(
            model,
            (inputs((5, 6)),),
            dynamic_shapes=({0: rows, 1: columns},),
            strict=front_end == "strict",
            prefer_deferred_runtime_asserts_over_guards=False,
        )
        return torchtrt.compile(program, min_block_size=1)
    except Exception:  # PyTorch or torchtrt refuses many of these programs
        return None


@pytest.mark.parametrize("shard", shards(6, quick=1))
def test_what_is_saved_is_loaded_in_a_new_process(tmp_path, fresh, shard):
    """Or refused by our own error, with no file. Conditions of the export hold there too."""
    expected, saved, refused = [], [], []

    @seed(shard)
    @settings(
        max_examples=60,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(programs())
    def save(drawn):
        number = len(saved) + len(refused)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = compiled_model(*drawn, tmp_path / f"model_{shard}_{number}.py")
        if compiled is None:
            return
        file = tmp_path / f"{number}.pt2"
        try:
            torchtrt.save(compiled, file)
        except UnsupportedProgramError:
            refused.append(file)
            assert not file.exists()
            return
        saved.append(file)
        outcomes = []
        for size in SIZES:
            try:
                results = compiled(inputs(size))
            except torchtrt.errors.InputError:
                outcomes.append("refused")
                continue
            outcomes.append(torch.utils._pytree.tree_leaves(results))
        expected.append(outcomes)

    save()
    printed = fresh(LOADING.replace("{sizes}", repr(SIZES)), *saved).splitlines()

    assert len(saved) > 10
    for file, outcomes, line in zip(saved, expected, printed, strict=True):
        for outcome, actual in zip(outcomes, json.loads(line), strict=True):
            if outcome == "refused":
                assert actual == "refused", file
                continue
            for left, right in zip(outcome, actual, strict=True):
                torch.testing.assert_close(
                    torch.as_tensor(right), torch.as_tensor(left), check_dtype=False, equal_nan=True
                )
