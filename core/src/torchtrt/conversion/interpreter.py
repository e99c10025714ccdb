"""Walks a block's graph and calls one converter for each node."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch.fx import GraphModule, Node

from torchtrt.capability import Capability
from torchtrt.contract import CallingConvention
from torchtrt.conversion.context import ConversionContext
from torchtrt.conversion.inputs import InputProfile
from torchtrt.conversion.network import CheckedNetwork
from torchtrt.conversion.recording import WeightRecorder
from torchtrt.conversion.results import (
    check_result,
    lacks_known_sizes,
    with_known_sizes,
    without_arrays,
)
from torchtrt.conversion.values import is_network_tensor
from torchtrt.errors import ConversionError
from torchtrt.graphs.nodes import engine_names, model_line, resolution_of
from torchtrt.graphs.symbols import no_new_assumptions, sizes_from_data
from torchtrt.packs.problem import describe, raised_at
from torchtrt.registry import Candidate
from torchtrt.settings import CompilationSettings
from torchtrt.targets import qualified_name
from torchtrt.tensorrt.dtypes import dtype_name, engine_dtype, to_trt_dtype
from torchtrt.tensorrt.probes import supports
from torchtrt.tensorrt.shims import mark_output
from torchtrt.torch_internals import pytree


class TRTInterpreter:
    """Turns one block into one TensorRT network.

    Args:
        block: The block. Its placeholders are tensors, its calls carry their resolutions.
        network: An empty network.
        inputs: The profile of each placeholder, in order.
        settings: The compilation's settings.
        on_node: Called after each converted node, for progress.
        recorder: What records how weights are used, if they may change later.

    Attributes:
        network: The network, checked; ``network.raw`` is TensorRT's.
        context: The conversion context; it owns the memory of the weights, and records whether an output's size
            depends on the data.
        output_dtypes: The PyTorch dtype of each output outside the engine, by the output's name, in the block's order.
        converted_by: For each node, the pack and version that converted it.
    """

    def __init__(
        self,
        block: GraphModule,
        network: Any,
        inputs: Sequence[InputProfile],
        settings: CompilationSettings,
        on_node: Callable[[], None] = lambda: None,
        recorder: WeightRecorder | None = None,
    ) -> None:
        self.block = block
        self.inputs = tuple(inputs)
        self.settings = settings
        self.on_node = on_node
        self.network = CheckedNetwork(network)
        self.context = ConversionContext(
            self.network,
            settings,
            convert_graph=self.convert_graph,
            recorder=recorder or WeightRecorder(),
        )
        self.env: dict[Node, Any] = {}
        self.input_symbols: set[Any] = set()
        self.output_dtypes: dict[str, torch.dtype] = {}
        self.converted_by: dict[str, str] = {}

    def run(self) -> TRTInterpreter:
        """Fills the network; returns itself, with all that building needs.

        Raises:
            ConversionError: A converter failed; the message names its pack, the op, the node and the model's line.
        """
        with no_new_assumptions(self.block.graph), self.context.recorder.recording():
            placeholders = self.block.graph.find_nodes(op="placeholder")
            inputs = [
                self.add_input(profile, node)
                for profile, node in zip(self.inputs, placeholders, strict=True)
            ]
            self.convert_graph(self.block, inputs)
            self.add_outputs(self.block.graph.output_node())
            self.context.name_recorded_weights()
        return self

    def convert_graph(self, module: GraphModule, inputs: Sequence[Any]) -> list[Any]:
        """Returns what the nodes of a graph make of ``inputs``: the block's, or those of a branch or a loop's body.

        Args:
            module: The graph.
            inputs: For each placeholder a network tensor, a number or a ``torch.Tensor``.
        """
        outer = self.context.node
        is_inner = module is not self.block
        if is_inner:
            self.context.depth += 1
        placeholders = module.graph.find_nodes(op="placeholder")
        self.env.update(zip(placeholders, inputs, strict=True))
        for node in module.graph.nodes:
            if node.op == "placeholder":
                continue
            if node.op == "get_attr":
                self.env[node] = attrgetter(str(node.target))(module)
            elif node.op == "call_function":
                self.env[node] = self.convert(node)
                self.on_node()
            else:
                results = torch.fx.map_arg(node.args[0], self.env.__getitem__)
        self.context.node = outer
        if is_inner:
            self.context.depth -= 1
        return list(results) if isinstance(results, (list, tuple)) else [results]

    def add_input(self, profile: InputProfile, node: Node) -> Any:
        """Returns a new input of the network."""
        dtype = to_trt_dtype(profile.dtype, self.settings.truncate_double)
        tensor = self.network.add_input(profile.name, dtype, profile.shape)
        value = node.meta.get("val")
        self.context.set_known_value(tensor, value)
        self.input_symbols |= sizes_from_data(value)
        return tensor

    def convert(self, node: Node) -> Any:
        """Returns what the node's converter makes of it."""
        resolution = resolution_of(node)
        if resolution is None or resolution.chosen is None:
            message = f"The node {node.name} ({node.target}) has no converter, yet is in a block."
            raise ConversionError(message)
        candidate = resolution.chosen
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), self.env.__getitem__)
        self.context.node = node
        name = f"{qualified_name(node.target)}/{node.name}"
        pack = candidate.pack.label
        try:
            description = f"{node.name} = {node.target} [{pack}]"
            with self.network.node(name, description):
                result = without_arrays(self.call(candidate, node, tuple(args), dict(kwargs), name))
            check_result(self.context, node, result)
            if lacks_known_sizes(node, result):
                with self.network.node(name, description):
                    result = with_known_sizes(self.context, node, result)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit too, which would end the program without a word
            message = _conversion_message(node, candidate, error)
            raise ConversionError(message, resolution) from error
        if candidate.support.requires_output_allocator or self.makes_sizes(node):
            self.context.requires_output_allocator = True
        self.converted_by[node.name] = pack
        _remember(self.context, result, node.meta.get("val"))
        return result

    def makes_sizes(self, node: Node) -> bool:
        """Returns whether a node's result has a size that depends on data, and on no size of the inputs."""
        return not sizes_from_data(node.meta.get("val")) <= self.input_symbols

    def call(
        self,
        candidate: Candidate,
        node: Node,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str,
    ) -> Any:
        """Returns what a converter makes of a node's arguments, called by its convention."""
        converter = candidate.converter
        if candidate.arguments is None:
            is_legacy = candidate.calling_convention is CallingConvention.LEGACY
            first = self.network if is_legacy else self.context
            return converter(first, node.target, args, kwargs, name)
        args, kwargs = candidate.arguments.bind(args, kwargs, self.context.tensor)
        return converter(self.context, *args, **kwargs)

    def add_outputs(self, node: Node) -> None:
        """Marks the block's outputs."""
        taken = {profile.name for profile in self.inputs}
        sources: Any = node.args[0]
        names = engine_names(node)
        for index, source in enumerate(sources):
            name = names[index] if names else f"output_{index}"
            while name in taken:
                name += "_"
            dtype = source.meta["val"].dtype
            inside = engine_dtype(dtype)
            with self.network.node(name, ""):
                tensor = self._output(self.env[source], inside)
                if tensor.name in taken or tensor.is_network_input:
                    # One tensor cannot be two outputs, nor an input and an output.
                    tensor = self.network.add_identity(tensor).get_output(0)
            mark_output(self.network, tensor, name, inside)
            taken.add(name)
            self.output_dtypes[name] = dtype

    def _output(self, value: Any, dtype: torch.dtype) -> Any:
        is_open = (
            is_network_tensor(value)
            and not supports(Capability.STRONG_TYPING)
            and dtype.is_floating_point
        )
        if is_open and self.context.dtype_of(value).is_floating_point:
            return value  # the output's own type is what counts, and a cast would be a kernel
        return self.context.tensor(value, dtype)


def _remember(context: ConversionContext, result: Any, value: Any) -> None:
    if is_network_tensor(result):
        context.set_known_value(result, value)
    elif isinstance(result, (list, tuple)) and isinstance(value, (list, tuple)):
        for tensor, tensor_value in zip(result, value, strict=False):
            _remember(context, tensor, tensor_value)


def _conversion_message(node: Node, candidate: Candidate, error: BaseException) -> str:
    """Returns the error for a node that a converter could not convert: the converter, the inputs, the model's line."""
    lines = [
        f"{candidate.pack.label} could not convert {node.target} (node {node.name}): "
        + textwrap.shorten(describe(error), 500),
        f"  converter  {candidate.qualified_function} from {candidate.pack.origin}",
    ]
    with contextlib.suppress(Exception):
        lines.append(f"  inputs     {_describe_inputs(node)}")
    if line := model_line(node):
        lines.append(f"  model      {line}")
    if location := raised_at(error, candidate.qualified_function):
        lines.append(f"  raised at  {location}")
    last = (
        "report this to the pack's authors" if candidate.pack.distribution else "mend the converter"
    )
    lines.append(
        f'Keep the op in PyTorch with torch_executed_ops={{"{qualified_name(node.target)}"}}, or all that fail with '
        f"torch_executed_on_failure=True; prefer another pack with converter_preferences, or {last}."
    )
    return "\n".join(lines)


def _describe_inputs(node: Node) -> str:
    values = [source.meta.get("val") for source in node.all_input_nodes]
    leaves = [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]
    return ", ".join(f"{dtype_name(leaf.dtype)}{list(leaf.shape)}" for leaf in leaves)
