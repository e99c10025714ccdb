"""TorchScript converters: how they are registered, and how they are called."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from torchtrt.contract import ConverterPriority, Reject
from torchtrt.errors import ConversionError
from torchtrt.packs import ConverterPack, local_pack
from torchtrt_torchscript.schema_to_op import known_op, op_asked_for
from torchtrt_torchscript.source_location import node_info, site_of
from torchtrt_torchscript.torch_internals import ScriptNode

Function = TypeVar("Function", bound=Callable[..., Any])
TorchScriptConverter = Callable[[Any, ScriptNode, Sequence[Any]], bool]
"""A function ``(ctx, node, args)`` that adds a node to a network and returns whether it could."""


def torchscript_converter(
    pack: ConverterPack,
    schema: str,
    *,
    enabled: bool = True,
    priority: ConverterPriority = ConverterPriority.STANDARD,
) -> Callable[[Function], Function]:
    """Returns a decorator that registers a converter ``(ctx, node, args)`` by function schema.

    It is a candidate for the schema's op under the same law as every other, and accepts only nodes
    that come from TorchScript. An op without one is converted by the op's ordinary converters.

    Args:
        pack: The pack to register in.
        schema: A function schema: ``"aten::relu(Tensor self) -> Tensor"``.
        enabled: With ``False`` the function is not registered.
        priority: As for ``torchtrt.packs.ConverterPack.converter``.

    Raises:
        PackError: The schema cannot be read, nothing would ever call it, or the pack is already loaded.
    """

    def register(function: Function) -> Function:
        target = op_asked_for(schema)
        pack.add(
            target,
            as_graph_converter(function),
            enabled=enabled,
            capability_validator=_accepts(target),
            priority=priority,
            supports_dynamic_shapes=True,
        )
        return function

    return register


class RegisterNodeConversionPatterns:
    """Registers TorchScript converters of this program, in the pack named ``local``.

    ``RegisterNodeConversionPatterns().pattern("aten::relu(Tensor self) -> Tensor", convert_relu).pattern(...)``

    Args:
        priority: ``HIGH`` puts the converters before those of every pack.
    """

    def __init__(self, priority: ConverterPriority = ConverterPriority.STANDARD) -> None:
        self._priority = priority

    def pattern(
        self, schema: str, converter: TorchScriptConverter
    ) -> RegisterNodeConversionPatterns:
        """Registers a converter for a function schema; returns this object.

        Raises:
            PackError: The schema cannot be read, or nothing would ever call it.
        """
        torchscript_converter(local_pack, schema, priority=self._priority)(converter)
        return self


def _accepts(target: str) -> Callable[[torch.fx.Node, Any], bool | Reject]:
    """Returns the validator of a converter: it takes nodes of TorchScript graphs that call its op."""

    def from_torchscript(node: torch.fx.Node, settings: Any) -> bool | Reject:
        site = site_of(node)
        if site is None:
            return Reject("it converts TorchScript, and this node comes from torch.export")
        if known_op(site.node.schema()) != target:
            return Reject(
                f"it converts nodes of TorchScript, and this is a part of {site.node.kind()}"
            )
        return True

    return from_torchscript


def as_graph_converter(converter: TorchScriptConverter) -> Callable[..., Any]:
    """Returns a TorchScript converter as the interpreter calls converters."""

    @functools.wraps(converter)
    def convert(ctx: Any, target: Any, args: Sequence[Any], kwargs: Any, _: str) -> Any:
        from torchtrt_torchscript.conversion_ctx import ConversionCtx
        from torchtrt_torchscript.node_arguments import Argument, contained

        site = site_of(ctx.node)
        assert site is not None, "the validator has seen to it"
        torchscript = ctx.attachments.setdefault(__package__, None) or ConversionCtx(ctx)
        ctx.attachments[__package__] = torchscript
        torchscript.label = node_info(site.node)
        arguments = [
            Argument(parameter.name, contained(value))
            for parameter, value in _in_order(target, args, kwargs)
        ]
        inputs = list(site.node.inputs())
        # What PyTorch leaves out of the op, such as the flags of aten::_convolution for cuDNN, are constants.
        arguments += [
            Argument(value.debugName(), value.toIValue()) for value in inputs[len(arguments) :]
        ]
        for value, argument in zip(inputs, arguments, strict=False):
            torchscript.record(
                value, argument.ITensor() if argument.is_itensor() else argument.IValue()
            )
        outputs = list(site.node.outputs())
        for value in outputs:
            torchscript.value_tensor_map.pop(value, None)
            torchscript.evaluated_value_map.pop(value, None)
        if not converter(torchscript, site.node, arguments):
            message = f"The converter returned False: it could not convert {torchscript.label}."
            raise ConversionError(message)
        results = [torchscript.result_of(value) for value in outputs]
        return results[0] if len(results) == 1 else tuple(results)

    del convert.__wrapped__  # its signature is not the converter's
    return convert


def _in_order(target: Any, args: Sequence[Any], kwargs: Any) -> list[tuple[Any, Any]]:
    """Returns the parameters of an op's schema in order, each with its argument."""
    parameters = target._schema.arguments
    rest = [
        kwargs.get(parameter.name, parameter.default_value) for parameter in parameters[len(args) :]
    ]
    return list(zip(parameters, (*args, *rest), strict=True))
