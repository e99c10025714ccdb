"""Compiles models with the converters of the real Torch-TensorRT, whose folder is given."""

# ruff: noqa: E402, I001 - Torch-TensorRT is found from the stand-in on
from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path

import torch

from tests.benchmarks.peer import stand_in

stand_in(Path(sys.argv[1]))

import torchtrt
from torch_tensorrt.dynamo import CompilationSettings as Settings
from torch_tensorrt.dynamo.conversion import ConversionContext as Context
from torchtrt.conversion import ConversionContext
from models import programs
from torchtrt_converters_torch_tensorrt import adopt_torch_tensorrt
from torchtrt_converters_torch_tensorrt.context import AdoptedContext

pack = adopt_torch_tensorrt()
assert pack is adopt_torch_tensorrt()
(info,) = (entry.info for entry in torchtrt.packs.loaded_packs() if entry.info.name == pack.name)
print(info.name, info.distribution, info.version, len(pack.converters))
seen = AdoptedContext.over(ConversionContext(net=None))
for theirs, answers in ((Settings, seen.compilation_settings), (Context, seen)):
    missing = [field.name for field in fields(theirs) if not hasattr(answers, field.name)]
    assert not missing, missing
preferences = {converter.target: pack.name for converter in pack.converters}


def compiled_by_theirs(program, inputs, model):
    """Returns what they converted, once the compiled model gave the model's values."""
    compiled = torchtrt.compile(
        program, converter_preferences=preferences, require_full_compilation=True
    )
    for input_ in inputs:
        torch.testing.assert_close(compiled(input_), model(input_), rtol=1e-4, atol=1e-4)
    return [row.op for row in compiled.report.converted if row.pack.startswith(pack.name)]


class Places(torch.nn.Module):
    """An op whose result's size depends on the data."""

    def forward(self, x):
        """Returns where the elements are that are not zero."""
        return torch.nonzero(x.relu())


class Total(torch.nn.Module):
    """A result of no dimensions, which Torch-TensorRT gives one, over a number that is known at run time."""

    def forward(self, x):
        """Returns half of the sum of all elements, in as many rows as there are."""
        return x.sum() * 0.5, x.view(x.shape[0] * 2, -1)


class Rolled(torch.nn.Module):
    """Two constants that Torch-TensorRT gives one name, whose memory must live as long as the network."""

    def forward(self, x):
        """Returns the elements moved along both dimensions."""
        return x.roll((2, 3), (0, 1))


with torch.no_grad():
    for name, model, program, inputs in programs():
        theirs = compiled_by_theirs(program, inputs, model)
        print(name, len(theirs))
    inputs = [torch.randn(size, 6) for size in (2, 4, 8)]
    rows = torch.export.Dim("rows", min=2, max=8)
    for model in (Places(), Rolled(), Total()):
        program = torch.export.export(model, (inputs[1],), dynamic_shapes=({0: rows},))
        print(type(model).__name__, *compiled_by_theirs(program, inputs, model))
    with torchtrt.use_tensorrt("reference@10.16.1"):
        compiled = torchtrt.compile(program, converter_preferences=preferences, min_block_size=1)
        assert all(not row.pack.startswith(pack.name) for row in compiled.report.converted)
        (node,) = (
            node for node in program.graph.nodes if node.target is torch.ops.aten.sum.default
        )
        settings = torchtrt.CompilationSettings(converter_preferences=preferences)
        print(torchtrt.DYNAMO_CONVERTERS.resolve(node, settings).explain().splitlines()[1].strip())
