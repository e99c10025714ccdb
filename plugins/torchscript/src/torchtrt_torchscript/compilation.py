"""``torchtrt_torchscript.compile``: from a scripted or traced module to engines."""

from __future__ import annotations

import contextlib
import logging
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch.export import ExportedProgram
from torch.fx.traceback import preserve_node_meta

from torchtrt.callers import warn_caller
from torchtrt.errors import ExportError, InputError, kind_of
from torchtrt.registry import DYNAMO_CONVERTERS
from torchtrt.targets import parse_target
from torchtrt_compiler.api import compile as compile_program
from torchtrt_compiler.exporting.export import TRACING
from torchtrt_compiler.exporting.export import export as export_module
from torchtrt_runtime import CompiledModule
from torchtrt_torchscript.graph_runner import STRUCTURE, has_no_evaluator
from torchtrt_torchscript.graphs import NO_SCHEMA, schema_of
from torchtrt_torchscript.module import TorchScriptModule
from torchtrt_torchscript.node_evaluators import EVALUATORS, NODE_EVALUATORS
from torchtrt_torchscript.schema_to_op import known_op
from torchtrt_torchscript.source_location import site_of, source_line
from torchtrt_torchscript.torch_internals import ScriptGraph, ScriptNode, function_of_graph

TorchScript: TypeAlias = Any
"""A scripted or traced module or function, or the file of one: its path, or a file that is open for reading."""


def compile(
    model: TorchScript,
    inputs: Sequence[Any] = (),
    *,
    method: str = "forward",
    kwarg_inputs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    **settings: Any,
) -> CompiledModule:
    """Compiles a TorchScript model: what the installed packs support runs in TensorRT engines, the rest in PyTorch.

    Args:
        model: A scripted or traced module in eval mode, a scripted function, or the file of one.
        inputs: The positional inputs: example tensors, or ``torchtrt.Input`` where sizes vary.
        method: The method to compile.
        kwarg_inputs: The keyword inputs, likewise.
        dynamic_shapes: As ``torch.export.export`` takes it, for example tensors with dynamic sizes.
        **settings: Fields of ``torchtrt.CompilationSettings``.

    Returns:
        A module that is called like the original and carries a ``report``.

    Raises:
        InputError: The model is not TorchScript, or the inputs do not fit it.
        ExportError: The model does something that cannot be compiled; the message has the model's line.
        TorchTRTError: As ``torchtrt.compile``.
    """
    exported = export(
        model, inputs, method=method, kwarg_inputs=kwarg_inputs, dynamic_shapes=dynamic_shapes
    )
    return compile_program(exported, inputs, kwarg_inputs=kwarg_inputs, **settings)


def export(
    model: TorchScript,
    inputs: Sequence[Any] = (),
    *,
    method: str = "forward",
    kwarg_inputs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> ExportedProgram:
    """Returns a TorchScript model as an exported program, whose nodes record where in the model they come from.

    The arguments are those of ``compile``.
    """
    module = open_method(model, method)
    _refuse_optimized(module)
    _check_inputs(module, inputs, kwarg_inputs or {})
    with warnings.catch_warnings(), preserve_node_meta(), TRACING, _quiet_tracing():
        warnings.simplefilter("ignore")  # that TorchScript is deprecated is no news to its users
        try:
            exported = export_module(module, inputs, kwarg_inputs or {}, dynamic_shapes)
        except ExportError as error:
            if error.__cause__ is None or not module.runner.assuming:
                raise
            raise ExportError(_what_is_assumed(module, error.__cause__)) from None
    for graph_module in exported.graph_module.modules():
        for node in getattr(graph_module, "graph", torch.fx.Graph()).nodes:
            if site := site_of(node):
                node.meta["stack_trace"] = source_line(site.node)
    return exported


def _check_inputs(
    module: TorchScriptModule, inputs: Sequence[Any], kwarg_inputs: Mapping[str, Any]
) -> None:
    try:
        module.signature.bind(*inputs, **kwarg_inputs)
    except TypeError as error:
        names = ", ".join(module.signature.parameters) or "nothing"
        message = f"The inputs do not fit the model, which takes ({names}): {error}."
        raise InputError(message) from None


@contextlib.contextmanager
def _quiet_tracing() -> Iterator[None]:
    """Keeps what PyTorch logs about its own code while it traces out of the user's terminal, for this thread."""
    thread = threading.get_ident()

    def is_of_others(record: logging.LogRecord) -> bool:
        return record.thread != thread

    loggers = [logging.getLogger(name) for name in _TRACERS]
    for logger in loggers:
        logger.addFilter(is_of_others)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_of_others)


_TRACERS = ("torch.fx.experimental.symbolic_shapes", "torch._subclasses.fake_tensor")


def _what_is_assumed(module: TorchScriptModule, cause: BaseException) -> str:
    """Returns the message for a model that assumes something about a size: what, and at which lines of its source."""
    lines = dict.fromkeys(f"{node.kind()}\n{source_line(node)}" for node in module.runner.assuming)
    said = [line.strip(" -") for line in str(cause).splitlines() if line.startswith("  - ")]
    return "\n".join(
        (
            "The model does not take all the sizes that were to vary.",
            *(line.partition(" If you're")[0].replace(" the generated guard", "") for line in said),
            "Something about them is assumed here:",
            *lines,
            "Make the model independent of that, or give the sizes that it takes.",
        )
    )


def _refuse_optimized(module: TorchScriptModule) -> None:
    for node in module.nodes():
        if "mkldnn" in node.kind().lower():
            message = (
                "The model was optimized for PyTorch on a CPU (torch.jit.optimize_for_inference): it calls "
                f"{node.kind()}. Compile the model as it was before; torch.jit.freeze does no harm."
            )
            raise InputError(message)


def open_method(model: TorchScript, method: str = "forward") -> TorchScriptModule:
    """Returns a method of a TorchScript model as a module that ``torch.export`` can trace.

    Raises:
        InputError: The model is not TorchScript, or has no such method.
    """
    if isinstance(model, (str, Path)) or hasattr(model, "read"):
        model = _load(model)
    function: Any = model
    if isinstance(model, torch.jit.ScriptFunction):
        return TorchScriptModule(function.inlined_graph, function.schema)
    if not isinstance(model, torch.jit.ScriptModule):
        message = (
            f"torchtrt_torchscript compiles scripted and traced models, not {kind_of(model)}. "
            "torchtrt.compile takes modules as they are."
        )
        raise InputError(message)
    if not model._c._has_method(method):
        names = ", ".join(model._c._method_names())
        message = f"{model.original_name} has no method {method!r} in TorchScript. It has: {names}. Pass method=..."
        raise InputError(message)
    function = getattr(model, method)
    return TorchScriptModule(function.inlined_graph, function.schema, model)


def _load(file: Any) -> Any:
    load: Any = torch.jit.load
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return load(file, map_location="cpu")
    except (OSError, RuntimeError, ValueError) as error:
        message = f"{file} is not the file of a TorchScript model: {str(error).splitlines()[0]}"
        raise InputError(message) from error


def open_graph(graph: ScriptGraph) -> TorchScriptModule:
    """Returns a TorchScript graph, such as ``torch._C.parse_ir`` makes, as a module that ``torch.export`` can trace."""
    function: Any = function_of_graph("graph", graph)
    return TorchScriptModule(graph, function.schema)


@dataclass(frozen=True)
class Unsupported:
    """A function schema that stays in PyTorch or cannot be compiled.

    Attributes:
        schema: The schema.
        reason: Why.
        lines: Where the model uses it.
    """

    schema: str
    reason: str
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join((f"{self.schema}: {self.reason}", *self.lines))


def unsupported_schemas(model: TorchScript, method: str = "forward") -> list[Unsupported]:
    """Returns the schemas of a model for which no pack has a converter and torchtrt no evaluator.

    Nothing is run: a converter may still reject a node because of its shapes.
    """
    uses: dict[tuple[str, str], list[str]] = {}
    for node in open_method(model, method).nodes():
        if reason := _why_unsupported(node):
            uses.setdefault((schema_of(node), reason), []).append(source_line(node))
    return [
        Unsupported(schema, reason, tuple(dict.fromkeys(filter(None, lines))))
        for (schema, reason), lines in uses.items()
    ]


def check_method_op_support(model: TorchScript, method: str = "forward") -> bool:
    """Returns whether every op of a model's method has a converter or an evaluator.

    Those that have none are listed in one warning, with the lines of the model that they come from.
    """
    missing = unsupported_schemas(model, method)
    if missing:
        text = "\n".join(map(str, missing))
        warn_caller(f"These ops stay in PyTorch or cannot be compiled:\n{text}")
    return not missing


def _why_unsupported(node: ScriptNode) -> str:
    if has_no_evaluator(node):
        return "torchtrt has no evaluator for it, and PyTorch dispatches no such op"
    asked = None if node.schema() == NO_SCHEMA else known_op(node.schema())
    if node.kind() in STRUCTURE or node.kind() in EVALUATORS | NODE_EVALUATORS or asked is None:
        return ""
    target = parse_target(asked)
    if DYNAMO_CONVERTERS.candidates(target) or target in DYNAMO_CONVERTERS.decompositions():
        return ""
    return "no pack has a converter for it"
