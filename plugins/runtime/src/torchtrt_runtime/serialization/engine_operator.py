"""The operator ``torchtrt::execute_engine``, in which a saved program holds its engines."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch.utils.weak import WeakIdKeyDictionary

from torchtrt.errors import EngineError
from torchtrt.expressions.data import check_size, evaluate
from torchtrt_runtime.dtype_names import dtype_from_json
from torchtrt_runtime.modules.engine import EngineModule
from torchtrt_runtime.serialization.engine_metadata import load_engine, parse_description

_loaded: Any = (
    WeakIdKeyDictionary()
)  # for each plan its engine, and the description that it was loaded by
_lock = threading.Lock()


def execute_engine(
    inputs: Sequence[torch.Tensor], plan: torch.Tensor, description: str
) -> list[torch.Tensor]:
    """Returns an engine's outputs. The engine is loaded once for each plan, and kept as long as the plan is.

    Args:
        inputs: The engine's inputs, on one device.
        plan: The serialized engine: uint8, of one dimension.
        description: What the engine is, as JSON.

    Raises:
        UnreadableFileError: Plan or description are damaged.
        EngineMismatchError: The engine is for a TensorRT or a GPU that is not here.
        EngineError: The inputs do not fit, or execution failed.
    """
    loaded = _loaded.get(plan)
    if loaded is None or loaded[0] != description:
        with _lock:
            loaded = _loaded.get(plan)
            if loaded is None or loaded[0] != description:
                loaded = _loaded[plan] = (description, _load(plan, description))
    engine: EngineModule = loaded[1]
    return list(engine(*inputs))


def _load(plan: torch.Tensor, description: str) -> EngineModule:
    data = plan.detach().to("cpu").contiguous()  # shares memory with a plan that is there already
    return load_engine(parse_description(description), data.numpy())


def engine_outputs(
    inputs: Sequence[torch.Tensor],
    plan: torch.Tensor,
    description: str,
) -> list[torch.Tensor]:
    """Returns the outputs as PyTorch traces them: their dtypes, and their sizes as expressions of the inputs' sizes.

    A model around the engine takes the sizes that the engine takes.
    """
    for tensor, bounds in zip(inputs, input_bounds(description), strict=True):
        for dim, (size, (low, high)) in enumerate(zip(tensor.shape, bounds, strict=False)):
            torch._check(
                (size >= low) & (size <= high),  # one condition, whether a size is symbolic or not
                lambda dim=dim, low=low, high=high: (
                    f"an engine takes {low} to {high} in dimension {dim}"
                ),
            )
    context: Any = None
    unknown: dict[str, Any] = {}
    outputs = []
    for dtype, shape in output_shapes(description):
        sizes = []
        for size in shape:
            if isinstance(size, str):
                if size not in unknown:
                    context = context or torch.library.get_ctx()
                    unknown[size] = context.new_dynamic_size()
                sizes.append(unknown[size])
            else:
                sizes.append(
                    evaluate(size, lambda dimension: inputs[dimension[0]].shape[dimension[1]])
                )
        outputs.append(torch.empty(sizes, dtype=dtype, device=inputs[0].device))
    return outputs


@functools.lru_cache(maxsize=256)
def output_shapes(description: str) -> tuple[tuple[torch.dtype, tuple[Any, ...]], ...]:
    """Returns each output's dtype and its sizes: data, or a name for a size that depends on data.

    Raises:
        UnreadableFileError: The text is no description.
    """
    return tuple(
        (
            dtype_from_json(output["dtype"]),
            tuple(map(_size_or_name, output["shape"])),
        )
        for output in parse_description(description)["outputs"]
    )


@functools.lru_cache(maxsize=256)
def input_bounds(description: str) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Returns for each input the smallest and the largest size of each dimension, over all ranges.

    Raises:
        UnreadableFileError: The text is no description.
    """
    inputs = parse_description(description)["inputs"]
    return tuple(tuple(zip(input_["min"], input_["max"], strict=True)) for input_ in inputs)


def _size_or_name(size: Any) -> Any:
    match size:
        case ["unknown", str(name)]:
            return name
    check_size(size)
    return size


def no_gradients(*_: Any) -> NoReturn:
    """Raises an error: there is no backward pass.

    Raises:
        EngineError: Always.
    """
    raise EngineError(
        "Engines compute no gradients. Train the original model; for inference use torch.no_grad() or detach()."
    )
