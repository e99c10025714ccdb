"""Converters that misuse the network: the error names the pack, the node, and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import torchtrt
from torchtrt import trt
from torchtrt.conversion import add
from torchtrt.errors import ConversionError
from torchtrt.packs import ConverterPriority, local_pack, use_packs

aten = torch.ops.aten
X = torch.rand(3, 4)


class Model(nn.Module):
    """An op that a test converts, between others."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the op's result."""
        return torch.isposinf(x * 2).float() + x


@pytest.fixture
def compiled_with() -> Callable[..., Any]:
    """Compiles the model with a converter of the op."""

    def compile_model(converter: Callable[..., Any]) -> Any:
        high = ConverterPriority.HIGH
        register = local_pack.converter(
            aten.isposinf.default, priority=high, supports_dynamic_shapes=True
        )
        with use_packs():
            register(converter)
            return torchtrt.compile(Model().eval(), [X], min_block_size=1)

    return compile_model


def is_inf(ctx: Any, tensor: Any) -> Any:
    """Adds the layer of the op."""
    return add(ctx, "unary", tensor, trt.UnaryOperation.ISINF)


def kept_result(kept: dict[str, Any], ctx: Any, tensor: Any) -> Any:
    """Returns the result of the first conversion."""
    return kept.setdefault("result", is_inf(ctx, tensor))


def kept_argument(kept: dict[str, Any], ctx: Any, tensor: Any) -> Any:
    """Computes with the argument of the first conversion."""
    return is_inf(ctx, kept.setdefault("argument", tensor))


def kept_context(kept: dict[str, Any], ctx: Any, tensor: Any) -> Any:
    """Adds a layer to the network of the first conversion."""
    return is_inf(kept.setdefault("ctx", ctx), tensor)


@pytest.mark.parametrize("convert", [kept_result, kept_argument, kept_context])
def test_a_tensor_of_another_network_is_an_error_of_its_converter(
    compiled_with: Callable[..., Any], version: str, convert: Callable[..., Any]
) -> None:
    """The networks are equal, and so are the names of their tensors."""
    kept: dict[str, Any] = {}

    def converter(ctx: Any, self: Any) -> Any:
        return convert(kept, ctx, self)

    torch.testing.assert_close(compiled_with(converter)(X), Model()(X))
    message = r"(?s)aten\.isposinf\.default \(node isposinf\).*another network.*must keep no tensor"
    with pytest.raises(ConversionError, match=message):
        compiled_with(converter)


def mark(ctx: Any, tensor: Any) -> None:
    """Marks an output."""
    ctx.net.mark_output(tensor)


def add_input(ctx: Any, tensor: Any) -> None:
    """Adds an input."""
    ctx.net.add_input("more", trt.float32, tuple(tensor.shape))


@pytest.mark.parametrize("change", [mark, add_input])
def test_the_inputs_and_outputs_of_the_network_are_not_the_converters(
    compiled_with: Callable[..., Any], change: Callable[..., None]
) -> None:
    """The engine would lack a value at its call."""

    def converter(ctx: Any, self: Any) -> Any:
        result = is_inf(ctx, self)
        change(ctx, result)
        return result

    message = r"(?s)could not convert aten\.isposinf\.default.*added an input.* or marked an output"
    with pytest.raises(ConversionError, match=message):
        compiled_with(converter)


def test_an_array_is_a_constant_for_the_next_converter(compiled_with: Callable[..., Any]) -> None:
    """As a PyTorch tensor is."""
    model = compiled_with(lambda ctx, self: np.zeros((3, 4), bool))

    torch.testing.assert_close(model(X), X)


def test_an_exception_without_a_text_names_its_converter(
    compiled_with: Callable[..., Any],
) -> None:
    """Its ``__str__`` raises."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise ZeroDivisionError

    def converter(ctx: Any, self: Any) -> Any:
        raise Mute

    message = re.escape("(node isposinf): Mute: its message cannot be shown")
    with pytest.raises(ConversionError, match=message):
        compiled_with(converter)
