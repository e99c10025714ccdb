"""Every op that Torch-TensorRT converts in TorchScript graphs, against PyTorch, on every TensorRT."""

from pathlib import Path

import pytest
import torch

import torchtrt
import torchtrt_torchscript as torchscript
from torchtrt_reference import VERSIONS

from .ir import function_of, graph_of, tensors_of
from .schemas import CALLS, MISNAMED, OUTPUTS

ABSENT = {
    "trt::const": "its compiler's own marker for a constant",
    "trt::attn_bias_from_attn_mask": "its compiler's own step in rewriting attention",
}
"""Schemas that no model has: Torch-TensorRT writes them into graphs itself."""


def names_in(file):
    """Returns the names in a data file of this folder."""
    lines = (Path(__file__).parent / file).read_text().splitlines()
    return [line for line in lines if not line.startswith("#")]


@pytest.mark.filterwarnings("ignore:at.*frobenius_norm is deprecated", "ignore:torch.meshgrid")
@pytest.mark.parametrize("name", CALLS)
def test_a_schema_computes_what_pytorch_computes(name):
    """The graph is parsed, run by PyTorch and compiled whole for three versions."""
    args = CALLS[name]
    graph = graph_of(name, args, OUTPUTS.get(name, "Tensor"))
    (node,) = graph.findAllNodes(name.split(".")[0])
    schema = torch._C.parse_schema(node.schema())
    assert MISNAMED.get(name, name) == ".".join(filter(None, (schema.name, schema.overload_name)))
    function, inputs = function_of(graph), tensors_of(args)
    expected = function(*(tensor.clone() for tensor in inputs))

    exported = torchscript.export(function, inputs)
    for version in VERSIONS:
        with torchtrt.use_tensorrt(f"reference@{version}"):
            compiled = torchtrt.compile(exported, require_full_compilation=True)
        torch.testing.assert_close(
            as_tuple(compiled(*(tensor.clone() for tensor in inputs))),
            as_tuple(expected),
            rtol=1e-4,
            atol=1e-5,
            equal_nan=True,
        )


def test_every_schema_of_torch_tensorrt_has_a_call_here():
    """Nothing is left out but what its compiler writes into graphs itself."""
    assert sorted({*names_in("torch_tensorrt_schemas.txt")} - set(ABSENT)) == sorted(CALLS)


def as_tuple(value):
    """Returns several results as a tuple, whatever they came in."""
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)
