"""With Torch-TensorRT installed, its registry is adopted: tried on a package of its shape."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.processes import run_python

PACKAGE = {
    "__init__": "__version__ = '2.14.0'\n",
    "dynamo/__init__": "",
    "dynamo/conversion/__init__": "from ._ConverterRegistry import *\n",
    "dynamo/conversion/_ConverterRegistry": """
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Callable

DYNAMO_ATEN_CONVERTERS = {}

class ConverterPriority(Enum):
    STANDARD = auto()
    HIGH = auto()

@dataclass(frozen=True)
class ConverterSupport:
    converter_implementation: Any
    capability_validator: Callable = field(default=lambda node, compilation_settings: True)
    supports_dynamic_shapes: bool = False
    requires_output_allocator: bool = False
    requires_native_multidevice: bool = False

def dynamo_tensorrt_converter(key, *, enabled=True, capability_validator=None,
                              priority=ConverterPriority.STANDARD, supports_dynamic_shapes=False,
                              requires_output_allocator=False, requires_native_multidevice=False):
    def register(converter):
        more = {} if capability_validator is None else {"capability_validator": capability_validator}
        support = ConverterSupport(converter, supports_dynamic_shapes=supports_dynamic_shapes,
                                   requires_output_allocator=requires_output_allocator,
                                   requires_native_multidevice=requires_native_multidevice, **more)
        entries = DYNAMO_ATEN_CONVERTERS.setdefault(key, [])
        entries.insert(0 if priority is ConverterPriority.HIGH else len(entries), support)
        return converter
    return register

import torch

@dynamo_tensorrt_converter(torch.ops.aten.relu.default, supports_dynamic_shapes=True)
def their_relu(ctx, target, args, kwargs, name):
    import tensorrt as trt
    return ctx.net.add_activation(args[0], trt.ActivationType.RELU).get_output(0)

@dynamo_tensorrt_converter(torch.ops.aten.fft_fft.default, requires_native_multidevice=True)
def several_gpus(ctx, target, args, kwargs, name): ...
""",
    "dynamo/lowering/__init__": "",
    "dynamo/lowering/_decomposition_groups": "TORCH_TRT_DECOMPOSITIONS = {}\n",
    "dynamo/lowering/passes/__init__": "",
    "dynamo/lowering/passes/_aten_lowering_pass": """
class Manager:
    passes = []
ATEN_POST_LOWERING_PASSES = Manager()
""",
}

THEIRS = """
import torch
from torch_tensorrt.dynamo.conversion import dynamo_tensorrt_converter
from torch_tensorrt.dynamo.lowering._decomposition_groups import TORCH_TRT_DECOMPOSITIONS
from torch_tensorrt.dynamo.lowering.passes._aten_lowering_pass import ATEN_POST_LOWERING_PASSES

@dynamo_tensorrt_converter(torch.ops.aten.gelu.default, capability_validator=lambda node, settings: True)
def their_gelu(ctx, target, args, kwargs, name): ...

def their_pass(gm, settings):
    return gm

def their_sinc(x):
    return x

TORCH_TRT_DECOMPOSITIONS[torch.ops.aten.sinc.default] = their_sinc
ATEN_POST_LOWERING_PASSES.passes.append(their_pass)
"""

ADOPT = """
import torch, torchtrt, torch_tensorrt, warnings
from torchtrt_converters_torch_tensorrt import adopt, adopt_torch_tensorrt
warnings.filterwarnings("ignore", category=torchtrt.errors.SettingsWarning)

registry = adopt_torch_tensorrt()
assert registry is adopt_torch_tensorrt()
pack = adopt("theirs")
assert torch_tensorrt.__version__ == "2.14.0" and "torch_tensorrt" in __import__("sys").modules
packs = {loaded.info.name: loaded.info for loaded in torchtrt.packs.loaded_packs()}
print(packs["torch_tensorrt_registry"].origin, "|", *[str(each.target) for each in registry.converters])
print(*[str(each.target) for each in pack.converters], *[str(each.target) for each in pack.decompositions],
      *[each.name for each in pack.lowering_passes])
x = torch.randn(3)
compiled = torchtrt.compile(torch.nn.ReLU().eval(), (x,), min_block_size=1,
                            converter_preferences={"aten.relu": "torch_tensorrt_registry"})
assert torch.equal(compiled(x), x.relu())
exported = torch.export.export(torch.nn.ReLU(), (x,))
(node,) = [node for node in exported.graph.nodes if node.op == "call_function"]
settings = torchtrt.CompilationSettings(converter_preferences={"aten.relu": "torch_tensorrt_registry"})
print(torchtrt.DYNAMO_CONVERTERS.resolve(node, settings).explain())
"""


@pytest.fixture
def installed(tmp_path):
    """A folder in which something of Torch-TensorRT's shape is installed, and a module for it."""
    for name, text in PACKAGE.items():
        path = tmp_path / "torch_tensorrt" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "theirs.py").write_text(THEIRS)
    return tmp_path


def run(folder: Path, program: str) -> list[str]:
    """Returns the lines that a program prints."""
    done = run_python(
        *("-W", "error", "-c", program),
        env={**os.environ, "PYTHONPATH": str(folder), "TORCHTRT_TENSORRT": "reference"},
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout.splitlines()


def test_its_registry_is_a_pack_of_its_own_version(installed):
    """Which rejects nodes where the real TensorRT is not in use, so that the next candidate is tried."""
    first, second, headline, *lines = run(installed, ADOPT)

    assert "torch-tensorrt 2.14.0 | aten.relu.default" == first
    assert "aten.gelu.default aten.sinc.default their_pass" == second
    assert "is converted by aten_core" in headline
    assert "builds for the module tensorrt only" in "\n".join(lines)


def test_without_it_there_is_nothing_to_adopt():
    """And the error says so."""
    program = (
        "from torchtrt.errors import PackError\n"
        "from torchtrt_converters_torch_tensorrt import adopt_torch_tensorrt\n"
        "try:\n    adopt_torch_tensorrt()\nexcept PackError as error:\n    print(error)\n"
    )

    (line,) = run(Path(), program)

    assert "Torch-TensorRT cannot be imported here: ModuleNotFoundError" in line
