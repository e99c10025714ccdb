"""A compiled model in the forms that C++ programs run without Python: a package of AOTInductor, and TorchScript.

Both call the engines by the op ``torchtrt::execute_engine``, which the library of ``torchtrt-cpp`` registers there.
"""

from __future__ import annotations

import builtins
import math
import operator
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_aggregate

from torchtrt.errors import InputError, UnsupportedProgramError, kind_of
from torchtrt.torch_internals import HigherOrderOperator, OpOverload, pytree
from torchtrt_runtime.checks.inputs import InputChecks
from torchtrt_runtime.modules.compiled import CompiledModule
from torchtrt_runtime.modules.engine import EngineModule
from torchtrt_runtime.serialization.engine_metadata import buffer_of
from torchtrt_runtime.serialization.exported_program import (
    inputs_of,
    owner_of,
    to_program,
    user_inputs,
)
from torchtrt_runtime.serialization.files import complete_file
from torchtrt_runtime.serialization.scripted_checks import add_size_checks
from torchtrt_runtime.torch_internals import compile_package

_SIZES: Mapping[Any, Callable[..., Any]] = {
    torch.ops.aten.sym_size.int: torch.ops.aten.size,
    torch.ops.aten.sym_numel.default: torch.ops.aten.numel,
    torch.ops.aten.sym_stride.int: torch.ops.aten.stride,
    torch.sym_max: builtins.max,
    torch.sym_min: builtins.min,
    torch.sym_float: builtins.float,
    torch.sym_not: operator.not_,
}
"""Functions on sizes, by TorchScript's names for them."""


def write(compiled: CompiledModule, file: Any, texts: Mapping[str, str], form: str) -> None:
    """Writes a compiled model for a C++ program.

    Args:
        compiled: The model.
        file: The path.
        texts: The user's own texts, by name.
        form: ``"aot_inductor"`` or ``"torchscript"``.

    Raises:
        InputError: The file is no path, or AOTInductor refuses its name.
        UnsupportedProgramError: The model holds something that such a file cannot, or that only Python runs.
        UnwritableFileError: There can be no file at this path.
    """
    if not isinstance(file, (str, os.PathLike)):
        message = f"torchtrt.save() writes {form!r} to a path, and not to {kind_of(file)}."
        raise InputError(message)
    path = Path(file)
    if form == "aot_inductor" and path.suffix != ".pt2":
        message = f"AOTInductor writes files that end in .pt2, and not {path.name}. Name {path.with_suffix('.pt2')}."
        raise InputError(message)
    _check_engines(compiled)
    program = _whole_program(compiled)
    if form == "aot_inductor":
        _check_unconditional(compiled.checks)
    with complete_file(path) as temporary, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch deprecates what its own compilers use
        try:
            if form == "aot_inductor":
                with torch.no_grad():
                    compile_package(program, temporary, texts)
            else:
                script = torch.jit.script(_scriptable(program, compiled.checks))
                torch.jit.save(script, str(temporary), _extra_files=dict(texts))
        except OSError:
            raise
        except Exception as error:
            by = "AOTInductor" if form == "aot_inductor" else "TorchScript"
            reason = next(iter(str(error).strip().splitlines()), "").rstrip(".")
            raise UnsupportedProgramError(
                f"{by} cannot take what PyTorch runs of this model: {type(error).__name__}: {reason}. Let engines run "
                "it, or save the model in another format."
            ) from error


def _check_engines(compiled: CompiledModule) -> None:
    """Checks that the engines need nothing of Python.

    Raises:
        UnsupportedProgramError: One does.
    """
    for engine in compiled.graph_module.modules():
        if not isinstance(engine, EngineModule):
            continue
        for key in engine.plugins:
            if not key.kernel:
                raise UnsupportedProgramError(
                    f"The engine of {engine.name} runs the kernel of {key.name}, which needs Python. Save the model as "
                    f"an exported program, or let the pack {key.pack} compile the kernel ahead of time: "
                    "pack.plugin(..., aot=...)."
                )
        needs = (
            (engine.stripped, "was compiled with strip_engine_weights, and has no weights"),
            (engine.collectives, "exchanges tensors with other processes"),
        )
        for need, reason in needs:
            if need:
                raise UnsupportedProgramError(
                    f"The engine of {engine.name} {reason}, which needs Python. Save the model as an exported program, "
                    "or compile it without."
                )


def _whole_program(compiled: CompiledModule) -> ExportedProgram:
    """Returns a compiled model as an exported program with its weights and plans, and with inputs for an example."""
    saved = to_program(compiled)
    program = saved.program
    program.state_dict.update(saved.tensors)
    for name, plan in saved.plans.items():
        program.constants[name] = torch.from_numpy(buffer_of(plan).copy())
    inputs = []
    for node in user_inputs(program):
        value = node.meta.get("val")
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            message = f"The input {node.name!r} is a number that varies. C++ programs give tensors: make it one."
            raise UnsupportedProgramError(message)
        inputs.append(value)
    program.example_inputs = pytree.tree_unflatten(inputs, program.call_spec.in_spec)
    return program


def _check_unconditional(checks: InputChecks) -> None:
    """Checks that ranges alone decide which calls the program takes: Inductor drops all other checks of sizes.

    Raises:
        UnsupportedProgramError: There is a condition.
    """
    if checks.guards:
        condition = checks.as_code(checks.guards[0])
        raise UnsupportedProgramError(
            f"The model is this program only where {condition}, and a package of AOTInductor checks no such condition. "
            'Save it with format="torchscript", which does, or declare sizes for which the condition always holds.'
        )


def _scriptable(program: ExportedProgram, checks: InputChecks) -> GraphModule:
    """Returns a program's graph in the functions that TorchScript has, from tensors to a tuple.

    It checks the sizes of its inputs, as Python does before a call.

    Raises:
        UnsupportedProgramError: It calls an op on graphs.
    """
    signature = program.graph_signature
    root, graph = torch.nn.Module(), Graph()
    env: dict[Node, Node] = {}
    inputs = inputs_of(program)
    for node, spec in inputs.items():
        if spec.kind is not InputKind.USER_INPUT:
            values = program.constants if spec.target in program.constants else program.state_dict
            root.register_buffer(node.name, values[spec.target].detach())
            env[node] = graph.get_attr(node.name)
        elif isinstance(node.meta.get("val"), torch.Tensor):
            env[node] = graph.placeholder(node.name)
    add_size_checks(graph, [env.get(node) for node in user_inputs(program)], checks)
    for node in program.graph.nodes:
        if node.op == "call_function":
            env[node] = _scriptable_call(graph, node, env)
        elif node.op == "get_attr":
            raise UnsupportedProgramError(f"The op {_op_of(node)} runs a graph of its own")
        elif node.op == "output":
            results = map_aggregate(
                node.args[0], lambda value: _scriptable_value(graph, value, env)
            )
    returned = []
    for spec, result in zip(signature.output_specs, results, strict=True):
        if spec.kind is OutputKind.USER_OUTPUT:
            returned.append(result)
            continue
        graph.call_function(torch.ops.aten.copy_, (env[owner_of(spec, inputs)], result))
    graph.output(tuple(returned))
    return GraphModule(root, graph, class_name="CompiledGraph")


def _op_of(node: Node) -> str:
    """Returns the op that a graph is an argument of."""
    return next((str(user.target) for user in node.users), node.name)


def _scriptable_call(graph: Graph, node: Node, env: Mapping[Node, Node]) -> Node:
    """Returns a copy of a call, of the op that TorchScript chooses the overload of."""
    target: Any = node.target
    if isinstance(target, HigherOrderOperator):
        raise UnsupportedProgramError(f"The op {target} runs a graph of its own")
    if target in _SIZES:
        target = _SIZES[target]
    elif isinstance(target, OpOverload):
        target = target.overloadpacket
    args: Any = map_aggregate(node.args, lambda value: _scriptable_value(graph, value, env))
    kwargs: Any = map_aggregate(node.kwargs, lambda value: _scriptable_value(graph, value, env))
    return graph.call_function(target, args, kwargs)


def _scriptable_value(graph: Graph, value: Any, env: Mapping[Node, Node]) -> Any:
    """Returns an argument as TorchScript's source can have it."""
    if isinstance(value, Node):
        return env[value]
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return graph.call_function(float, (str(value),))
    return value
