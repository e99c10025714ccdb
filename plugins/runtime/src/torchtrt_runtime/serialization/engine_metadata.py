"""The metadata of an engine beside its plan: enough to run it, and to describe its results."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from packaging.version import Version

from torchtrt.conversion.inputs import InputProfile, SizeRange
from torchtrt.errors import EngineMismatchError, TensorRTUnavailableError, UnreadableFileError
from torchtrt.expressions.data import InexpressibleError, to_json
from torchtrt.tensorrt import selection
from torchtrt.tensorrt.dtypes import dtype_name
from torchtrt_kernels.operators import keys_from_json, keys_to_json
from torchtrt_kernels.tensorrt_plugins import provide
from torchtrt_runtime.dtype_names import dtype_from_json
from torchtrt_runtime.modules.engine import EngineModule
from torchtrt_runtime.processes.groups import Collective
from torchtrt_runtime.size_ranges import union
from torchtrt_runtime.weights.recipe import Recipe
from torchtrt_runtime.weights.stripped import StrippedWeights

_FIELDS = {
    "name": str,
    "tensorrt": str,
    "gpu": str,
    "inputs": list,
    "outputs": list,
    "requires_output_allocator": bool,
    "converted_by": dict,
    "plan_bytes": int,
    "plan_crc32": int,
}


def buffer_of(plan: Any) -> Any:
    """Returns the bytes of a plan as an array over the same memory."""
    return np.frombuffer(plan, dtype=np.uint8)


def describe_engine(
    engine: EngineModule, inputs: Sequence[torch.Tensor] = (), outputs: Sequence[Any] = ()
) -> dict[str, Any]:
    """Returns an engine's description.

    Args:
        engine: The engine.
        inputs: PyTorch's values of the inputs: fake tensors.
        outputs: Those of the outputs, likewise. A size that follows from the inputs' is described.
    """
    plan = buffer_of(engine.plan)
    dimensions = _dimensions_of_symbols(inputs)
    return {
        "name": engine.name,
        "tensorrt": engine.tensorrt,
        "gpu": engine.gpu,
        "inputs": [_input_to_json(input_) for input_ in engine.inputs],
        "outputs": [
            {
                "name": name,
                "dtype": dtype_name(dtype),
                "shape": None
                if not outputs
                else [size_to_json(size, dimensions.__getitem__) for size in outputs[index].shape],
            }
            for index, (name, dtype) in enumerate(engine.outputs.items())
        ],
        "requires_output_allocator": engine.requires_output_allocator,
        "converted_by": engine.converted_by,
        "weights": engine.recipe and engine.recipe.to_json(),
        "compatible": engine.compatible,
        "compute_capabilities": engine.compute_capabilities,
        "collectives": engine.collectives,
        "plugins": keys_to_json(engine.plugins),
        "stripped": engine.stripped and engine.stripped.to_json(),
        "keeps_profiles": bool(engine.profiles),
        "plan_bytes": plan.size,
        "plan_crc32": zlib.crc32(plan),
    }


def _input_to_json(profile: InputProfile) -> dict[str, Any]:
    bounds = [_shapes(sizes) for sizes in profile.profiles]
    overall = _shapes([union(sizes) for sizes in zip(*profile.profiles, strict=True)])
    return {
        "name": profile.name,
        "dtype": dtype_name(profile.dtype),
        "shape": profile.shape,
        **dict(zip(("min", "opt", "max"), overall, strict=True)),
        "ranges": bounds,
    }


def _shapes(sizes: Sequence[SizeRange]) -> list[list[int]]:
    """Returns a minimum, an optimum and a maximum shape."""
    return [[size[bound] for size in sizes] for bound in range(3)]


def _input_from_json(data: dict[str, Any]) -> InputProfile:
    # Files that were written when engines had one range each have it as three entries.
    ranges = data.get("ranges") or [[data[bound] for bound in ("min", "opt", "max")]]
    profiles = (tuple(map(SizeRange, *bounds)) for bounds in ranges)
    dtype = dtype_from_json(data["dtype"])
    return InputProfile(data["name"], dtype, tuple(data["shape"]), tuple(profiles))


def _dimensions_of_symbols(inputs: Sequence[torch.Tensor]) -> dict[Any, list[int]]:
    """Returns for each symbol that is a size by itself the first input with it, and the dimension."""
    dimensions: dict[Any, list[int]] = {}
    for index, value in enumerate(inputs):
        sizes: Sequence[Any] = value.shape
        for dim, size in enumerate(sizes):
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                dimensions.setdefault(size.node.expr, [index, dim])
    return dimensions


def size_to_json(size: Any, symbol: Callable[[Any], Any]) -> Any:
    """Returns a size of an output as data: a number, an expression, or the name of a size that depends on data.

    Args:
        size: The size.
        symbol: Returns what a symbol of an expression is as data; a ``KeyError`` where no input has it.
    """
    if isinstance(size, int):
        return size
    try:
        return to_json(size.node.expr, symbol)
    except (KeyError, InexpressibleError):
        return ["unknown", str(size.node.expr)]


def parse_description(text: str) -> dict[str, Any]:
    """Returns a description from JSON.

    Raises:
        UnreadableFileError: The text is no description.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    return check_description(data)


def check_description(data: Any) -> dict[str, Any]:
    """Returns a description that was read.

    Raises:
        UnreadableFileError: Something is missing, or of another kind.
    """
    if not isinstance(data, dict) or any(
        not isinstance(data.get(name), kind) for name, kind in _FIELDS.items()
    ):
        message = f"An engine's description is unreadable. {_AGAIN}"
        raise UnreadableFileError(message)
    return data


def load_engine(description: dict[str, Any], plan: Any) -> EngineModule:
    """Returns a described engine as a module.

    Args:
        description: What ``describe_engine`` returned.
        plan: Its plan, in any kind of buffer.

    Raises:
        UnreadableFileError: The plan is damaged.
        EngineMismatchError: The engine is for a TensorRT or a GPU that is not here, or runs by a plugin of a pack that
            is not here.
    """
    what = f"The engine of {description['name']}"
    _check_plan(description, plan, what)
    try:
        profiles = [_input_from_json(input_) for input_ in description["inputs"]]
        dtypes = {
            output["name"]: dtype_from_json(output["dtype"]) for output in description["outputs"]
        }
        collectives = [
            Collective(op, group, tuple(words))
            for op, group, words in description.get("collectives", ())
        ]
        plugins = keys_from_json(description.get("plugins", []))
        recipe, stripped = (description.get(name) for name in ("weights", "stripped"))
        recipe = recipe and Recipe.from_json(recipe)
        stripped = stripped and StrippedWeights.from_json(stripped)
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableFileError(
            f"The description of {what.lower()} is unreadable. {_AGAIN}"
        ) from error
    built_by, gpu = description["tensorrt"], description["gpu"]
    compatible = tuple(description.get("compatible", ()))
    with selection.use_module(tensorrt_for(built_by, gpu, what, compatible)):
        engine = EngineModule(
            plan,
            profiles,
            dtypes,
            description["requires_output_allocator"],
            description["name"],
            description["converted_by"],
            gpu,
            recipe,
            compatible,
            tuple(description.get("compute_capabilities", ())),
            collectives,
            plugins,
            stripped,
        )
        provide(plugins, what)
    engine.tensorrt = built_by  # which a later version may run
    if description.get("keeps_profiles"):  # equal ones too: their numbers are those of the plan
        engine.profiles = tuple(zip(*(input_.profiles for input_ in profiles), strict=True))
    return engine


def _check_plan(description: Mapping[str, Any], plan: Any, what: str) -> None:
    """Checks the size and the checksum of a plan.

    Raises:
        UnreadableFileError: The plan is damaged.
    """
    buffer = buffer_of(plan)
    if buffer.size != description["plan_bytes"]:
        message = f"{what} has {buffer.size} bytes instead of {description['plan_bytes']}: it is truncated. {_AGAIN}"
        raise UnreadableFileError(message)
    if zlib.crc32(buffer) != description["plan_crc32"]:
        message = f"{what} is damaged: its checksum does not match. {_AGAIN}"
        raise UnreadableFileError(message)


def tensorrt_for(built_by: str, gpu: str, what: str, compatible: Sequence[str] = ()) -> Any:
    """Returns the TensorRT that runs an engine: the one that built it, or a later one where it is compatible.

    Args:
        built_by: The name of the TensorRT that built it.
        gpu: The GPU that the engine was built on.
        what: The engine, for messages.
        compatible: Where else it runs, as ``EngineModule`` has it.

    Raises:
        EngineMismatchError: The TensorRT or the GPU here does not run it.
    """
    is_real = built_by.startswith(_REAL)
    try:
        module = selection.load("real" if is_real else built_by)
    except TensorRTUnavailableError as error:
        raise EngineMismatchError(
            f"{what} was built by {built_by}, which is not here. {error}"
        ) from error
    if is_real:
        here, built = Version(module.__version__), Version(built_by.removeprefix(_REAL))
        if here < built or (here > built and "version" not in compatible):
            rule = (
                "engines that are version compatible load in the version that built them and in later ones"
                if "version" in compatible
                else "engines load in the version that built them, unless they are compiled with version_compatible"
            )
            raise EngineMismatchError(
                f"{what} was built by {built_by}, and this is TensorRT {module.__version__}: {rule}. Install that "
                "version, or compile and save the model again."
            )
        check_gpu(what, gpu, "hardware" in compatible)
    return module


def check_gpu(what: str, gpu: str, is_compatible: bool = False) -> None:
    """Checks that the GPU in use has the compute capability of the one that an engine was built on.

    Args:
        what: The engine, for messages.
        gpu: The GPU that it was built on.
        is_compatible: Whether it is hardware compatible, and runs on every GPU from Ampere on.

    Raises:
        EngineMismatchError: It has another, or there is none.
    """
    if not torch.cuda.is_available():
        raise EngineMismatchError(f"{what} was built for an {gpu}, and PyTorch finds no GPU here.")
    major, minor = torch.cuda.get_device_capability()
    fits = major >= _AMPERE if is_compatible else gpu.endswith(f"({major}.{minor})")
    if not fits:
        rule = (
            "Engines that are hardware compatible run on GPUs of compute capability 8.0 and later"
            if is_compatible
            else "Engines run on GPUs of the compute capability that they were built for, unless they are compiled "
            "with hardware_compatible"
        )
        raise EngineMismatchError(
            f"{what} was built for an {gpu}, and this is an {torch.cuda.get_device_name()} ({major}.{minor}). {rule}: "
            "compile and save the model here."
        )


_REAL = "TensorRT "
_AMPERE = 8
"""The major compute capability of the first GPUs that hardware compatible engines run on."""
_AGAIN = "Save the model again."
