"""Calls of a pipeline's components: their sizes in the words of the pipeline, and the scale of adapters."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from numbers import Integral
from typing import Any

import torch
from diffusers.utils.constants import USE_PEFT_BACKEND
from diffusers.utils.peft_utils import scale_lora_layers

from torchtrt.errors import InputError
from torchtrt_converters_diffusers.sizes import AxesOfArguments, Axis, PipelineSizes
from torchtrt_converters_diffusers.torch_internals import pytree

_ATTENTION = ("cross_attention_kwargs", "joint_attention_kwargs", "attention_kwargs")
"""The parameters whose entry ``scale`` multiplies the scales of adapters while the call runs."""


def check_inputs(check: Callable[..., Any], sizes: PipelineSizes, *args: Any, **kwargs: Any) -> Any:
    """Checks the arguments of a pipeline's call as the pipeline does, and then height and width.

    Components check the sizes of their tensors as well. This comes before anything is computed.

    Args:
        check: The pipeline's method ``check_inputs``.
        sizes: The sizes that the pipeline is compiled for.
        *args: The arguments of the method.
        **kwargs: The arguments of the method.

    Raises:
        InputError: The pipeline is not compiled for the height or the width.
    """
    result = check(*args, **kwargs)
    arguments = inspect.signature(check).bind(*args, **kwargs).arguments
    for axis in sizes.pixels():
        size = arguments.get(axis.argument)
        problem = axis.problem(int(size)) if isinstance(size, Integral) else None
        if problem:
            raise InputError(_message(problem, "the pipeline", axis))
    return result


def guard_calls(
    followed: Any, component: str, axes: AxesOfArguments, hint: Callable[[], str]
) -> None:
    """Lets a followed component check the sizes of its calls, and set the scale of adapters outside of its program.

    Args:
        followed: The component.
        component: Its place in the pipeline.
        axes: The sizes that it is compiled for; none are checked where there are none.
        hint: Returns advice that ends the message of an error.
    """
    run = followed.forward
    signature = inspect.signature(run)

    @functools.wraps(run)
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Calls the component.

        Raises:
            InputError: It is not compiled for these sizes.
        """
        if axes:
            with contextlib.suppress(TypeError):  # the component raises the error itself
                arguments = signature.bind(*args, **kwargs).arguments
                _check(arguments, axes, component, hint)
        with _scaled_adapters(followed, kwargs) as rest:
            return _scaled_result(run, args, rest)

    followed.forward = forward


def _check(value: Any, expected: Any, component: str, hint: Callable[[], str]) -> None:
    """Checks the sizes of the tensors in an argument.

    Raises:
        InputError: The component is not compiled for one of them.
    """
    if isinstance(value, torch.Tensor):
        for dim, axis in expected.items():
            _check_size(value, dim, axis, component, hint)
        return
    pairs: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        pairs = ((nested, expected.get(name)) for name, nested in value.items())
    elif isinstance(value, list | tuple):
        pairs = zip(value, expected, strict=False)
    for nested, axes in pairs:
        if axes:
            _check(nested, axes, component, hint)


def _check_size(
    tensor: torch.Tensor, dim: int, axis: Axis, component: str, hint: Callable[[], str]
) -> None:
    problem = axis.problem(tensor.shape[dim]) if dim < tensor.dim() else None
    if problem:
        raise InputError(_message(problem, f"{component!r} of the pipeline", axis) + hint())


def _message(problem: str, what: str, axis: Axis) -> str:
    return (
        f"{problem}, the sizes that {what} is compiled for. Compile the pipeline with other {axis.setting}, or with "
        "fallback=True, which compiles further sizes when they come."
    )


def _scaled_result(
    run: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """Returns the result of a call; a ControlNet's ``conditioning_scale`` multiplies it here.

    Inside the program, each scale would be another program. ControlNets multiply by it at their end.
    """
    scale = kwargs.get("conditioning_scale")
    if not isinstance(scale, int | float):
        return run(*args, **kwargs)
    rest = {name: value for name, value in kwargs.items() if name != "conditioning_scale"}
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor * scale, run(*args, **rest))


@contextlib.contextmanager
def _scaled_adapters(model: Any, kwargs: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Multiplies the scales of a model's adapters for a call that asks for it, and yields its other arguments.

    Inside the program, each scale would be another program. Outside of it, each scale is a refit.
    """
    name = next(
        (argument for argument in _ATTENTION if "scale" in (kwargs.get(argument) or ())), None
    )
    if name is None or not USE_PEFT_BACKEND:  # diffusers warns what a scale needs
        yield dict(kwargs)
        return
    others = dict(kwargs[name])
    scale = others.pop("scale")
    layers = [module for module in model.modules() if isinstance(vars(module).get("scaling"), dict)]
    before = [dict(layer.scaling) for layer in layers]
    scale_lora_layers(model, scale)
    try:
        yield {**kwargs, name: others or None}
    finally:
        # Dividing by the scale would round, and other scales need another refit.
        for layer, scaling in zip(layers, before, strict=True):
            layer.scaling.update(scaling)
