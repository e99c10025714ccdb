"""Tensors from nothing: Fill."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from torchtrt_reference import dtypes
from torchtrt_reference.semantics.operation import (
    INTEGERS,
    NUMBERS,
    Call,
    Function,
    Operation,
    complete,
    frozen,
)
from torchtrt_reference.semantics.tensor_facts import TensorFacts

_DEFAULTS = {"LINSPACE": (0, 1), "RANDOM_UNIFORM": (0.0, 1.0), "RANDOM_NORMAL": (0.0, 1.0)}


class Fill(Operation):
    """A range, or random numbers."""

    name = "fill"
    methods = frozen({"add_fill": {}})
    renames = frozen({"op": "operation", "output_type": "to_type"})
    defaults = frozen(
        {"shape": (), "operation": "LINSPACE", "alpha": None, "beta": None, "to_type": None}
    )
    value_inputs = frozenset({0})
    maximum_inputs = 3
    property_types = frozen({"shape": "Dims", "alpha": "number", "beta": "number"})
    decides_output_type = True

    def is_pure(self, attributes: Mapping[str, Any]) -> bool:
        """Random numbers differ from run to run."""
        return bool(attributes["operation"] == "LINSPACE")

    def write(self, layer: Any, attribute: str, value: Any) -> None:
        """Static values take the place of tensors."""
        layer._attributes[attribute] = value
        for index, name in enumerate(("shape", "alpha", "beta")):
            if name == attribute:
                layer._drop_input(index)

    def read(self, layer: Any, attribute: str) -> Any:
        """Unset values read as the operation's defaults."""
        value = layer._attributes[attribute]
        if value is None and attribute == "to_type":
            return "FLOAT"
        if value is None and attribute in ("alpha", "beta"):
            return _DEFAULTS[layer._attributes["operation"]][attribute == "beta"]
        return value

    def _dtype(self, call: Call) -> str:
        """Returns the type of the output: the one that was set, otherwise that of alpha, otherwise ``FLOAT``."""
        alpha = call.optional(1)
        wanted = (
            call.output_type() or call["to_type"] or ("FLOAT" if alpha is None else alpha.dtype)
        )
        if alpha is not None:
            call.require(
                alpha.dtype == wanted or {alpha.dtype, wanted} <= {"FLOAT", "HALF"},
                f"alpha of type {alpha.dtype} does not make an output of type {wanted}",
            )
        return str(wanted)

    @staticmethod
    def _static(call: Call) -> tuple[Any, Any]:
        """Alpha and beta as attributes."""
        alpha, beta = _DEFAULTS[call["operation"]]
        given_alpha, given_beta = call["alpha"], call["beta"]
        return (
            alpha if given_alpha is None else given_alpha,
            beta if given_beta is None else given_beta,
        )

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Alpha and beta are both attributes or both tensors."""
        operation = call["operation"]
        dimensions = call.elements(0)
        if dimensions is None:
            dimensions = list(call["shape"])
        call.require(
            all(size is None or size >= 0 for size in dimensions),
            f"a fill cannot have the shape {dimensions}",
        )
        alpha, beta = call.optional(1), call.optional(2)
        call.require(
            (alpha is None) == (beta is None),
            "alpha and beta must both be attributes or both be tensors",
        )
        dtype = self._dtype(call)
        allowed = INTEGERS | {"FLOAT"} if operation == "LINSPACE" else frozenset({"FLOAT", "HALF"})
        call.require(
            dtype in allowed, f"fill operation {operation} cannot produce {dtypes.SPELLING[dtype]}"
        )
        if alpha is not None and beta is not None:
            call.accept(1, NUMBERS, "alpha")
            call.same_type(1, 2, what="alpha and beta")
            call.require(alpha.rank == 0, "alpha must be a scalar")
            if operation == "LINSPACE":
                call.require(
                    beta.shape in ((len(dimensions),), (-1,)),
                    f"beta must have one element for each of the {len(dimensions)} dimensions",
                )
            else:
                call.require(beta.rank == 0, "beta must be a scalar")
        elif operation == "RANDOM_UNIFORM":
            low, high = self._static(call)
            call.require(low <= high, f"there is no number between {low} and {high}")
        elif operation == "LINSPACE":
            call.require(
                len(dimensions) == 1,
                "a LINSPACE with static alpha and beta must be one-dimensional: Could not find any implementation",
            )
        return (TensorFacts(dtype, complete(dimensions)),)

    def bind(self, call: Call) -> Function:
        """``arange`` along each dimension, or the random generators."""
        target, dtype, operation = self.infer(call)[0].shape, self._dtype(call), call["operation"]
        kind = dtypes.TORCH[dtype]
        static = [
            number if kind.is_floating_point else int(number) for number in self._static(call)
        ]

        def parameters(tensors: tuple[Any, ...]) -> tuple[Any, Any]:
            dynamic = [tensors[index] if len(tensors) > index else None for index in (1, 2)]
            return (
                static[0] if dynamic[0] is None else dynamic[0],
                static[1] if dynamic[1] is None else dynamic[1],
            )

        def device_of(tensors: tuple[Any, ...]) -> torch.device | None:
            return next((tensor.device for tensor in tensors if tensor is not None), None)

        def linspace(*tensors: Any) -> torch.Tensor:
            (start, step), device = parameters(tensors), device_of(tensors)
            result = torch.as_tensor(start, dtype=kind, device=device).expand(target)
            for axis, size in enumerate(target):
                view = [1] * len(target)
                view[axis] = size
                axis_step = step.reshape(-1)[axis] if isinstance(step, torch.Tensor) else step
                result = result + (torch.arange(size, device=device).to(kind) * axis_step).view(
                    view
                )
            return result.to(kind)

        def uniform(*tensors: Any) -> torch.Tensor:
            low, high = parameters(tensors)
            return torch.rand(target, device=device_of(tensors)).mul(high - low).add(low).to(kind)

        def normal(*tensors: Any) -> torch.Tensor:
            mean, deviation = parameters(tensors)
            return torch.randn(target, device=device_of(tensors)).mul(deviation).add(mean).to(kind)

        return {"LINSPACE": linspace, "RANDOM_UNIFORM": uniform, "RANDOM_NORMAL": normal}[operation]


OPERATIONS = (Fill(),)
