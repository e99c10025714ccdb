"""Has the real Torch-TensorRT, whose folder is given, convert models with torchtrt's converters."""

# ruff: noqa: E402, I001 - Torch-TensorRT is found from the stand-in on
from __future__ import annotations

import sys
from pathlib import Path

import torch

from tests.benchmarks.peer import Peer, stand_in

stand_in(Path(sys.argv[1]))

from models import programs
from torch_tensorrt.dynamo.conversion._ConverterRegistry import DYNAMO_ATEN_CONVERTERS as TABLE
from torchtrt.errors import PackError
from torchtrt.packs import ConverterPriority
from torchtrt.tensorrt import trt
from torchtrt.tensorrt.logging import logger
from torchtrt_converters_torch_tensorrt import adopt_torch_tensorrt, offer


def is_ours(converter):
    """Returns whether a converter is one of torchtrt's."""
    return converter.__module__.startswith("torchtrt_converters_aten_core.")


own = set(TABLE)
missing = offer(["aten_core"])
assert not any(is_ours(tensor.converter_implementation) for op in own for tensor in TABLE[op])
assert not offer(["aten_core"]), "what is there is not offered again"
print(
    "offered",
    missing > 100,
    torch.ops.aten.cummax.default in TABLE,
    torch.ops.higher_order.cond in TABLE,
)
offer(["aten_core"], priority=ConverterPriority.HIGH, only_missing=False)
try:
    offer(["nobody"])
except PackError as error:
    print(error)
peer = Peer()


def results(interpreter, inputs):
    """Yields what the network of an interpreter computes for each input."""
    network, builder = interpreter.ctx.net, interpreter.builder
    config = builder.create_builder_config()
    for profile in interpreter.optimization_profiles:
        config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    engine = trt.Runtime(logger()).deserialize_cuda_engine(plan)
    names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
    for input_ in inputs:
        context = engine.create_execution_context()
        context.set_input_shape(names[0], tuple(input_.shape))
        context.set_tensor_address(names[0], input_.data_ptr())
        made = [torch.empty(tuple(context.get_tensor_shape(name))) for name in names[1:]]
        for name, result in zip(names[1:], made, strict=True):
            context.set_tensor_address(name, result.data_ptr())
        assert context.execute_async_v3(0)
        yield made


class Sizes(torch.nn.Module):
    """Arithmetic on numbers that are known at run time, several results, and an op that Torch-TensorRT lacks."""

    def forward(self, x):
        """Returns pairs of rows, and the greatest of each."""
        pairs = x.view(x.shape[0] // 2, 2 * x.shape[1])
        values, positions = pairs.sort(1)
        return torch.cummax(values, 1)[0], positions + x.shape[0] * 1.0


def cases():
    """Yields the models, and the one above."""
    yield from programs()
    inputs = [torch.randn(size, 6) for size in (2, 4, 8)]
    half = torch.export.Dim("half", min=1, max=4)
    shapes = ({0: 2 * half},)
    yield (
        "sizes",
        Sizes(),
        torch.export.export(Sizes(), (inputs[1],), dynamic_shapes=shapes),
        inputs,
    )


with torch.no_grad():
    for name, model, program, inputs in cases():
        graph = peer.lower(program)
        low, usual, high = (tuple(input_.shape) for input_ in inputs)
        declared = peer.torch_tensorrt.Input(
            min_shape=low, opt_shape=usual, max_shape=high, dtype=inputs[0].dtype
        )
        dtypes = peer.conversion._conversion.infer_module_output_dtypes(graph)
        interpreter = peer.conversion.TRTInterpreter(
            graph, [declared], output_dtypes=dtypes, compilation_settings=peer.settings
        )
        interpreter._construct_trt_network_def()
        for tensor, actual in zip(inputs, results(interpreter, inputs), strict=True):
            expected = model(tensor)
            expected = expected if isinstance(expected, tuple) else (expected,)
            torch.testing.assert_close(tuple(actual), expected, rtol=1e-4, atol=1e-4)
        calls = [node for node in graph.graph.nodes if node.op == "call_function"]
        ours = [node for node in calls if is_ours(peer.registry.get(node)[0])]
        print(name, len(ours) == len(calls))

pack = adopt_torch_tensorrt()
assert torch.ops.aten.cummax.default not in {converter.target for converter in pack.converters}
