"""The engines of an exported program, and why a delegate of ExecuTorch cannot run one."""

from __future__ import annotations

import json
import operator
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from torchtrt.errors import UnreadableFileError, UnsupportedProgramError
from torchtrt_executorch.blobs import engine_blob

_OP = "torchtrt::execute_engine"
"""The op by which a saved model calls an engine: its inputs, the plan, and a description as JSON."""


def engine_nodes(graph: Graph) -> list[Node]:
    """Returns the nodes of a graph that call engines; ExecuTorch wraps the op."""
    return [
        node
        for node in graph.nodes
        if node.op == "call_function"
        and getattr(getattr(node.target, "_schema", None), "name", "") == _OP
    ]


def delegate_of(program: ExportedProgram) -> bytes:
    """Returns the bytes of the delegate for a part of a program that calls one engine.

    Raises:
        UnreadableFileError: The plan is damaged.
        UnsupportedProgramError: A delegate cannot run the engine, or its arguments are not those of the engine.
    """
    (node,) = engine_nodes(program.graph)
    arguments: Any = node.args
    inputs, plan_node, text = arguments
    description = json.loads(text)
    if reason := _objection(description):
        raise UnsupportedProgramError(
            f"ExecuTorch cannot run the engine of {description['name']}: {reason}."
        )
    outputs = [output["name"] for output in description["outputs"]]
    _check_results(program.graph, node, len(outputs), description["name"])
    return engine_blob(
        _plan(program, plan_node, description),
        _argument_names(program.graph, inputs, plan_node, description),
        outputs,
        on_later_gpus="hardware" in description.get("compatible", ()),
    )


def _objection(description: Mapping[str, Any]) -> str:
    """Returns why a delegate cannot run an engine, and what to do; ``""`` if it can."""
    for plugin in description.get("plugins", ()):
        if not plugin.get("kernel"):
            return (
                f"it runs the kernel of {plugin['name']}, which needs Python. Let the pack {plugin['pack']} compile "
                "the kernel ahead of time: pack.plugin(..., aot=...)"
            )
    inputs, outputs = description["inputs"], description["outputs"]
    dtypes = {tensor["dtype"] for tensor in (*inputs, *outputs)}
    is_narrowed = description["tensorrt"].startswith(("TensorRT 8", "reference@8"))
    objections = (
        (description.get("stripped"), "it has no weights. Compile without strip_engine_weights"),
        (description.get("collectives"), "it exchanges tensors with other processes"),
        (description["requires_output_allocator"], "the size of an output depends on the data"),
        (
            any(len(input_.get("ranges") or [0]) > 1 for input_ in inputs),
            "its sizes have several ranges, and a delegate uses the first one. Compile for one range",
        ),
        (
            "float64" in dtypes or (is_narrowed and "int64" in dtypes),
            "it computes in 32 bits what the model gives in 64 bits, and a delegate converts nothing",
        ),
    )
    return next((reason for holds, reason in objections if holds), "")


def _plan(program: ExportedProgram, node: Node, description: Mapping[str, Any]) -> bytes:
    """Returns the plan that is behind a node.

    Raises:
        UnreadableFileError: It is damaged.
        UnsupportedProgramError: It is no constant of this part of the program.
    """
    signature = program.graph_signature
    name = signature.inputs_to_lifted_tensor_constants.get(
        node.name
    ) or signature.inputs_to_buffers.get(node.name, "")
    tensor = program.constants.get(name, program.state_dict.get(name))
    if not isinstance(tensor, torch.Tensor):
        message = (
            f"The plan of {description['name']} is no constant. Lower the program as it was loaded."
        )
        raise UnsupportedProgramError(message)
    plan = tensor.cpu().contiguous().numpy().tobytes()
    if (len(plan), zlib.crc32(plan)) != (description["plan_bytes"], description["plan_crc32"]):
        message = f"The plan of {description['name']} is damaged. Save the model again."
        raise UnreadableFileError(message)
    return plan


def _argument_names(
    graph: Graph, inputs: Sequence[Node], plan: Node, description: Mapping[str, Any]
) -> list[str]:
    """Returns the names of the engine's inputs in the order of the delegate's arguments.

    Raises:
        UnsupportedProgramError: The arguments are other tensors than the inputs.
    """
    names = {
        node: input_["name"] for node, input_ in zip(inputs, description["inputs"], strict=True)
    }
    arguments = [node for node in graph.find_nodes(op="placeholder") if node is not plan]
    if len(names) != len(inputs) or set(arguments) != names.keys():
        raise UnsupportedProgramError(
            f"The delegate of {description['name']} has other arguments than its engine has inputs. "
            "Lower the program as torch.export.load returned it."
        )
    return [names[node] for node in arguments]


def _check_results(graph: Graph, node: Node, count: int, name: str) -> None:
    """Checks that the delegate returns the engine's outputs in their order.

    Raises:
        UnsupportedProgramError: It does not.
    """
    (results,) = graph.output_node().args
    returned = [
        result.args[1]
        for result in results  # type: ignore[union-attr]
        if isinstance(result, Node) and result.target is operator.getitem and result.args[0] is node
    ]
    if returned != list(range(count)) or len(results) != count:  # type: ignore[arg-type]
        raise UnsupportedProgramError(
            f"The delegate of {name} does not return the {count} outputs of its engine in their order: the program "
            "does not use some. Compile the model without these results."
        )
