"""Where every warning is an error, all that a user does with torchtrt works, and standard error stays empty."""

import os

import pytest

from tests.support.processes import run_python

MODEL = """
import warnings

import torch
import torchtrt

model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()).eval()
images = torch.rand(2, 3, 8, 8)
eager = model(images)


def same(compiled):
    assert torch.allclose(eager, compiled(images), atol=1e-3)
"""

PROGRAMS = {
    "import": "import torchtrt\nassert torchtrt.packs.loaded_packs() and not torchtrt.packs.problems()",
    "compile": f"""{MODEL}
same(torchtrt.compile(model, (images,), min_block_size=1))
batch = torchtrt.Input(min_shape=(1, 3, 8, 8), opt_shape=(2, 3, 8, 8), max_shape=(4, 3, 8, 8))
compiled = torchtrt.compile(model, [batch], min_block_size=1, engine_cache=True)
same(compiled)
str(compiled.report), compiled.report.to_json()
torchtrt.explain(model, (images,))
same(torchtrt.compile(model, (images,), min_block_size=1, autocast=torch.float16))
""",
    "torch.compile": f"{MODEL}\nsame(torch.compile(model, backend='torchtrt', options={{'min_block_size': 1}}))",
    "scripted": f"""{MODEL}
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyTorch warns that TorchScript is deprecated
    scripted = torch.jit.freeze(torch.jit.script(model))
same(torchtrt.compile(scripted, (images,), min_block_size=1))
""",
    "save, load and refit": f"""{MODEL}
compiled = torchtrt.compile(model, (images,), min_block_size=1, immutable_weights=False)
torchtrt.save(compiled, "model.pt2")
loaded = torchtrt.load("model.pt2")
same(loaded)
torchtrt.refit_module_weights(loaded, model)
same(loaded)
""",
    "copy and pickle": f"""{MODEL}
import copy
import pickle

compiled = torchtrt.compile(model, (images,), min_block_size=1)
same(copy.deepcopy(compiled))
same(pickle.loads(pickle.dumps(compiled)))
torch.save(compiled, "pickled.pt")
same(torch.load("pickled.pt", weights_only=False))
""",
    "commands": f"""{MODEL}
import contextlib
import io

from torchtrt_cli import main

torch.export.save(torch.export.export(model, (images,)), "program.pt2")
torchtrt.save(torchtrt.compile(model, (images,), min_block_size=1), "saved.pt2")
asked = (
    "packs", "packs --no-load", "doctor", "doctor --no-load", "lock", "doctor --locked", "converters",
    "converters aten.gelu", "coverage torch.add", "explain aten.gelu", "explain program.pt2",
    "explain program.pt2 --html page.html", "inspect saved.pt2", "cache",
)
for command in (*asked, *(f"{{each}} --json" for each in asked), "new-pack vision"):
    with contextlib.redirect_stdout(io.StringIO()) as answer:
        assert 0 == main(command.split()), command
    assert answer.getvalue(), command
""",
}


@pytest.mark.parametrize("what", PROGRAMS)
def test_nothing_warns(what, tmp_path):
    """In a new process, with Python's own development mode on, which warns of files that are not closed."""
    done = run_python(
        *("-X", "dev", "-W", "error", "-c", PROGRAMS[what]),
        cwd=tmp_path,
        env={**os.environ, "TORCHTRT_CACHE": str(tmp_path / "cache"), "COLUMNS": "200"},
    )

    assert ("", 0) == (done.stderr, done.returncode)
