"""A pack's description of one converter: the function, its calling convention, and what it can handle."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from torchtrt.capability import Capability
from torchtrt.contract.functions import is_variadic, positional_names, qualified_function
from torchtrt.contract.validators import Validator, accept_every_node
from torchtrt.errors import ConverterSignatureError

Converter = Callable[..., Any]
"""A function that adds one op to a network, in one of the forms of ``CallingConvention``."""


class ConverterPriority(enum.Enum):
    """Where a converter goes among the candidates for its op: ``STANDARD`` to the back, ``HIGH`` to the front."""

    STANDARD = "standard"
    HIGH = "high"


class AutocastRule(enum.Enum):
    """In which precision an op computes where the setting ``autocast`` lowers a float32 model's.

    The rules are those of PyTorch's own autocast. An op without one computes in float32.

    Attributes:
        LOWER_PRECISION: In the lower precision, whatever its inputs are: matrix products, convolutions.
        PROMOTE: In the lower precision if all inputs are of it, in float32 otherwise: activations, views.
        FLOAT32: In float32: normalizations, exponentials, losses, reductions.
    """

    LOWER_PRECISION = "lower precision"
    PROMOTE = "promote"
    FLOAT32 = "float32"


class CallingConvention(enum.Enum):
    """How a converter is called, which its parameters determine.

    Attributes:
        SCHEMA: ``(ctx, ...)`` with the parameters of the op's schema, by name; defaults are filled in. Weights are
            network tensors, unless the parameter's annotation has ``torch.Tensor``.
        CTX: ``(ctx, target, args, kwargs, name)`` with the conversion context.
        LEGACY: ``(net, target, args, kwargs, name)`` with the network.
    """

    SCHEMA = "schema"
    CTX = "ctx"
    LEGACY = "net"


@dataclass(frozen=True, slots=True)
class ConverterSupport:
    """One converter and what it can handle.

    Attributes:
        converter_implementation: The function.
        capability_validator: Checks whether the converter can handle one node.
        supports_dynamic_shapes: Whether the converter handles nodes with symbolic dimensions.
        requires_output_allocator: Whether an output's size depends on the data.
        tensorrt: The TensorRT versions that it works with, as ``">=10"``; all if empty.
        requires: The capabilities of TensorRT that it needs.
    """

    converter_implementation: Converter
    capability_validator: Validator = accept_every_node
    supports_dynamic_shapes: bool = False
    requires_output_allocator: bool = False
    tensorrt: str = ""
    requires: tuple[Capability, ...] = ()


_CTX_PARAMETERS = ("target", "args", "kwargs")
_FORMS = (
    "Write (ctx, target, args, kwargs, name), (net, target, args, kwargs, name), or (ctx, ...) with the parameters of "
    "the op's schema."
)


def calling_convention(converter: Converter) -> CallingConvention:
    """Returns how to call ``converter``, which the names of its parameters determine.

    Raises:
        ConverterSignatureError: They determine no convention.
    """
    first, *rest = positional_names(converter) or ("",)
    if first in ("net", "network"):
        convention = CallingConvention.LEGACY
    elif first == "ctx":
        classic = tuple(rest[:3]) == _CTX_PARAMETERS
        convention = CallingConvention.CTX if classic else CallingConvention.SCHEMA
    else:
        raise ConverterSignatureError(
            f"The calling convention of converter {qualified_function(converter)} is unknown: its first parameter "
            f"is {first!r}. {_FORMS}"
        )
    if convention is not CallingConvention.SCHEMA and len(rest) != 4 and not is_variadic(converter):
        raise ConverterSignatureError(
            f"The converter {qualified_function(converter)} takes ({', '.join((first, *rest))}), which is no calling "
            f"convention. {_FORMS}"
        )
    return convention


def looks_like_converter(value: object) -> bool:
    """Returns whether a function is of a converter's form, as one that a decorator was given in place of an op."""
    return isinstance(value, FunctionType) and positional_names(value)[:1] in (("ctx",), ("net",))
