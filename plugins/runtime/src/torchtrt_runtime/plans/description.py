"""The description of a plan: a JSON file beside it, for tools and for ``torchtrt.engine_module``.

``docs/plans.md`` documents each entry.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from torch.fx import Node

import torchtrt
from torchtrt.conversion.inputs import InputProfile
from torchtrt.errors import UnreadableFileError
from torchtrt.expressions.data import to_json
from torchtrt.tensorrt.dtypes import dtype_name, engine_dtype
from torchtrt.tensorrt.selection import use_module
from torchtrt_kernels.operators import keys_to_json
from torchtrt_runtime.checks.tensors import TensorCheck
from torchtrt_runtime.modules.compiled import CompiledModule
from torchtrt_runtime.modules.engine import EngineModule
from torchtrt_runtime.plans.whole_engine import WholeEngine
from torchtrt_runtime.serialization.engine_metadata import buffer_of, size_to_json

FORMAT = "torchtrt.plan"
VERSION = 1
"""The form of a description. A reader takes its own only."""
SUFFIX = ".json"
_KINDS = {
    "plan": dict,
    "tensorrt": str,
    "gpu": str,
    "compatible": list,
    "compute_capabilities": list,
    "plugins": list,
    "inputs": list,
    "outputs": list,
    "sizes": list,
    "requires_output_allocator": bool,
}


def beside(plan: Path) -> Path:
    """Returns the path of the description of a plan: ``model.plan.json`` for ``model.plan``."""
    return plan.with_name(plan.name + SUFFIX)


def describe_plan(compiled: CompiledModule, whole: WholeEngine) -> dict[str, Any]:
    """Returns the description of the plan of a model that is one engine.

    Args:
        compiled: The model.
        whole: Its engine.
    """
    engine: Any = compiled.graph_module.get_submodule(whole.name)
    symbols: dict[Any, str] = {}

    def symbol(of: Any) -> str:
        return symbols.setdefault(of, f"n{len(symbols)}")

    placeholders = compiled.graph_module.graph.find_nodes(op="placeholder")
    checks = dict(zip(placeholders, compiled.checks.inputs, strict=True))
    read = [
        checks.get(node) or (name, _check_of_buffer(compiled, node))
        for node, name in whole.input_names.items()
    ]
    buffers = {name for node, name in whole.input_names.items() if node.op == "get_attr"}
    plan = buffer_of(engine.plan)
    with use_module(engine.tensorrt_module):
        inputs = [
            _describe_input(profile, name, check, symbol, name in buffers)
            for profile, (name, check) in zip(engine.inputs, read, strict=True)
        ]
        outputs = _describe_outputs(compiled, whole, engine, symbol)
    return {
        "format": FORMAT,
        "version": VERSION,
        "torchtrt": torchtrt.__version__,
        "plan": {"bytes": plan.size, "crc32": zlib.crc32(plan)},
        "tensorrt": engine.tensorrt,
        "gpu": engine.gpu,
        "compatible": list(engine.compatible),
        "compute_capabilities": list(engine.compute_capabilities),
        "plugins": keys_to_json(engine.plugins),
        "inputs": inputs,
        "outputs": outputs,
        "sizes": [
            {name: list(profile[of]) for of, name in symbols.items() if of in profile}
            for profile in compiled.checks.profiles
        ],
        "requires_output_allocator": engine.requires_output_allocator,
        "unread_inputs": [
            name
            for name, check in compiled.checks.inputs
            if isinstance(check, TensorCheck) and (name, check) not in read
        ],
        "fixed_inputs": {
            name: value if isinstance(value, bool | int | float | str | None) else repr(value)
            for name, value in compiled.checks.inputs
            if not isinstance(value, TensorCheck)
        },
    }


def _check_of_buffer(compiled: CompiledModule, node: Node) -> TensorCheck:
    """Returns a buffer's dtype, layout and sizes."""
    name = str(node.target)
    value: torch.Tensor = attrgetter(name)(compiled.graph_module)
    return TensorCheck(name, value.dtype, value.layout, tuple(value.shape))


def _describe_input(
    profile: InputProfile,
    name: str,
    check: TensorCheck,
    symbol: Callable[[Any], str],
    is_buffer: bool,
) -> dict[str, Any]:
    """Returns the entry of an input: its names, dtypes, sizes and profiles."""
    return {
        "name": profile.name,
        "model_input": name,
        **({"is_buffer": True} if is_buffer else {}),
        **_dtypes(profile.dtype),
        "layout": "row-major",
        "shape": list(profile.shape),
        "sizes": [to_json(size, symbol) for size in check.sizes],
        "profiles": [
            {
                bound: [size[index] for size in sizes]
                for index, bound in enumerate(("min", "opt", "max"))
            }
            for sizes in profile.profiles
        ],
    }


def _describe_outputs(
    compiled: CompiledModule, whole: WholeEngine, engine: EngineModule, symbol: Callable[[Any], str]
) -> list[dict[str, Any]]:
    """Returns the outputs in the order of the model's outputs, and then those that it writes."""
    names = list(engine.outputs)
    results: Any = compiled.graph_module.graph.output_node().args[0]
    described = []
    nodes = dict(zip(whole.outputs, results, strict=True))
    own = whole.input_names
    writes = {output: own.get(node, str(node.target)) for node, output in whole.written.items()}
    for node, output in whole.written.items():
        nodes.setdefault(output, node)
    for output, node in nodes.items():
        value = node.meta.get("val")
        sizes = [size_to_json(size, symbol) for size in value.shape] if value is not None else None
        described.append(
            {
                "name": names[output],
                **_dtypes(engine.outputs[names[output]]),
                "layout": "row-major",
                "shape": sizes and [size if isinstance(size, int) else -1 for size in sizes],
                "sizes": sizes,
                **({"writes": writes[output]} if output in writes else {}),
            }
        )
    return described


def _dtypes(dtype: torch.dtype) -> dict[str, str]:
    return {"dtype": dtype_name(dtype), "engine_dtype": dtype_name(engine_dtype(dtype))}


def as_text(description: Mapping[str, Any]) -> str:
    """Returns a description as JSON: an entry on each line, and a line for each tensor."""

    def text(value: Any) -> str:
        if isinstance(value, list) and value and isinstance(value[0], dict):
            rows = ",\n    ".join(json.dumps(row, ensure_ascii=False) for row in value)
            return f"[\n    {rows}\n  ]"
        return json.dumps(value, ensure_ascii=False)

    entries = (f"  {json.dumps(name)}: {text(value)}" for name, value in description.items())
    return "{\n" + ",\n".join(entries) + "\n}\n"


def read_description(path: Path, plan: Any) -> dict[str, Any]:
    """Returns the description in a file, which must be of this plan.

    Args:
        path: The file.
        plan: The bytes of the plan.

    Raises:
        UnreadableFileError: The file is no description, is of another version, or describes another plan.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise unreadable(path, f"it cannot be read ({type(error).__name__}: {error})") from error
    if isinstance(data, dict):
        data.setdefault("plugins", [])  # which earlier files lack
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise unreadable(path, f"its format is not {FORMAT!r}")
    if data.get("version") != VERSION:
        wrote = f"version {data.get('version')!r} of torchtrt {data.get('torchtrt')!r}"
        raise unreadable(path, f"it has {wrote}, and this torchtrt reads {VERSION}")
    for name, kind in _KINDS.items():
        if not isinstance(data.get(name), kind):
            raise unreadable(path, f"its entry {name!r} is not a {kind.__name__}")
    buffer = buffer_of(plan)
    if (size := data["plan"].get("bytes")) != buffer.size:
        raise unreadable(
            path, f"it describes a plan of {size} bytes, and this one has {buffer.size}"
        )
    if data["plan"].get("crc32") != zlib.crc32(buffer):
        raise unreadable(
            path, "it describes another plan of the same length, or this one is damaged"
        )
    return data


def unreadable(path: Path, reason: str) -> UnreadableFileError:
    """Returns the error for a description that cannot be used.

    Args:
        path: The description's file.
        reason: Why it does not describe the plan, as a clause.
    """
    return UnreadableFileError(
        f"{path} does not describe the plan beside it: {reason}. Export the plan again, or load it without, with "
        "engine_module(path, description=False)."
    )
