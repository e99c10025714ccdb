"""The op for which a converter is called, given the schema of what a TorchScript graph calls."""

from __future__ import annotations

import functools
from typing import Any, NoReturn

from torchtrt.errors import PackError, did_you_mean
from torchtrt_torchscript.graphs import full_name, overload_of, parsed_schema
from torchtrt_torchscript.torch_internals import registered_schemas, schemas_of

_BECOMES = {
    "aten::_convolution": "aten.convolution.default",
    "aten::_convolution.deprecated": "aten.convolution.default",
    "aten::view": "aten.reshape.default",
}
"""Schemas whose first arguments are those of another op, and that op."""
_MADE_OF_OTHERS = {
    "aten::narrow.Tensor": "aten::index_select",
    "aten::to.prim_Device": "aten::_to_copy",
    "aten::to.prim_dtype": "aten::_to_copy",
}
"""Schemas that other ops become, and the schema to convert instead."""


def op_asked_for(schema: str) -> str:
    """Returns the name of the op for which a schema's converter is called: ``"aten.add.Tensor"``.

    It is the op without writing where the schema writes in place.

    Raises:
        PackError: The schema cannot be read, PyTorch has no such function, or nothing will ever call it.
    """
    try:
        parsed = parsed_schema(schema)
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        message = (
            f"{schema!r} is not a function schema ({reason}). Write it as PyTorch does: "
            '"aten::relu(Tensor self) -> Tensor".'
        )
        raise PackError(message) from error
    name = full_name(parsed)
    _check_exists(schema, parsed)
    if name in _BECOMES:
        return _BECOMES[name]
    if name in _MADE_OF_OTHERS:
        _refuse(schema, f"other ops are made of it. Convert {_MADE_OF_OTHERS[name]} instead")
    if not any("Tensor" in str(result.type) for result in parsed.returns):
        _refuse(
            schema,
            "what makes no tensor is evaluated when the model is compiled. It needs no converter",
        )
    written = [
        argument
        for argument in parsed.arguments
        if argument.alias_info and argument.alias_info.is_write
    ]
    if any(argument.is_out for argument in written):
        _refuse(schema, "it writes its result to an argument. Convert the overload without out")
    if written:
        return _without_writing(schema, parsed)
    if parsed.name.startswith(_PYTORCHS) and overload_of(schema) is None:
        _refuse(schema, "PyTorch's dispatcher has no such op; tensors are made of other ops there")
    return _op_name(parsed)


@functools.cache
def known_op(schema: str) -> str | None:
    """Returns the op of ``op_asked_for``, or ``None`` where no converter is called for it."""
    try:
        return op_asked_for(schema)
    except PackError:
        return None


_PYTORCHS = ("aten::", "prim::")


def _check_exists(schema: str, parsed: Any) -> None:
    """Checks that PyTorch has an op of this schema. An op of another library may come later, with that library.

    Raises:
        PackError: PyTorch has no such op, or one that takes or returns something else.
    """
    schemas = schemas_of(parsed.name)
    same = [candidate for candidate in schemas if candidate.overload_name == parsed.overload_name]
    if not schemas and not parsed.name.startswith(_PYTORCHS):
        return  # a library that is loaded later may bring it
    if not schemas:
        names = {schema.name for schema in registered_schemas()}
        _refuse(schema, f"PyTorch has no {parsed.name}", did_you_mean(parsed.name, names, ""))
    if not any(_signature(candidate) == _signature(parsed) for candidate in same):
        listed = "; ".join(map(str, same or schemas))
        _refuse(schema, f"PyTorch's {parsed.name} is another: {listed}")


def _without_writing(schema: str, parsed: Any) -> str:
    """Returns the full name of the op that does the same as one in place, as ``aten.relu.default`` for ``relu_``.

    Raises:
        PackError: There is none.
    """
    name = parsed.name.removesuffix("_")
    arguments = [argument for argument, _ in _signature(parsed)[0]]
    same = (
        _op_name(candidate)
        for candidate in schemas_of(name)
        if candidate.overload_name == parsed.overload_name
        and arguments == [argument for argument, _ in _signature(candidate)[0]]
    )
    target = next(same, None)
    if target is None:
        _refuse(schema, "it writes in place, and there is no op that does the same without writing")
    return target


def _refuse(schema: str, reason: str, hint: str = "") -> NoReturn:
    message = f"No converter would ever be asked for {schema!r}: {reason}. {hint}"
    raise PackError(message.rstrip())


def _signature(parsed: Any) -> tuple[list[tuple[str, str]], list[str]]:
    arguments = [(argument.name, str(argument.type)) for argument in parsed.arguments]
    return arguments, [str(result.type) for result in parsed.returns]


def _op_name(parsed: Any) -> str:
    namespace, _, name = parsed.name.partition("::")
    return f"{namespace}.{name}.{parsed.overload_name or 'default'}"
