"""The table of building blocks, and the decorators that fill it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchtrt_converters_torch_tensorrt.tracing import building_block

BLOCKS: dict[str, dict[str, Callable[..., Any]]] = {}
"""The building blocks by module below ``impl`` and name: ``BLOCKS["elementwise"]["add"]``."""


def block(path: str, *, sizes: Sequence[str] = ()) -> Callable[[Callable[..., Any]], Any]:
    """Returns a decorator that makes a PyTorch function the building block ``module.name``."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        module, _, name = path.rpartition(".")
        function.__name__ = f"impl.{path}"
        BLOCKS.setdefault(module, {})[name] = building_block(function, sizes=sizes)
        return function

    return register


def layer_block(path: str) -> Callable[[Callable[..., Any]], Any]:
    """Returns a decorator that makes a function ``(ctx, target, source_ir, name, ...)`` the building block itself."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        module, _, name = path.rpartition(".")
        BLOCKS.setdefault(module, {})[name] = function
        return function

    return register


def converter_of(packet: Any) -> Callable[..., Any]:
    """Returns a converter ``(ctx, target, args, kwargs, name)`` that adds what an op computes."""
    function = building_block(lambda *args, **kwargs: packet(*args, **kwargs))

    def convert(
        ctx: Any, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str
    ) -> Any:
        return function(ctx, target, None, name, *args, **kwargs)

    return convert
