"""``torchtrt.engine_module``: a plan of any origin as a module that is called like a compiled model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.fx import Graph, GraphModule

from torchtrt.conversion.inputs import InputProfile
from torchtrt.errors import EngineError, TorchTRTError, UnreadableFileError
from torchtrt.expressions.data import from_json
from torchtrt.settings import CompilationSettings
from torchtrt.tensorrt import selection
from torchtrt.tensorrt.logging import ErrorLog
from torchtrt.torch_internals import pytree
from torchtrt_kernels.operators import keys_from_json
from torchtrt_kernels.tensorrt_plugins import provide_all
from torchtrt_runtime.checks.inputs import InputChecks
from torchtrt_runtime.checks.tensors import TensorCheck
from torchtrt_runtime.dtype_names import dtype_from_json
from torchtrt_runtime.executors.choice import executor_for
from torchtrt_runtime.modules.compiled import CallInterface, CompiledModule
from torchtrt_runtime.modules.engine import EngineModule
from torchtrt_runtime.plans.description import (
    beside,
    read_description,
    unreadable,
)
from torchtrt_runtime.plans.plan_tensors import PlanTensors, read_tensors
from torchtrt_runtime.plans.recorded_values import PlanSymbols
from torchtrt_runtime.reports.report import BlockReport, CompilationReport
from torchtrt_runtime.serialization.engine_metadata import tensorrt_for
from torchtrt_runtime.serialization.symbols import SymbolsByName
from torchtrt_runtime.size_ranges import Profile


def engine_module(
    path: str | os.PathLike[str],
    *,
    description: bool = True,
    as_dict: bool = False,
    version_compatible: bool = False,
) -> CompiledModule:
    """Returns a plan as a module: one of ``torchtrt.export_engine``, of ``trtexec`` or of any other tool.

    The module takes the engine's inputs by place or by name, checks them as a compiled model does, and runs on the
    device of its inputs. Names, shapes, dtypes and profiles are those of the engine. The description beside the plan,
    ``<path>.json``, adds the TensorRT that loads it, 64-bit dtypes that the engine lacks, and sizes that must be equal.

    Args:
        path: The file of the plan. TensorRT runs code of a version compatible plan: load what you trust.
        description: Whether to read the description, if there is one. Without it, the TensorRT in use loads the plan.
        as_dict: Whether a call returns a dictionary of the outputs by name; otherwise a tuple of them. They are in the
            order of the model's outputs, without a description in the engine's.
        version_compatible: Whether the plan may bring the code that runs it, as one of ``trtexec
            --versionCompatible`` does. The description has it for plans of ``export_engine``.

    Raises:
        UnreadableFileError: There is no such file, or the description has another form, or contradicts the engine.
        EngineMismatchError: The engine is for a TensorRT or a GPU that is not here.
        EngineError: TensorRT cannot load the plan, or no module can run such an engine: the message has the reason.
    """
    file = Path(path)
    try:
        plan = np.fromfile(file, np.uint8)
    except (OSError, ValueError) as error:  # a NUL character is no OSError
        reason = getattr(error, "strerror", None) or error
        raise UnreadableFileError(f"{file} cannot be read: {reason}.") from error
    described: dict[str, Any] | None = None
    module = selection.current()
    compatible: tuple[str, ...] = ("version",) if version_compatible else ()
    if description and beside(file).exists():
        described = read_description(beside(file), plan)
        compatible = tuple(map(str, described["compatible"]))
        module = tensorrt_for(
            described["tensorrt"], described["gpu"], f"The engine in {file}", compatible
        )
    with selection.use_module(module):
        device = torch.device("cuda" if selection.is_real() else "cpu")
        engine = _loaded_engine(plan, file, compatible, described)
        tensors = _tensors(engine, device, file, is_described=described is not None)
    engine.inputs = tensors.inputs
    engine.outputs = dict(tensors.outputs)
    engine.requires_output_allocator = tensors.requires_output_allocator
    symbols = PlanSymbols()
    if described is None:
        checks = _checks_of(tensors, symbols)
        sizes = {name: [*map(_fixed, shape)] for name, shape in tensors.shapes.items()}
    else:
        try:
            checks, sizes = _adopt(described, engine, tensors, symbols)
        except TorchTRTError as error:
            raise unreadable(beside(file), str(error).rstrip(".")) from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reason = f"an entry is missing or malformed ({type(error).__name__}: {error})"
            raise unreadable(beside(file), reason) from error
    # Equal ones too: their numbers are those of the plan.
    engine.profiles = tuple(zip(*(input_.profiles for input_ in engine.inputs), strict=True))
    compiled = _as_module(engine, checks, list(sizes), as_dict, tensors.num_layers)
    results: Any = compiled.graph_module.graph.output_node().args[0]
    for node, (name, shape) in zip(results, sizes.items(), strict=True):
        node.meta["val"] = symbols.fake_tensor(engine.outputs[name], shape, device)
    placeholders = compiled.graph_module.graph.find_nodes(op="placeholder")
    for node, (_, check) in zip(placeholders, checks.inputs, strict=True):
        node.meta["val"] = symbols.fake_tensor(check.dtype, check.sizes, device)
    return compiled


def _loaded_engine(
    plan: Any, file: Path, compatible: Sequence[str], described: Mapping[str, Any] | None
) -> EngineModule:
    """Returns an engine whose inputs and outputs are not read yet."""
    targets = tuple(map(str, described["compute_capabilities"])) if described else ()
    gpu = str(described["gpu"]) if described else None
    engine = EngineModule(
        plan, (), {}, name=file.name, gpu=gpu, compatible=compatible, compute_capabilities=targets
    )
    if described:
        engine.tensorrt = described["tensorrt"]  # which a later version may run
        try:
            engine.plugins = keys_from_json(described["plugins"])
        except ValueError as error:
            raise unreadable(beside(file), str(error)) from error
    return engine


def _tensors(
    engine: EngineModule, device: torch.device, file: Path, is_described: bool
) -> PlanTensors:
    """Returns the inputs and outputs of an engine.

    Raises:
        EngineError: TensorRT cannot load the plan, or no module can run the engine.
    """
    with ErrorLog() as log:
        loaded = engine.deserialize(device)
    if loaded.engine is None and "plugin" in log.text().lower() and provide_all():
        with ErrorLog() as log:
            loaded = engine.deserialize(device)
    if loaded.engine is None:
        advice = (
            f"Engines of it run on {selection.devices()}."
            if is_described
            else "A plan is for the TensorRT that built it: select that one with torchtrt.use_tensorrt(...)."
        )
        reason = log.text().rstrip(".")
        message = f"{selection.describe()} could not load the plan {file}: {reason}. {advice}"
        raise EngineError(message)
    try:
        return read_tensors(loaded.engine)
    except TorchTRTError as error:
        raise EngineError(f"torchtrt cannot run the plan {file}: {error}") from error


def _fixed(size: int) -> int | None:
    return None if size == -1 else size


def _checks_of(tensors: PlanTensors, symbols_by_name: SymbolsByName) -> InputChecks:
    """Returns the checks of inputs whose sizes vary independently."""
    symbols: dict[tuple[int, int], Any] = {}
    inputs: list[tuple[str, Any]] = []
    for number, input_ in enumerate(tensors.inputs):
        for dim, size in enumerate(input_.shape):
            if size == -1:
                symbols[number, dim] = symbols_by_name[f"{input_.name} {dim}"]
        sizes = tuple(symbols.get((number, dim), size) for dim, size in enumerate(input_.shape))
        check = TensorCheck(input_.name, input_.dtype, torch.strided, sizes)
        inputs.append((input_.name, check))
    count = len(tensors.inputs[0].profiles)
    profiles: tuple[Profile, ...] = tuple(
        {
            symbol: tensors.inputs[number].profiles[profile][dim]
            for (number, dim), symbol in symbols.items()
        }
        for profile in range(count)
    )
    return InputChecks(tuple(inputs), profiles)


_NARROWED = {(torch.int64, torch.int32), (torch.float64, torch.float32)}
"""A dtype of a model, and the one that stands for it in an engine."""


def _adopt(
    described: Mapping[str, Any],
    engine: EngineModule,
    tensors: PlanTensors,
    symbols: SymbolsByName,
) -> tuple[InputChecks, dict[str, list[Any]]]:
    """Returns a description's inputs, and its outputs in order with their sizes. Gives the engine its dtypes.

    Raises:
        UnreadableFileError: The description contradicts the engine.
    """
    profile_by_name = {input_.name: input_ for input_ in tensors.inputs}
    _check_names("inputs", described["inputs"], list(profile_by_name))
    _check_names("outputs", described["outputs"], list(tensors.outputs))
    inputs, checks = [], []
    for input_ in described["inputs"]:
        profile = _agreed(input_, profile_by_name[input_["name"]])
        sizes = tuple(from_json(size, symbols.__getitem__) for size in input_["sizes"])
        fixed = tuple(size if isinstance(size, int) else -1 for size in sizes)
        if fixed != profile.shape or not all(map(_is_size, sizes)):
            raise UnreadableFileError(f"it has the sizes {input_['sizes']} for {input_['name']!r}")
        inputs.append(profile)
        checks.append(
            (profile.name, TensorCheck(profile.name, profile.dtype, torch.strided, sizes))
        )
    engine.inputs = tuple(inputs)
    engine.outputs = {
        output["name"]: _agreed_dtype(output, tensors.outputs[output["name"]])
        for output in described["outputs"]
    }
    shapes = {
        output["name"]: _output_sizes(output, tensors.shapes[output["name"]], symbols)
        for output in described["outputs"]
    }
    return InputChecks(tuple(checks), _profiles(symbols, described["sizes"])), shapes


def _output_sizes(
    output: Mapping[str, Any], shape: Sequence[int], symbols: SymbolsByName
) -> list[Any]:
    """Returns the sizes of an output: numbers, expressions of the inputs' sizes, or None for one that is neither.

    Raises:
        UnreadableFileError: They contradict the engine's shape.
    """
    described = output.get("sizes")
    if described is None:
        return [*map(_fixed, shape)]
    sizes = [_size_in_inputs(size, symbols) for size in described]
    pairs = zip(sizes, shape, strict=True)
    contradicts = any(isinstance(size, int) and own not in (-1, size) for size, own in pairs)
    if contradicts or not all(map(_is_size, sizes)):
        raise UnreadableFileError(
            f"it has the sizes {described} for {output['name']!r}, and the engine has {list(shape)}"
        )
    return sizes


def _is_size(size: Any) -> bool:
    return not isinstance(size, bool) and not (isinstance(size, int) and size < 0)


def _size_in_inputs(size: Any, symbols: SymbolsByName) -> Any:
    """Returns a size as an expression of sizes of inputs; None if it has others, which depend on data."""
    if isinstance(size, list) and size[:1] == ["unknown"]:
        return None
    others = SymbolsByName()
    expression = from_json(size, lambda name: (symbols if name in symbols else others)[name])
    return None if others else expression


def _check_names(what: str, described: Sequence[Mapping[str, Any]], theirs: Sequence[str]) -> None:
    mine = [tensor["name"] for tensor in described]
    if sorted(mine) != sorted(theirs):
        raise UnreadableFileError(
            f"it has the {what} {', '.join(mine)}, and the engine has {', '.join(theirs)}"
        )


def _profiles(symbols: SymbolsByName, sizes: Any) -> tuple[Profile, ...]:
    """Returns the profiles of a description.

    Raises:
        UnreadableFileError: There is none, or one lacks a symbol.
    """
    profiles = symbols.profiles_from(sizes)
    missing = [
        name
        for name, symbol in symbols.items()
        if any(symbol not in profile for profile in profiles)
    ]
    if missing or not profiles:
        raise UnreadableFileError(f"its entry 'sizes' lacks {', '.join(missing) or 'a profile'}")
    return profiles


def _agreed(description: Mapping[str, Any], mine: InputProfile) -> InputProfile:
    """Returns an input with the dtype of its description.

    Raises:
        UnreadableFileError: The engine has another dtype or other profiles.
    """
    dtype = _agreed_dtype(description, mine.dtype)
    if tuple(description["shape"]) != mine.shape:
        raise UnreadableFileError(
            f"it has the shape {description['shape']} for {mine.name!r}, and the engine has {list(mine.shape)}"
        )
    described = {
        tuple(tuple(bounds[bound]) for bound in ("min", "opt", "max"))
        for bounds in description["profiles"]
    }
    own = {tuple(zip(*sizes, strict=True)) if sizes else ((), (), ()) for sizes in mine.profiles}
    if described != own:
        raise UnreadableFileError(
            f"it has the profiles {sorted(described)} for {mine.name!r}, and the engine has {sorted(own)}"
        )
    return InputProfile(mine.name, dtype, mine.shape, mine.profiles)


def _agreed_dtype(description: Mapping[str, Any], mine: torch.dtype) -> torch.dtype:
    """Returns the dtype that a description has for a tensor: the engine's, or a wider one that it stands for."""
    dtype = dtype_from_json(description["dtype"])
    if dtype is mine or (dtype, mine) in _NARROWED:
        return dtype
    raise UnreadableFileError(
        f"it has {dtype} for {description['name']!r}, and the engine has {mine}"
    )


def _as_module(
    engine: EngineModule, checks: InputChecks, names: Sequence[str], as_dict: bool, layers: int
) -> CompiledModule:
    """Returns an engine as a compiled model of nothing else."""
    graph = Graph()
    inputs = [graph.placeholder(f"input_{index}") for index in range(len(engine.inputs))]
    call = graph.call_module("engine", tuple(inputs))
    indices = [list(engine.outputs).index(name) for name in names]
    graph.output(tuple(graph.call_function(getitem, (call, index)) for index in indices))
    root = torch.nn.Module()
    root.engine = engine
    returned: Any = dict.fromkeys(names, 0) if as_dict else (0,) * len(names)
    interface = CallInterface(
        pytree.tree_structure(((0,) * len(inputs), {})), pytree.tree_structure(returned), checks
    )
    block = BlockReport("engine", 0, layers, len(engine.plan))
    report = CompilationReport(engine.tensorrt, blocks=[block])
    settings = CompilationSettings()
    return CompiledModule(GraphModule(root, graph), interface, report, settings, executor_for)
