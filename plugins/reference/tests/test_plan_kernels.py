"""Plugins that are compiled ahead of time: what a build asks of them, what a plan keeps, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import torchtrt_reference as reference

VERSIONS = ("10.16.1", "11.4.0")
PTX = b".visible .entry double(.param .u64 x, .param .u32 n, .param .u64 y) { ret; }"
SIZES = {"grid_x": 1, "grid_y": 1, "grid_z": 1, "block_x": 64, "block_y": 1, "block_z": 1}


def doubling(trt: Any, **changes: Any) -> Any:
    """Returns the class of a plugin with a compiled kernel.

    Args:
        trt: The version.
        **changes: Methods and attributes that differ. ``sizes`` are numbers of the launch that differ; None is unset.
    """

    class Double(trt.IPluginV3, trt.IPluginV3QuickCore, trt.IPluginV3QuickAOTBuild):
        sizes: Any = {}
        rows = 64

        def __init__(self) -> None:
            self.plugin_name, self.plugin_version, self.plugin_namespace = "Double", "1", "tests"
            self.log: list[Any] = []

        def get_capability_interface(self, type: Any) -> Any:
            return self

        def clone(self) -> Any:
            return type(self)()

        def get_num_outputs(self) -> int:
            return 1

        def get_output_data_types(self, input_types: Any, ranks: Any) -> Any:
            self.log.append(("types", [input_type.name for input_type in input_types], ranks))
            return input_types[:1]

        def get_output_shapes(self, inputs: Any, shape_inputs: Any, builder: Any) -> Any:
            return [trt.DimsExprs(inputs[0])]

        def get_supported_format_combinations(self, in_out: Any, num_inputs: int) -> Any:
            self.log.append(("formats", len(in_out), num_inputs))
            return [tensor.desc for tensor in in_out]

        def configure_plugin(self, inputs: Any, outputs: Any) -> None:
            self.log.append("configure")

        def set_tactic(self, tactic: int) -> None:
            self.log.append(("tactic", tactic))

        def get_launch_params(self, *arguments: Any) -> None:
            inputs, _, _, parameters, scalars, builder = arguments
            self.log.append("launch")

            def symbol(expression: Any) -> Any:
                made = trt.ISymExpr()
                made.type, made.dtype = trt.PluginArgType.INT, trt.PluginArgDataType.INT32
                made.expr = expression
                return made

            rows = builder.operation(
                trt.DimensionOperation.PROD, inputs[0][0], builder.constant(self.rows)
            )
            for name, number in {**SIZES, "shared_mem": 0, **self.sizes}.items():
                if number is not None:
                    setattr(parameters, name, symbol(builder.constant(number)))
            blocks = builder.operation(trt.DimensionOperation.CEIL_DIV, rows, builder.constant(64))
            if "grid_x" not in self.sizes:
                parameters.grid_x = symbol(blocks)
            scalars.nbSymExprs = 1
            scalars[0] = symbol(rows)

        def get_kernel(self, inputs: Any, outputs: Any) -> Any:
            self.log.append(("kernel", tuple(inputs[0].dims), tuple(outputs[0].dims)))
            return "double", PTX

    for name, value in changes.items():
        setattr(Double, name, value)
    return Double


@pytest.fixture(params=VERSIONS)
def trt(request: pytest.FixtureRequest) -> Any:
    """A version with plugins."""
    return reference.load(request.param)


def built(n: Any, plugin: Any) -> Any:
    """Returns the plan of a network with a plugin; None if it was refused."""
    layer = n.net.add_plugin_v3([n.input(torch.rand(3, 4))], [], plugin)
    n.net.mark_output(layer.get_output(0))
    return n.builder.build_serialized_network(n.net, n.config)


def test_a_build_asks_for_the_launch_and_then_for_the_kernel(trt: Any, bench: Any) -> None:
    """A creator is not needed, neither here nor by the plan; only a GPU runs it."""
    plugin = doubling(trt)()
    n = bench(trt.__version__)

    layer = n.net.add_plugin_v3([n.input(torch.rand(3, 4), shape=(-1, 4))], [], plugin)

    context = n.context(layer.get_output(0))

    assert plugin.log == [
        ("types", ["FLOAT"], [2]),
        ("formats", 2, 1),
        "configure",
        ("tactic", 0),
        "launch",
        ("kernel", (-1, 4), (-1, 4)),
    ]
    name = context.engine.get_tensor_name(1)
    assert tuple(context.engine.get_tensor_shape(name)) == (-1, 4)
    assert tuple(context.get_tensor_shape(name)) == (3, 4)


def test_a_kernel_does_not_run_on_the_cpu_by_itself(trt: Any, bench: Any) -> None:
    """The error names the kernel; what stands in for it is the plugin's ``host_plugin``."""
    n = bench(trt.__version__)
    layer = n.net.add_plugin_v3([n.input(torch.rand(3, 4))], [], doubling(trt)())

    with pytest.raises(AssertionError):
        n.run(layer.get_output(0))

    assert "the kernel double of the plugin Double runs on GPUs" in n.errors[-1]


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ({"grid_y": None}, "sets grid_y to nothing"),
        ({"shared_mem": None}, "sets shared_mem to nothing"),
        ({"block_x": 2048}, "block_x is 2048, and can be 1 to 1024"),
        ({"block_y": 32}, r"block_x \* block_y \* block_z is 2048"),
        ({"grid_x": 0}, "grid_x is 0, and can be 1 to 2147483647"),
        ({"grid_z": 65536}, "grid_z is 65536"),
        ({"shared_mem": 1 << 20}, "shared_mem is 1048576"),
    ],
)
def test_a_launch_that_cuda_refuses_does_not_build(
    trt: Any, bench: Any, sizes: Any, reason: str
) -> None:
    """TensorRT runs the kernel while it builds."""
    n = bench(trt.__version__)

    assert built(n, doubling(trt, sizes=sizes)()) is None
    assert re.search(reason, n.errors[-1])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"get_kernel": lambda self, *_: ("other", PTX)}, "has no entry other"),
        ({"get_kernel": lambda self, *_: ("doubl", PTX)}, "has no entry doubl"),
        ({"get_kernel": lambda self, *_: 1 / 0}, "get_kernel of the plugin Double raised"),
        (
            {"get_supported_format_combinations": lambda self, *_: []},
            "does not take linear tensors of these types",
        ),
        ({"rows": 2**31}, "takes integers of 32 bits"),
    ],
)
def test_a_plugin_that_answers_wrongly_does_not_build(
    trt: Any, bench: Any, changes: Any, reason: str
) -> None:
    """The reason is logged."""
    n = bench(trt.__version__)
    changes = {**changes, **({"sizes": {"grid_x": 1}} if "rows" in changes else {})}

    assert built(n, doubling(trt, **changes)()) is None
    assert re.search(reason, n.errors[-1])


def test_a_plugin_with_a_wrong_number_of_outputs_is_not_added(trt: Any, bench: Any) -> None:
    """As one without a compiled kernel."""
    n = bench(trt.__version__)
    plugin = doubling(trt, get_num_outputs=lambda self: 2)()

    assert n.net.add_plugin_v3([n.input(torch.rand(2, 3))], [], plugin) is None
    assert "has 2 outputs, 1 types and 1 shapes" in n.errors[-1]
