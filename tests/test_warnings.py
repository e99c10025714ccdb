"""Nothing warns without a reason, and a warning names the user's line, whatever the user called."""

import functools
import os
import warnings

import pytest
import torch
from torch import nn

import torchtrt
from tests.support.processes import run_python
from tests.support.warned import warning_in
from torchtrt_cli import main
from torchtrt_compiler.refit import refitting
from torchtrt_runtime.modules.engine import EngineModule
from torchtrt_runtime.serialization import saving

SLOW_GUARDS = "Guards may run slower on Python 3.13.0"
"""PyTorch's warning about a fault of that version of Python."""

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
        *("-X", "dev", "-W", "error", "-W", f"ignore:{SLOW_GUARDS}", "-c", PROGRAMS[what]),
        cwd=tmp_path,
        env={**os.environ, "TORCHTRT_CACHE": str(tmp_path / "cache"), "COLUMNS": "200"},
    )

    assert ("", 0) == (done.stderr, done.returncode)


class Rows(nn.Module):
    """A linear layer."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        """Returns as many rows."""
        return self.linear(x).relu()


X = torch.rand(2, 4)
UNUSED = {"min_block_size": 1, "torch_executed_ops": {"aten.gelu"}}
"""A setting that has no effect on the model."""


def compiled_in_training_mode(_):
    """Warns before the export."""
    torchtrt.compile(Rows(), (X,), min_block_size=1)


def compiled_with_unused_settings(_):
    """Warns after it."""
    torchtrt.compile(Rows().eval(), (X,), **UNUSED)


def explained(_):
    """Is one call further than ``compile``."""
    torchtrt.explain(Rows().eval(), (X,), **UNUSED)


def compiled_by_pytorch(_):
    """Warns in the first call, of an op without a converter."""
    torch._dynamo.reset()
    torch.compile(lambda x: torch.igamma(x + 1, x), backend="torchtrt")(X)


def followed(_):
    """Warns in a call."""
    torchtrt.follow(Rows().eval())(X)


def loaded_for_another_model(folder):
    """Warns when the programs of a followed model are loaded."""
    model = torchtrt.follow(Rows().eval(), min_block_size=1)
    with torch.no_grad():
        model(X)
    model.torchtrt.save(folder)
    other = Rows().eval()
    other.linear.forward = functools.partial(nn.Linear.forward, other.linear)
    torchtrt.follow(other, min_block_size=1).torchtrt.load(folder)


def loaded(folder):
    """Reads the description of the saved model, which warns here."""
    torchtrt.save(torchtrt.compile(Rows().eval(), (X,), min_block_size=1), folder / "model.pt2")
    with warning_in(saving, "read_metadata"):
        torchtrt.load(folder / "model.pt2")


def refitted(_):
    """Computes the values for an engine, which warns here."""
    compiled = torchtrt.compile(Rows().eval(), (X,), min_block_size=1, immutable_weights=False)
    with warning_in(refitting, "engine_changes"):
        torchtrt.refit_module_weights(compiled, Rows().eval())


def called(_):
    """Runs an engine, which warns here."""
    compiled = torchtrt.compile(Rows().eval(), (X,), min_block_size=1)
    with warning_in(EngineModule, "forward"):
        compiled(X)


def used_in_a_command(folder):
    """Is what the command line's entry point does."""
    torch.export.save(torch.export.export(Rows().eval(), (X,)), folder / "program.pt2")
    main(["explain", str(folder / "program.pt2"), "--set", "torch_executed_ops=aten.gelu"])


@pytest.mark.parametrize(
    "use",
    [
        *(compiled_in_training_mode, compiled_with_unused_settings, explained),
        *(compiled_by_pytorch, followed, loaded_for_another_model, loaded, refitted, called),
        used_in_a_command,
    ],
    ids=lambda use: use.__name__,
)
def test_a_warning_names_the_users_line(use, tmp_path):
    """Not a line of torchtrt or of PyTorch between, of which the user knows nothing."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", SLOW_GUARDS)
        use(tmp_path)

    assert caught
    assert {__file__} == {warning.filename for warning in caught}
