"""``compile_pipeline``: one call for all components of a pipeline of diffusers."""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from diffusers import DiffusionPipeline, UNet2DConditionModel

import torchtrt
from torchtrt.callers import skip_callers
from torchtrt.errors import InputError, kind_of
from torchtrt.settings import check_setting_names
from torchtrt_converters_diffusers import autoencoders, controlnets, denoisers, text_encoders
from torchtrt_converters_diffusers.autoencoders import (
    Autoencoder,
    autoencoder_parts,
    tiling_hint,
)
from torchtrt_converters_diffusers.calls import check_inputs, guard_calls
from torchtrt_converters_diffusers.configuration import sizes_of
from torchtrt_converters_diffusers.example import run_example
from torchtrt_converters_diffusers.report import ComponentReport, PipelineReport
from torchtrt_converters_diffusers.saving import SavedPipeline, write_pipeline
from torchtrt_converters_diffusers.sizes import AxesOfArguments, Axis, PipelineSizes

skip_callers("diffusers")  # whose pipelines call the components

_Pipeline = TypeVar("_Pipeline", bound=DiffusionPipeline)
_RULES: Mapping[type, Any] = {
    **denoisers.RULES,
    **controlnets.RULES,
    **text_encoders.RULES,
}
_REFUSED = {**autoencoders.REFUSED, **controlnets.REFUSED}
_NO_RULE = "compile_pipeline has no sizes for its class. Give them with dynamic_shapes"


@dataclass
class _Part:
    """A component, or a module inside of one.

    Attributes:
        path: Its place in the pipeline.
        module: The module; it is followed if engines run it.
        axes: The sizes that it is compiled for.
        reason: Why PyTorch runs it.
    """

    path: str
    module: Any
    axes: AxesOfArguments
    reason: str = ""

    def is_compiled(self) -> bool:
        """Returns whether a program runs it."""
        return hasattr(self.module, "torchtrt") and bool(self.module.torchtrt.programs)


class CompiledPipeline:
    """The sizes and the components of a compiled pipeline, which is the attribute ``torchtrt`` of the pipeline.

    Args:
        pipeline: The pipeline.
        sizes: The sizes.
        parts: The components, and modules inside of them.
        components: The names of the components to compile.
        fallback: Whether calls outside of the ranges are compiled when they come.
    """

    def __init__(
        self,
        pipeline: Any,
        sizes: PipelineSizes,
        parts: Collection[_Part],
        components: Collection[str],
        fallback: bool,
    ) -> None:
        self.sizes = sizes
        self._pipeline, self._components, self._fallback = pipeline, tuple(components), fallback
        self._parts = tuple(parts)

    @property
    def report(self) -> PipelineReport:
        """Which components run on engines now, and why others do not."""
        return PipelineReport(
            tuple(_row(part, _at(self._pipeline, part.path)) for part in self._parts)
        )

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Saves the engines into a folder; ``load_compiled_pipeline`` puts them behind a pipeline.

        Weights and configurations of the pipeline are not part of it: ``save_pretrained`` saves these.

        Raises:
            InputError: No component has engines.
            UnsupportedProgramError: A program holds something that has no form in a file.
            UnwritableFileError: There can be no file in this folder.
        """
        modules = {
            part.path: part.module
            for part in self._parts
            if part.is_compiled() and part.module is _at(self._pipeline, part.path)
        }
        if not modules:
            raise InputError(
                "No component of the pipeline has engines to save. Call the pipeline first: its calls build them."
            )
        write_pipeline(
            SavedPipeline(
                Path(folder),
                type(self._pipeline).__name__,
                self.sizes,
                self._components,
                tuple(modules),
                self._fallback,
            ),
            modules,
        )


def compile_pipeline(
    pipe: _Pipeline,
    *,
    heights: Any = None,
    widths: Any = None,
    batch_sizes: Any = 1,
    num_frames: Any = None,
    sequence_lengths: Any = None,
    guidance: bool = True,
    components: Collection[str] | None = None,
    dynamic_shapes: Mapping[str, Mapping[str, Any]] | None = None,
    compile_now: bool = True,
    example: Mapping[str, Any] | None = None,
    fallback: bool = False,
    **settings: Any,
) -> _Pipeline:
    """Returns a pipeline of diffusers whose components run on TensorRT engines, one engine each for all sizes.

    A range is a number, ``(least, most)`` or ``(least, usual, most)``.

    Args:
        pipe: The pipeline, on the device that is to run it and in its dtype. It goes on as it is, in PyTorch. The
            result is a copy that shares its weights, adapters and scheduler.
        heights: The range of ``height``, in pixels; the pipeline's default if omitted.
        widths: The range of ``width``, in pixels; the pipeline's default if omitted.
        batch_sizes: The range of the images of a call: prompts, times ``num_images_per_prompt``.
        num_frames: The range of ``num_frames``, for videos; the pipeline's default if omitted.
        sequence_lengths: The range of the tokens of a prompt: of ``max_sequence_length``, or of ``prompt_embeds``.
        guidance: Whether calls may have a ``guidance_scale`` that computes with and without the prompt. Calls without
            guidance are possible in any case.
        components: The names of the components to compile; all that can be if omitted.
        dynamic_shapes: For components of other classes, or with other sizes: what ``torchtrt.follow`` takes.
        compile_now: Whether to compile at once, by a call of one step, and not in the first call of the result.
        example: Arguments for this call, which take the place of those that are made up.
        fallback: Whether calls outside of the ranges are compiled when they come, or run in PyTorch. Otherwise they
            raise.
        **settings: Settings of ``torchtrt.follow``, and of ``torchtrt.compile``.

    Returns:
        A pipeline of the same class. Its attribute ``torchtrt`` is a ``CompiledPipeline``, with the ``report``.

    Raises:
        InputError: An argument is of another kind, a range does not fit the pipeline, or a component is offloaded or in
            training mode.
        SettingsError: A setting is unknown or unusable.
        TorchTRTError: A component cannot be compiled.
    """
    check_pipeline("compile_pipeline", pipe)
    check_setting_names(settings, compile_pipeline, torchtrt.follow)
    _check_names(components)
    check_kinds(dynamic_shapes=dynamic_shapes, example=example)
    _check_switches(guidance=guidance, compile_now=compile_now, fallback=fallback)
    sizes = sizes_of(
        pipe,
        heights=heights,
        widths=widths,
        batch_sizes=batch_sizes,
        num_frames=num_frames,
        sequence_lengths=sequence_lengths,
        guidance=guidance,
    )
    compiled: Any
    compiled, parts = assembled(
        pipe,
        sizes,
        components=components,
        dynamic_shapes=dynamic_shapes,
        options={"fallback": fallback, **settings},
    )
    if compile_now and not all(part.reason for part in parts):
        run_example(compiled, sizes, example or {})
        if not all(part.is_compiled() or part.reason for part in parts):
            # Text encoders of transformers prepare themselves in their first call.
            run_example(compiled, sizes, example or {})
    return compiled  # type: ignore[no-any-return]


def assembled(
    pipe: Any,
    sizes: PipelineSizes,
    *,
    components: Collection[str] | None,
    dynamic_shapes: Mapping[str, Mapping[str, Any]] | None,
    options: Mapping[str, Any],
) -> tuple[Any, list[_Part]]:
    """Returns a copy of a pipeline with followed modules, and its parts.

    Args:
        pipe: The pipeline.
        sizes: The sizes to compile for.
        components: The names of the components to compile; all that can be if omitted.
        dynamic_shapes: What ``torchtrt.follow`` takes, by component.
        options: Settings of ``torchtrt.follow`` and ``torchtrt.compile``.

    Raises:
        InputError: As of ``compile_pipeline``.
    """
    declared = dict(dynamic_shapes or {})
    chosen = _chosen(pipe, components, declared)
    compiled: Any = copy.copy(pipe)
    parts = []
    for part in _parts(pipe, sizes, declared):
        parts.append(part)
        if part.path.partition(".")[0] not in chosen:
            _leave(part)
        elif not part.reason:
            _put(compiled, part, declared.get(part.path), options)
    fallback = options["fallback"]
    compiled.torchtrt = CompiledPipeline(compiled, sizes, parts, chosen, fallback)
    _check_calls(compiled, None if fallback else sizes)
    return compiled, parts


def check_pipeline(function: str, pipe: object) -> None:
    """Checks that a function gets a pipeline.

    Raises:
        InputError: It gets something else.
    """
    if not isinstance(pipe, DiffusionPipeline):
        raise InputError(f"{function} takes a pipeline of diffusers, not {kind_of(pipe)}.")


def _check_names(components: Any) -> None:
    if not isinstance(components, Collection | None):
        raise InputError(f"components takes the names of components, not {kind_of(components)}.")


def check_kinds(**arguments: Any) -> None:
    """Checks that arguments are dictionaries or None.

    Raises:
        InputError: One is of another kind.
    """
    for argument, value in arguments.items():
        if not isinstance(value, Mapping | None):
            raise InputError(f"{argument} takes a dictionary, not {kind_of(value)}.")


def _check_switches(**switches: Any) -> None:
    """Checks arguments that are True or False.

    Raises:
        InputError: One is neither.
    """
    for argument, value in switches.items():
        if not isinstance(value, bool):
            raise InputError(f"{argument}={value!r} is neither True nor False.")


def _check_calls(compiled: Any, sizes: PipelineSizes | None) -> None:
    """Lets a pipeline check height and width with its other arguments; with no sizes, only the others."""
    vars(compiled).pop("check_inputs", None)  # of a pipeline that is compiled once more
    check = getattr(compiled, "check_inputs", None)
    if check is not None and sizes is not None:
        compiled.check_inputs = functools.partial(check_inputs, check, sizes)


def _modules(pipe: Any) -> dict[str, Any]:
    """Returns the components of a pipeline that are modules."""
    components = pipe.components.items()
    return {
        name: component for name, component in components if isinstance(component, torch.nn.Module)
    }


def _chosen(
    pipe: Any, components: Collection[str] | None, declared: Mapping[str, Any]
) -> Collection[str]:
    """Returns the names of the components to compile, after a check of what the user named.

    Raises:
        InputError: There are no such components. Or there are sizes for one that is not compiled.
    """
    modules = _modules(pipe)
    if isinstance(components, str):
        components = (components,)
    named = {*(components or ()), *declared}
    unknown = sorted(named - modules.keys())
    if unknown:
        raise InputError(
            f"{type(pipe).__name__} has no module {', '.join(map(repr, unknown))}; it has {', '.join(modules)}."
        )
    if components is None:
        return modules
    if unused := sorted(declared.keys() - set(components)):
        raise InputError(
            f"dynamic_shapes has sizes for {', '.join(map(repr, unused))}, which components= leaves out."
        )
    return components


def _parts(pipe: Any, sizes: PipelineSizes, declared: Mapping[str, Any]) -> Iterator[_Part]:
    """Yields what can be compiled of each component, and what cannot, with the reason.

    Raises:
        InputError: The ranges do not fit a component.
    """
    modules: Mapping[str, Any] = _modules(pipe)
    adapters = [module for module in modules.values() if isinstance(module, controlnets.ADAPTERS)]
    for name, module in modules.items():
        if name in declared:
            if isinstance(module, Autoencoder):
                raise InputError(
                    f"dynamic_shapes names {name!r}, an autoencoder, whose sizes follow from heights and widths."
                )
            yield _Part(name, module, {})
        elif isinstance(module, Autoencoder):
            for inner, axes in autoencoder_parts(module, sizes):
                yield _Part(f"{name}.{inner}", getattr(module, inner), axes)
        elif adapters and isinstance(module, UNet2DConditionModel):
            features = controlnets.adapter_features(module, adapters[0], sizes)
            yield _Part(name, module, {**denoisers.unet(module, sizes), **features})
        elif isinstance(module, controlnets.SEVERAL):
            for number, net in enumerate(cast("Any", module).nets):
                yield _ruled(f"{name}.nets.{number}", net, sizes)
        else:
            yield _ruled(name, module, sizes)


def _ruled(path: str, module: Any, sizes: PipelineSizes) -> _Part:
    """Returns a module with the sizes that the rule of its class gives, or with the reason why there are none."""
    rule = next((rule for kind, rule in _RULES.items() if isinstance(module, kind)), None)
    if rule is None:
        reasons = (reason for kind, reason in _REFUSED.items() if isinstance(module, kind))
        return _Part(path, module, {}, next(reasons, _NO_RULE))
    return _Part(path, module, rule(module, sizes))


def _put(compiled: Any, part: _Part, declared: Any, options: Mapping[str, Any]) -> None:
    """Puts a followed module in the place of a part of a pipeline.

    Raises:
        InputError: The ranges do not fit it, or it is not ready to be compiled.
    """
    _check_ready(part)
    for axis in _axes(part.axes):
        axis.check(part.path)
    shapes = _ranges(part.axes) if declared is None else declared
    module = controlnets.keeping_features(part.module, part.axes)
    part.module = torchtrt.follow(module, dynamic_shapes=shapes, **options)
    name, _, inner = part.path.partition(".")
    owner = part.module
    if inner:
        owner = _own_copy(getattr(compiled, name))
        *between, last = inner.split(".")
        inside = owner
        for step in between:
            inside._modules[step] = _own_copy(inside._modules[step])
            inside = inside._modules[step]
        inside._modules[last] = part.module
    checked = {} if options["fallback"] else part.axes
    guard_calls(part.module, part.path, checked, lambda: tiling_hint(getattr(compiled, name)))
    setattr(compiled, name, owner)


def _leave(part: _Part) -> None:
    """Leaves a part as it is: in PyTorch, or on the engines that it has."""
    part.axes = {}
    if not hasattr(part.module, "torchtrt"):
        part.reason = "components= leaves it out"


def _own_copy(original: Any) -> Any:
    """Returns a component with the modules of the original, so that others may take their place."""
    component = copy.copy(original)
    vars(component)["_modules"] = dict(component._modules)
    return component


def _check_ready(part: _Part) -> None:
    """Checks that calls of a component can be engines.

    Raises:
        InputError: They cannot.
    """
    if part.module.training:
        raise InputError(
            f"{part.path!r} of the pipeline is in training mode. Call its method eval() first."
        )
    for module in part.module.modules():
        if hasattr(module, "_hf_hook"):
            raise InputError(
                f"{part.path!r} of the pipeline has a hook of accelerate ({type(module._hf_hook).__name__}), which "
                "moves weights between devices. Engines hold their weights. Remove the hooks with "
                "pipe.remove_all_hooks(), or leave the component out with components=."
            )


def _axes(axes: Mapping[Any, Any]) -> Iterator[Axis]:
    for value in axes.values():
        if isinstance(value, Axis):
            yield value
        for nested in value if isinstance(value, list) else [value]:
            if isinstance(nested, Mapping):
                yield from _axes(nested)


def _ranges(axes: Mapping[Any, Any]) -> dict[Any, Any]:
    """Returns sizes as ``torchtrt.follow`` takes them."""

    def range_of(value: Any) -> Any:
        if isinstance(value, list):
            return [_ranges(nested) for nested in value]
        return tuple(value.sizes) if isinstance(value, Axis) else _ranges(value)

    return {key: range_of(value) for key, value in axes.items()}


def _at(pipeline: Any, path: str) -> Any:
    """Returns the module at a place of a pipeline; None if there is none."""
    module = pipeline
    for step in path.split("."):
        module = getattr(module, step, None)
    return module


def _row(part: _Part, current: Any) -> ComponentReport:
    """Returns the row of a part, with the module that is at its place now."""
    if current is not part.module:
        part = _Part(part.path, current, {})
        if not part.is_compiled():
            part.reason = (
                "the pipeline no longer has it"
                if current is None
                else "another module is in its place. Call compile_pipeline for a pipeline with that one"
            )
    programs = tuple(part.module.torchtrt.programs) if part.is_compiled() else ()
    reason = part.reason
    if not reason and not programs:
        reason = "it has not been called; its first call compiles it"
    sizes = {axis.argument: axis.bounds() for axis in _axes(part.axes)}
    return ComponentReport(part.path, type(part.module).__name__, programs, sizes, reason)
