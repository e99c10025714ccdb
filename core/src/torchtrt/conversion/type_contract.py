"""States, and brings about, the kinds of values that a converter accepts."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch

from torchtrt.conversion.constants import get_trt_tensor
from torchtrt.conversion.values import as_torch_tensor, is_array, is_network_tensor
from torchtrt.errors import ConversionError


class TRTTensor:
    """Stands for ``trt.ITensor`` in type contracts, whichever TensorRT is in use."""


Converter = TypeVar("Converter", bound=Callable[..., Any])
Kind = type


def enforce_tensor_types(
    contract: Mapping[int | str, tuple[Kind, ...]], promote: bool = True
) -> Callable[[Converter], Converter]:
    """Makes a converter receive the kinds of tensors it states.

    Args:
        contract: For an argument (its position in ``args``, or its name in ``kwargs``), the kinds
            that the converter accepts, preferred first: ``TRTTensor``, ``torch.Tensor``,
            ``np.ndarray``. Arguments that are absent or ``None`` are left alone.
        promote: Convert where possible: a constant to a network tensor, an array to a PyTorch
            tensor or back, a Python number to either. A network tensor never becomes a constant.

    Returns:
        A decorator for converters of the ``(ctx, target, args, kwargs, name)`` convention.

    Raises:
        ConversionError: (when the converter is called) an argument is of another kind and cannot be
            converted.
    """

    def decorate(converter: Converter) -> Converter:
        if next(iter(inspect.signature(converter).parameters), None) != "ctx":
            message = f"enforce_tensor_types: {converter.__name__} must take (ctx, target, args, kwargs, name)."
            raise TypeError(message)

        @functools.wraps(converter)
        def checked(
            ctx: Any, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str
        ) -> Any:
            new_args, new_kwargs = list(args), dict(kwargs)
            for place, kinds in contract.items():
                values: Any = new_args if isinstance(place, int) else new_kwargs
                present = place < len(new_args) if isinstance(place, int) else place in new_kwargs
                if present and values[place] is not None:
                    values[place] = _conform(ctx, values[place], kinds, promote, f"{name}/{place}")
            return converter(ctx, target, tuple(new_args), new_kwargs, name)

        return checked  # type: ignore[return-value]

    return decorate


def _conform(ctx: Any, value: Any, kinds: tuple[Kind, ...], promote: bool, name: str) -> Any:
    in_network = is_network_tensor(value)
    if any(in_network if kind is TRTTensor else isinstance(value, kind) for kind in kinds):
        return value
    if (
        promote
        and not in_network
        and (isinstance(value, (torch.Tensor, bool, int, float)) or is_array(value))
    ):
        kind = kinds[0]
        if kind is TRTTensor:
            return get_trt_tensor(ctx, value, name)
        if kind is torch.Tensor:
            return as_torch_tensor(value)
        if kind.__module__ == "numpy":
            return as_torch_tensor(value).numpy()
    found = "a network tensor" if in_network else f"a {type(value).__name__}"
    wanted = " or ".join(
        "a network tensor" if kind is TRTTensor else kind.__name__ for kind in kinds
    )
    message = f"{name}: expected {wanted}, got {found}."
    raise ConversionError(message)
