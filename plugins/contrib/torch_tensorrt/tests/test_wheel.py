"""The real Torch-TensorRT, where ``make compare`` has brought it: its converters are adopted.

Each program of ``programs`` runs in a process of its own, so that no other test finds a ``torch_tensorrt``.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.processes import run_python

ROOT = Path(__file__).parents[4]
PROGRAMS = Path(__file__).parent / "programs"
WHEEL = ROOT / ".cache/torch-tensorrt"
VERSION = "2.13.0"
needs_the_wheel = pytest.mark.skipif(
    not (WHEEL / "ready").exists(), reason="Torch-TensorRT is not here: `make compare` brings it"
)

CONVERTED = [
    "scaled_gelu scaled_gelu:published_gelu",
    "rms_norm rows:rms_norm",
    "repeat_rows rows:repeat_rows",
    "extremes rows:extremes",
    "count_all rows:count_all",
    "like_rows rows:like_rows",
    "weighted rows:weighted",
    "lowering exp_of_log of lowering",
    "first exp_of_log",
]
"""What ``published.py`` prints: for each model who converted it, and the order of the passes."""


def run(name: str, *arguments: object, tensorrt: str = "reference@11.4.0") -> list[str]:
    """Returns the lines that a program prints."""
    path = os.pathsep.join(map(str, (ROOT, PROGRAMS)))
    done = run_python(
        PROGRAMS / f"{name}.py",
        *map(str, arguments),
        env={**os.environ, "PYTHONPATH": path, "TORCHTRT_TENSORRT": tensorrt},
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("tensorrt", ["reference@8.6.0", "reference@11.4.0"])
def test_what_people_published_loads_without_torch_tensorrt(tensorrt):
    """Converters, decompositions and passes convert; plugins that TensorRT compiles are refused by name."""
    made, generated, *lines = run("published", tensorrt=tensorrt)

    assert made.startswith("plugin_ops cannot be adopted")
    assert generated.startswith(
        "plugin_converters imports torch_tensorrt.dynamo.conversion.plugins"
    )
    for refusal in (made, generated):
        assert "write a converter that adds the plugin's layer" in refusal
    assert ["adopted plugin_registry", *CONVERTED] == lines


@needs_the_wheel
def test_what_people_published_loads_with_torch_tensorrt():
    """The same modules, unchanged, give the same, with Torch-TensorRT's own helpers."""
    made, generated, *lines = run("published", WHEEL)

    assert "Quick Deploy Plugins" in made
    assert "Quick Deploy Plugins" in generated
    assert ["adopted plugin_registry", *CONVERTED] == lines


@needs_the_wheel
def test_its_converters_convert_models():
    """With sizes that vary, an output allocator and numbers, where its TensorRT is the one in use."""
    who, resnet, encoder, decoder, positions, rolled, total, refusal = run("adopting", WHEEL)

    assert who.startswith(f"torch_tensorrt_registry torch-tensorrt {VERSION} ")
    assert int(who.split()[-1]) > 200
    assert min(int(line.split()[1]) for line in (resnet, encoder, decoder)) > 5
    assert "Places aten.relu.default aten.nonzero.default" == positions
    assert "Rolled aten.roll.default" == rolled
    assert "Total aten.sum.default aten.mul.Tensor aten.reshape.default" == total
    assert "builds for the module tensorrt only, not for reference@10.16.1" in refusal
