"""Element by element: ElementWise, Unary, Activation, ParametricReLU, Select. A kind is a line in a table."""

# ruff: noqa: ARG002, ARG005 - operations and their functions have a fixed signature, needed or not
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from torchtrt_reference.semantics.operation import (
    BOOLEANS,
    FLOATS,
    NUMBERS,
    Call,
    Function,
    Operation,
    frozen,
)
from torchtrt_reference.semantics.tensor_facts import TensorFacts, broadcast

Tensor = torch.Tensor


def _divide(rounding: str) -> Callable[[Tensor, Tensor], Tensor]:
    """Returns TensorRT's division: rounded down (``"floor"``), or toward zero for integers only (``"trunc"``)."""

    def divide(a: Tensor, b: Tensor) -> Tensor:
        if a.dtype.is_floating_point:
            return torch.div(a, b) if rounding == "trunc" else torch.floor(a / b)
        # An integer divided by zero is -1 in TensorRT (or -2, where it is negative and rounded down) and an exception
        # in PyTorch; the minimum integer divided by -1 is itself in TensorRT, and the end of the process in PyTorch.
        by_zero = -1 - (a < 0).to(a.dtype) if rounding == "floor" else -1
        quotient = torch.div(a, torch.where((b == 0) | (b == -1), 1, b), rounding_mode=rounding)
        return torch.where(b == 0, by_zero, torch.where(b == -1, -a, quotient))

    return divide


def _greater_of(a: Tensor, b: Tensor) -> Tensor:
    # NaN compares false: MAX(1, NaN) is NaN and MAX(NaN, 2) is 2, as TensorRT computes it.
    return torch.where(a > b, a, b) if a.dtype.is_floating_point else torch.maximum(a, b)


def _lesser_of(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(a < b, a, b) if a.dtype.is_floating_point else torch.minimum(a, b)


def _power(a: Tensor, b: Tensor) -> Tensor:
    result = torch.pow(a, b)
    if not a.dtype.is_floating_point:
        return result
    # As TensorRT computes it, by logarithms: NaN stays NaN even to the power of 0, and an infinite power of 1 or of a
    # negative number is NaN.
    undefined = a.isnan() | b.isnan() | (b.isinf() & ((a == 1) | (a < 0)))
    return torch.where(undefined, math.nan, result)


BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "SUM": torch.add,
    "PROD": torch.mul,
    "MAX": _greater_of,
    "MIN": _lesser_of,
    "SUB": torch.sub,
    "DIV": _divide("trunc"),
    "POW": _power,
    "FLOOR_DIV": _divide("floor"),
    "AND": torch.logical_and,
    "OR": torch.logical_or,
    "XOR": torch.logical_xor,
    "EQUAL": torch.eq,
    "GREATER": torch.gt,
    "LESS": torch.lt,
}
_COMPARISONS = {"EQUAL", "GREATER", "LESS"}

_LARGEST = 1e38
"""The number that TensorRT 8.6 writes for an infinite one into the kernels that it generates."""


def _reading_constants(call: Call, function: Function) -> Function:
    """Returns a function that reads the constants among its operands as generated kernels hold them."""
    numbers = [
        index
        for index, facts in enumerate(call.inputs)
        if not call.rules.infinite_numbers
        and facts is not None
        and facts.dtype == "FLOAT"
        and facts.value is not None
        and facts.value.data.numel() == 1
        and facts.value.mask is None
        and facts.value.data.isinf().all()
    ]
    if not numbers:
        return function

    def read(*operands: Tensor) -> Tensor:
        finite = [
            operand.clamp(-_LARGEST, _LARGEST) if index in numbers else operand
            for index, operand in enumerate(operands)
        ]
        return function(*finite)  # type: ignore[no-any-return]

    return read


class ElementWise(Operation):
    """Two tensors of equal rank, element by element."""

    name = "elementwise"
    methods = frozen({"add_elementwise": {}})
    defaults = frozen({"op": "SUM"})
    partial = "each"

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Equal rank, equal type; comparisons give booleans."""
        op = call["op"]
        if op in ("AND", "OR", "XOR"):
            allowed, wanted = BOOLEANS, "boolean inputs"
        elif op == "EQUAL":
            allowed, wanted = NUMBERS | BOOLEANS, "inputs with activation, integer or boolean type"
        elif op == "POW" and not call.rules.integer_power:
            allowed, wanted = FLOATS, "inputs with activation type"
        else:
            allowed, wanted = NUMBERS, "inputs with activation or Int32 type"
        for index in (0, 1):
            call.require(call.facts(index).dtype in allowed, f"operation {op} requires {wanted}")
        dtype = call.same_type(0, 1, what=f"operation {op}: inputs")
        shape = broadcast([call.shape(0), call.shape(1)], "elementwise inputs")
        return (TensorFacts("BOOL" if op in _COMPARISONS else dtype, shape),)

    def bind(self, call: Call) -> Function:
        """The PyTorch function of the table."""
        return _reading_constants(call, BINARY[call["op"]])


def _sign(x: Tensor) -> Tensor:
    return (
        torch.where(torch.isnan(x), x, torch.sign(x))
        if x.dtype.is_floating_point
        else torch.sign(x)
    )


UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "EXP": torch.exp,
    "LOG": torch.log,
    "SQRT": torch.sqrt,
    "RECIP": torch.reciprocal,
    "ABS": torch.abs,
    "NEG": torch.neg,
    "SIN": torch.sin,
    "COS": torch.cos,
    "TAN": torch.tan,
    "SINH": torch.sinh,
    "COSH": torch.cosh,
    "ASIN": torch.asin,
    "ACOS": torch.acos,
    "ATAN": torch.atan,
    "ASINH": torch.asinh,
    "ACOSH": torch.acosh,
    "ATANH": torch.atanh,
    "CEIL": torch.ceil,
    "FLOOR": torch.floor,
    "ERF": torch.erf,
    "NOT": torch.logical_not,
    "SIGN": _sign,
    "ROUND": torch.round,
    "ISINF": torch.isinf,
    "ISNAN": torch.isnan,
}
_UNARY_TYPES = {"NOT": BOOLEANS, "ABS": NUMBERS, "SIGN": NUMBERS}


class Unary(Operation):
    """One tensor, element by element."""

    name = "unary"
    methods = frozen({"add_unary": {}})
    defaults = frozen({"op": "EXP"})
    partial = "each"

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Floating point, except NOT (boolean) and ABS and SIGN (integers too); NEG of an integer is refused."""
        op = call["op"]
        dtype = call.accept(0, _UNARY_TYPES.get(op, FLOATS), f"the input of {op}")
        return (
            TensorFacts("BOOL" if op in ("ISINF", "ISNAN") else call.declared(dtype), call.shape()),
        )

    def bind(self, call: Call) -> Function:
        """The PyTorch function of the table."""
        return UNARY[call["op"]]


_Scaled = Callable[[Tensor, float, float], Tensor]


def _relu(x: Tensor) -> Tensor:
    # The maximum of 0 and NaN is 0 in TensorRT.
    result = torch.relu(x)
    if x.dtype.is_floating_point and x.numel() and bool(result.amax().isnan()):
        return torch.where(x > 0, x, 0)
    return result


def _softplus(x: Tensor, a: float, b: float) -> Tensor:
    # Seen on TensorRT 8.6: where the exponential would overflow, the input comes back without alpha and beta.
    return torch.where(b * x > 88, x, a * torch.logaddexp(b * x, torch.zeros_like(x)))


ACTIVATION: dict[str, _Scaled] = {
    "RELU": lambda x, a, b: _relu(x),
    "SIGMOID": lambda x, a, b: torch.sigmoid(x),
    "TANH": lambda x, a, b: torch.tanh(x),
    "LEAKY_RELU": lambda x, a, b: torch.nn.functional.leaky_relu(x, a),
    "ELU": lambda x, a, b: torch.nn.functional.elu(x, a),
    "SELU": lambda x, a, b: torch.where(x > 0, b * x, b * a * torch.expm1(x)),
    "SOFTSIGN": lambda x, a, b: torch.nn.functional.softsign(x),
    "SOFTPLUS": _softplus,
    # The order matters where the bounds cross: the lower bound wins. NaN becomes the upper bound.
    "CLIP": lambda x, a, b: torch.where(x < b, x, b).clamp(min=a),
    "HARD_SIGMOID": lambda x, a, b: _greater_of(a * x + b, torch.zeros_like(x)).clamp(max=1),
    "SCALED_TANH": lambda x, a, b: a * torch.tanh(b * x),
    "THRESHOLDED_RELU": lambda x, a, b: torch.where(x > a, x, 0),
    "GELU_ERF": lambda x, a, b: torch.nn.functional.gelu(x),
    "GELU_TANH": lambda x, a, b: torch.nn.functional.gelu(x, approximate="tanh"),
}
_MAXIMUM = 3.4028234663852886e38
# Seen on TensorRT 8.6 for LEAKY_RELU, ELU and CLIP; undocumented for all.
_ACTIVATION_DEFAULTS = {
    "LEAKY_RELU": (0.01, 0.0),
    "ELU": (1.0, 0.0),
    "SELU": (1.6732632423543772, 1.0507009873554805),
    "SOFTPLUS": (1.0, 1.0),
    "CLIP": (-_MAXIMUM, _MAXIMUM),
    "HARD_SIGMOID": (0.2, 0.5),
    "SCALED_TANH": (1.0, 1.0),
    "THRESHOLDED_RELU": (1.0, 0.0),
}


class Activation(Operation):
    """An activation function with up to two parameters."""

    name = "activation"
    methods = frozen({"add_activation": {}})
    defaults = frozen({"type": "RELU", "alpha": None, "beta": None})

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Floating point; RELU takes integers from TensorRT 10 on. The parameters are finite."""
        kind = call["type"]
        allowed = NUMBERS if kind == "RELU" and call.rules.integer_relu else FLOATS
        dtype = call.accept(0, allowed, f"the input of activation {kind}")
        for parameter in _parameters(call):
            is_allowed = math.isfinite(parameter) or (kind == "CLIP" and not math.isnan(parameter))
            call.require(is_allowed, "alpha and beta must be finite")
        return (TensorFacts(call.declared(dtype), call.shape()),)

    def bind(self, call: Call) -> Function:
        """The PyTorch function of the table."""
        function, (alpha, beta) = ACTIVATION[call["type"]], _parameters(call)
        simple: dict[str, Function] = {"RELU": _relu, "SIGMOID": torch.sigmoid, "TANH": torch.tanh}
        return simple.get(call["type"]) or (lambda x: function(x, alpha, beta))

    def read(self, layer: Any, attribute: str) -> Any:
        """An unset alpha or beta reads as the default of the activation's kind."""
        value = layer._attributes[attribute]
        if value is None:
            defaults = _ACTIVATION_DEFAULTS.get(layer._attributes["type"], (0.0, 0.0))
            return defaults[attribute == "beta"]
        return value


def _parameters(call: Call) -> tuple[float, float]:
    alpha, beta = _ACTIVATION_DEFAULTS.get(call["type"], (0.0, 0.0))
    given_alpha, given_beta = call["alpha"], call["beta"]
    return (
        alpha if given_alpha is None else given_alpha,
        beta if given_beta is None else given_beta,
    )


class ParametricReLU(Operation):
    """A leaky ReLU whose slopes are a tensor."""

    name = "parametric_relu"
    methods = frozen({"add_parametric_relu": {}})

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Equal rank; each dimension of the slopes is the input's or 1."""
        for index in (0, 1):
            call.accept(index, FLOATS, f"input {index}")
        dtype = call.same_type(0, 1)
        call.require(call.facts(0).rank >= 1, "at least 1 dimensions are required for input")
        broadcast([call.shape(0), call.shape(1)], "input and slopes")
        for ours, slopes in zip(call.shape(0), call.shape(1), strict=True):
            call.require(
                slopes in (1, -1) or ours in (slopes, -1),
                "slopes may only be broadcast to the input, not beyond it",
            )
        return (TensorFacts(dtype, call.shape(0)),)

    def bind(self, call: Call) -> Function:
        """``x`` where not negative, ``x * slope`` elsewhere."""
        return lambda x, slopes: torch.where(x >= 0, x, x * slopes)


class Select(Operation):
    """The elements of one tensor or another."""

    name = "select"
    methods = frozen({"add_select": {}})
    steering = frozenset({0})
    partial = "move"

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """A boolean condition, two branches of one type, all of equal rank."""
        call.accept(0, BOOLEANS, "the condition")
        for index in (1, 2):
            call.accept(index, NUMBERS | BOOLEANS, f"input {index}")
        dtype = call.same_type(1, 2, what="the branches")
        shape = broadcast([call.shape(0), call.shape(1), call.shape(2)], "select inputs")
        return (TensorFacts(dtype, shape),)

    def bind(self, call: Call) -> Function:
        """``torch.where``."""
        return _reading_constants(call, torch.where)


OPERATIONS = (ElementWise(), Unary(), Activation(), ParametricReLU(), Select())
