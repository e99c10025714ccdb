"""What works with few of the distributions installed."""

import pytest
import torch
from torch import nn

import torchtrt
from tests.support.environment import Environment


@pytest.fixture(scope="module")
def core_alone(tmp_path_factory):
    """The core, one pack and the reference."""
    distributions = [
        "torchtrt-core",
        "torchtrt-blocks",
        "torchtrt-converters-aten-core",
        "torchtrt-reference",
    ]
    return Environment(tmp_path_factory.mktemp("core"), distributions)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """What a server installs: the core and the runtime, and here the reference in the place of TensorRT."""
    distributions = ["torchtrt-core", "torchtrt-kernels", "torchtrt-runtime", "torchtrt-reference"]
    return Environment(tmp_path_factory.mktemp("server"), distributions)


BUILD_BY_HAND = """
import numpy as np, torch
from torch.fx import Graph, GraphModule
import torchtrt
from torchtrt import DYNAMO_CONVERTERS, CompilationSettings, trt
from torchtrt.conversion.interpreter import TRTInterpreter
from torchtrt.conversion.inputs import InputProfile, SizeRange
from torchtrt.graphs.nodes import remember_resolution
from torchtrt.tensorrt.logging import logger
from torchtrt.tensorrt.shims import create_network

assert len(DYNAMO_CONVERTERS.unique_targets()) > 300
graph = Graph()
x = graph.placeholder("x")
x.meta["val"] = torch.empty(2, 3, device="meta")
y = graph.call_function(torch.ops.aten.relu.default, (x,))
z = graph.call_function(torch.ops.aten.softmax.int, (y, -1))
graph.output((z,))
y.meta["val"] = z.meta["val"] = x.meta["val"]
settings = CompilationSettings()
for node in (y, z):
    resolution = DYNAMO_CONVERTERS.resolve(node, settings)
    assert resolution, str(resolution)
    remember_resolution(node, resolution)
builder = trt.Builder(logger())
inputs = [InputProfile("x", torch.float32, (2, 3), ((SizeRange(2, 2, 2), SizeRange(3, 3, 3)),))]
block = GraphModule(torch.nn.Module(), graph)
interpreted = TRTInterpreter(block, create_network(builder), inputs, settings).run()
plan = builder.build_serialized_network(interpreted.network.raw, builder.create_builder_config())
runtime = trt.Runtime(logger())
engine = runtime.deserialize_cuda_engine(plan)
context = engine.create_execution_context()
given = torch.rand(2, 3) - 0.5
result = torch.empty(2, 3)
context.set_tensor_address("x", given.data_ptr())
context.set_tensor_address("output_0", result.data_ptr())
assert context.execute_async_v3(0)
torch.testing.assert_close(result, given.relu().softmax(-1))
plan = torch.zeros(1, dtype=torch.uint8)
for missing in (
    lambda: torchtrt.compile,
    lambda: torchtrt.Input,
    lambda: torchtrt.load,
    lambda: torch.ops.torchtrt.execute_engine([given], plan, ""),
):
    try:
        missing()
    except torchtrt.errors.MissingDistributionError as error:
        print(error)
print(sorted(m for m in sys.modules if m.startswith(("torchtrt_runtime", "torchtrt_compiler"))))
"""


def test_the_core_builds_an_engine_from_a_graph_with_a_pack_and_a_tensorrt_alone(core_alone):
    """It lists converters, looks nodes up, interprets the graph, and names what to install for the rest."""
    *missing, imported_pieces = core_alone.run(BUILD_BY_HAND).splitlines()

    assert [
        "torchtrt.compile is in the distribution torchtrt-compiler, which is not installed. "
        "Run `pip install torchtrt-compiler`.",
        "torchtrt.Input is in the distribution torchtrt-compiler, which is not installed. "
        "Run `pip install torchtrt-compiler`.",
        "torchtrt.load is in the distribution torchtrt-runtime, which is not installed. "
        "Run `pip install torchtrt-runtime`.",
        "The operator torchtrt::execute_engine is in the distribution torchtrt-runtime, which is not installed. "
        "Run `pip install torchtrt-runtime`.",
    ] == missing
    assert "[]" == imported_pieces


SERVE = """
import torch, torchtrt
model = torchtrt.load(sys.argv[1])
x = torch.load(sys.argv[2])
with torch.no_grad():
    torch.testing.assert_close(model(x["input"]), x["output"])
    torch.testing.assert_close(torch.export.load(sys.argv[1]).module()(x["input"]), x["output"])
print([module for module in sys.modules if module.startswith(("torchtrt_compiler", "torchtrt_conv"))])
try:
    torchtrt.compile
except torchtrt.errors.MissingDistributionError as error:
    print(error)
"""


def test_a_server_loads_and_runs_a_saved_model_with_the_core_and_the_runtime(server, tmp_path):
    """It needs no pack and no compiler, and its error for compiling says so."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    x = torch.rand(3, 4)
    torchtrt.save(torchtrt.compile(model, [x], min_block_size=1), tmp_path / "model.pt2")
    torch.save({"input": x, "output": model(x).detach()}, tmp_path / "values.pt")

    modules, message = server.run(
        SERVE, tmp_path / "model.pt2", tmp_path / "values.pt"
    ).splitlines()

    assert "[]" == modules
    assert "pip install torchtrt-compiler" in message


class Spectrum(nn.Module):
    """A model from complex to complex numbers."""

    def forward(self, x):
        return torch.fft.fft(x) * 2j


def test_a_server_runs_a_model_of_complex_numbers(server, tmp_path):
    """The views of its inputs and outputs are PyTorch's own ops."""
    model, x = Spectrum().eval(), torch.randn(3, 8, dtype=torch.complex64)
    torchtrt.save(torchtrt.compile(model, [x], min_block_size=1), tmp_path / "model.pt2")
    torch.save({"input": x, "output": model(x)}, tmp_path / "values.pt")

    modules, _ = server.run(SERVE, tmp_path / "model.pt2", tmp_path / "values.pt").splitlines()

    assert "[]" == modules
