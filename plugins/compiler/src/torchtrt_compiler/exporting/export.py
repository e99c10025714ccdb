"""From a model and its inputs to an exported program."""

from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
import operator
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from types import MethodType
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.nn.attention import SDPBackend, sdpa_kernel

from torchtrt.callers import warn_caller
from torchtrt.errors import ExportError, InputError, TorchTRTError, kind_of
from torchtrt.graphs.memory import storage_of
from torchtrt.graphs.nodes import all_nodes
from torchtrt.graphs.symbols import quiet_tracing
from torchtrt.registry import export_contexts
from torchtrt.tensorrt.selection import device_objection
from torchtrt.torch_internals import pytree
from torchtrt_compiler.exporting.frontends import front_end_for
from torchtrt_compiler.exporting.parallel_models import export_module
from torchtrt_compiler.exporting.unchanged_models import unchanged
from torchtrt_compiler.inputs import CallInputs, is_input, nested_shapes
from torchtrt_compiler.lowering import without_regions, without_transforms
from torchtrt_compiler.python_reads import PythonReads, python_reads
from torchtrt_compiler.sizes.declared import count_ranges, keep_declared
from torchtrt_compiler.sizes.questions import SizeQuestions, exclude_empty
from torchtrt_compiler.torch_internals import (
    LIBRARIES,
    compile_lock,
    reading_control_flow,
    sizes_by_formulas,
    with_late_code,
    with_shared_lines,
)
from torchtrt_runtime.checks.tensors import check_strided
from torchtrt_runtime.processes.groups import is_distributed
from torchtrt_runtime.serialization.exported_program import RUN

TRACING = compile_lock()
"""PyTorch traces one program at a time, and keeps it in global state: ``torch.compile`` holds this lock as well."""


@contextlib.contextmanager
def tracing() -> Iterator[None]:
    """Keeps the rest of the process from tracing inside a ``with`` block, in which PyTorch traces faster."""
    with TRACING, with_late_code(True), with_shared_lines():
        yield


def export(
    model: torch.nn.Module | ExportedProgram,
    inputs: Sequence[Any],
    kwarg_inputs: Mapping[str, Any],
    dynamic_shapes: Any,
) -> ExportedProgram:
    """Returns the model exported for inference, while nothing else in the process is being traced.

    An exported program is returned as it is.

    Function transforms (``torch.vmap``, ``torch.func.jvp``) are applied to what they transform. Regions under a context
    manager (``torch.autocast``, ``torch.no_grad``) become a part of the graph around them.

    Raises:
        ExportError: ``torch.export`` could not trace the model.
        InputError: The model is no module, or it is compiled. Or the inputs are no sequence, or there are none to
            export it with.
        UnsupportedProgramError: The model has a transform that PyTorch cannot apply, such as ``torch.func.grad``.
    """
    call = CallInputs(inputs, kwarg_inputs)
    _check_kinds(call)
    with tracing(), torch.no_grad():
        if isinstance(model, ExportedProgram):
            _check_uncompiled(model)
            return without_transforms(without_regions(model))
        try:
            program = _with_questions(model, call, dynamic_shapes, call.may_be_empty)
        except ExportError:
            if not call.may_be_empty:
                raise
            program = _with_questions(model, call, dynamic_shapes, may_be_empty=False)
            exclude_empty(program)
        if call.may_be_empty and python_reads(program).lines:
            exclude_empty(program)  # whose strides PyTorch computes from sizes of 1
        keep_declared(program, model, call, dynamic_shapes)
        return program


def _with_questions(
    model: Any, call: CallInputs, dynamic_shapes: Any, may_be_empty: bool
) -> ExportedProgram:
    """Returns a model as it is exported, with what its code asked about sizes and strides meanwhile."""
    with SizeQuestions(may_be_empty) as questions, PythonReads() as reads:
        exported = _exported(model, call, dynamic_shapes)
    program = without_transforms(without_regions(exported))
    reads.keep_in(program)
    questions.keep_in(program)
    return program


def _exported(model: Any, inputs: CallInputs, dynamic_shapes: Any) -> ExportedProgram:
    """Returns a model as its front end, or ``torch.export``, exports it.

    Raises:
        ExportError: ``torch.export`` could not trace the model.
        InputError: It is no module, has no weights yet, or there are no inputs to export it with.
    """
    if front_end := front_end_for(model):
        return front_end.export(model, *inputs, dynamic_shapes)
    leaves = inputs.leaves
    _check_exportable(model, leaves)
    if model.training:
        warn_caller(
            "The model is in training mode: dropout and batch statistics are compiled as they are. "
            "Call model.eval() first for inference."
        )
    tensor = next(itertools.chain(model.parameters(), model.buffers()), None)
    device = _device_without_weights() if tensor is None else tensor.device
    examples = pytree.tree_map(
        lambda leaf: leaf.example(device) if is_input(leaf) else leaf, inputs.tree, is_leaf=is_input
    )
    args, kwargs = _clone_aliased_inputs(examples, model)
    try:
        # The fused attention kernels of CUDA add assumptions about sizes that an engine does not need.
        math_attention = sdpa_kernel(SDPBackend.MATH)
        with (
            torch.no_grad(),
            math_attention,
            unchanged(model),
            quiet_tracing(),
            sizes_by_formulas(),
            reading_control_flow(),
            export_contexts(),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            if dynamic_shapes is None and any(map(is_input, leaves)):
                model, dynamic_shapes = _with_shapes(model, *nested_shapes(inputs.tree))
            return export_module(model, args, kwargs, dynamic_shapes)
    except TorchTRTError:
        raise  # the error of TorchScript's runner names what cannot be compiled
    except Exception as error:
        raise ExportError(
            f"torch.export could not trace {type(model).__name__}{_raised_in(error)}: {type(error).__name__}: {error}\n"
            "If model(*inputs) fails in PyTorch as well, give inputs that the model takes. If not, rewrite what export "
            "cannot trace (torch.export.draft_export(model, args) lists it all), or pass your own ExportedProgram."
            + _advice(error)
        ) from error


def _check_uncompiled(program: ExportedProgram) -> None:
    """Checks that a program does more than run engines. One that calls other ops as well can be compiled.

    Raises:
        InputError: It does not.
    """
    targets = {
        node.target for node in all_nodes(program.graph_module) if node.op == "call_function"
    }
    if targets - {operator.getitem} == {RUN}:
        raise InputError(
            "The exported program is a compiled model, whose engines compute all of it. torchtrt.load(path) opens the "
            "file that torchtrt.save wrote."
        )


def _device_without_weights() -> torch.device:
    """Returns the device that a model without weights is exported on: the CPU, unless engines run on a GPU alone."""
    needs_gpu = torch.cuda.is_available() and device_objection(torch.device("cpu"))
    return torch.device("cuda" if needs_gpu else "cpu")


def _check_exportable(model: Any, leaves: Sequence[Any]) -> None:
    """Checks that ``torch.export`` can be called.

    Raises:
        InputError: The model is no module, has no weights yet, or there are no inputs.
    """
    if type(model).__module__.startswith("torch.jit") or not isinstance(model, torch.nn.Module):
        raise InputError(
            f"compile() takes a torch.nn.Module, an ExportedProgram (of a file: torch.export.load) or, with "
            f"`pip install torchtrt-torchscript`, a scripted or traced model, not {kind_of(model)}."
        )
    if not (leaves or _takes_nothing(model)):
        raise InputError(
            "compile() needs example inputs: a sequence of tensors or torchtrt.Input, such as "
            "torchtrt.compile(model, [torch.rand(1, 3, 224, 224)])."
        )
    if any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers())):
        raise InputError("The model's weights are on the device meta, without values: load them.")


def _takes_nothing(model: torch.nn.Module) -> bool:
    """Returns whether a model's ``forward`` can be called without arguments."""
    try:
        inspect.signature(model.forward).bind()
    except (TypeError, ValueError):
        return False
    return True


def _advice(error: Exception) -> str:
    """Returns what else a user can do about an error of exporting."""
    if "Constraints violated" not in str(error):
        return ""
    return (
        "\nA torch.export.Dim promises every size of its range. torchtrt.Input(min_shape=..., opt_shape=..., "
        "max_shape=...) asks for the sizes that the model takes: others are left out, and report.narrowed says so."
    )


def _raised_in(error: BaseException) -> str:
    """Returns the line of the model at which PyTorch raised, in parentheses, or an empty string."""
    frames = traceback.extract_tb(error.__traceback__)
    outside = [frame for frame in frames if not frame.filename.startswith((*LIBRARIES, "<"))]
    # A mode is between the model and PyTorch, so its frames are the last ones.
    modes = {frame.filename for frame in outside if frame.name == "__torch_function__"}
    # A module of PyTorch has no line of the user's: its forward names the layer.
    layers = [frame for frame in frames if frame.name == "forward"]
    own = [frame for frame in outside if frame.filename not in modes] or layers
    if not own:
        return ""
    return f' (File "{own[-1].filename}", line {own[-1].lineno}, in {own[-1].name} {own[-1].line})'


def _clone_aliased_inputs(tree: Any, model: torch.nn.Module) -> Any:
    """Returns the inputs with copies of those that share memory with others, or with the model.

    Exporting takes a tensor that is given twice for one, and would compile a model that reads one of two arguments.
    """
    seen = {storage_of(tensor) for tensor in (*model.parameters(), *model.buffers())}

    def apart(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.layout is not torch.strided:
            return leaf
        if storage_of(leaf) in seen:
            return leaf.clone()
        seen.add(storage_of(leaf))
        return leaf

    return pytree.tree_map(apart, tree)


def _with_shapes(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[torch.nn.Module, dict[str, Any]]:
    """Returns the model and the shapes by the names of its parameters, as ``torch.export`` takes them.

    It takes none for what ``**kwargs`` collects: there the model gets a parameter for each.
    """
    signature = inspect.signature(model.forward)
    named = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    names = {parameter.name for parameter in named}
    collected = [name for name in kwargs if name not in names]
    if collected and len(named) < len(signature.parameters):
        added = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in collected]
        signature = signature.replace(parameters=[*named, *added])
        model = _with_signature(model, signature)
    return model, dict(signature.bind(*args, **kwargs).arguments)


def _with_signature(model: torch.nn.Module, signature: inspect.Signature) -> torch.nn.Module:
    """Returns a copy of a model whose ``forward`` shows another signature."""
    copied = copy.copy(model)
    method = vars(model).get("forward") or MethodType(type(model).forward, copied)

    def forward(*args: Any, **kwargs: Any) -> Any:
        return method(*args, **kwargs)

    forward.__signature__ = signature  # type: ignore[attr-defined]
    copied.forward = forward
    return copied


def _check_kinds(call: CallInputs) -> None:
    """Checks that inputs are a sequence of strided tensors and ranges, and those by name a mapping.

    Raises:
        InputError: They are not.
    """
    if not isinstance(call.args, Sequence) or isinstance(call.args, str):
        raise InputError(
            f"compile() takes the inputs as a sequence, not as {kind_of(call.args)}: write [x] for one input "
            "x, or kwarg_inputs={...} for inputs by name."
        )
    if not isinstance(call.kwargs, Mapping):
        raise InputError(f"kwarg_inputs is {kind_of(call.kwargs)}: give inputs by name.")
    leaves = call.leaves
    count_ranges(leaves)
    for leaf in leaves:
        if is_distributed(leaf):
            raise InputError(
                "An input is a DTensor, and a compiled model takes plain tensors. Pass the part of this process, "
                "x.to_local(), and let the plan of the first module have its placement as input_layouts."
            )
        if isinstance(leaf, torch.Tensor):
            check_strided(leaf)
        elif isinstance(leaf, np.ndarray):
            raise InputError("An input is a numpy.ndarray. Pass torch.from_numpy(array).")
    if leaves and not any(isinstance(leaf, torch.Tensor) or is_input(leaf) for leaf in leaves):
        raise InputError(
            "None of the inputs is a tensor or a torchtrt.Input, and an engine takes tensors. "
            "For a shape write torchtrt.Input((1, 3, 224, 224))."
        )
