"""The sizes of a pipeline, from its configuration and from what a user asks for."""

from __future__ import annotations

import inspect
from typing import Any

from torchtrt.errors import InputError
from torchtrt_converters_diffusers.sizes import PipelineSizes, Range, as_range

_DENOISERS = ("unet", "transformer", "transformer_2")


def sizes_of(
    pipe: Any,
    *,
    heights: Any,
    widths: Any,
    batch_sizes: Any,
    num_frames: Any,
    sequence_lengths: Any,
    guidance: bool,
) -> PipelineSizes:
    """Returns the sizes to compile a pipeline for. A size that is None is the one of a call without this argument.

    Raises:
        InputError: A range is unusable, or the pipeline does not give a size that is None.
    """
    parameters = inspect.signature(type(pipe).__call__).parameters
    scale = _first(pipe, "vae_scale_factor", "vae_scale_factor_spatial") or 8
    has_frames = "num_frames" in parameters
    if num_frames is not None and not has_frames:
        raise InputError(f"num_frames is for videos, and {type(pipe).__name__} makes none.")
    frame_scale = _first(pipe, "vae_scale_factor_temporal") or 1
    height, width = _default_size(pipe, parameters, scale)
    text = _default(parameters, "max_sequence_length")
    has_length = isinstance(text, int)
    sides = {
        setting: _range(pipe, bounds, default, setting)
        for setting, bounds, default in (("heights", heights, height), ("widths", widths, width))
    }
    for setting, side in sides.items():
        _check_steps(pipe, setting, side, scale)
    frames = None
    if has_frames:
        frames = _range(pipe, num_frames, _default(parameters, "num_frames"), "num_frames")
        _check_steps(pipe, "num_frames", frames, frame_scale, 1)
    return PipelineSizes(
        height=sides["heights"],
        width=sides["widths"],
        batch=as_range(batch_sizes, "batch_sizes"),
        frames=frames,
        text=_text(pipe, sequence_lengths, text if has_length else _clip_tokens(pipe)),
        text_argument="max_sequence_length" if has_length else "the tokens of prompt_embeds",
        first_tokens=_clip_tokens(pipe) or 0,
        guided=guidance,
        scale=scale,
        frame_scale=frame_scale,
    )


def _check_steps(pipe: Any, setting: str, sizes: Range, step: int, rest: int = 0) -> None:
    """Checks that the ends of a range are sizes that the autoencoder takes.

    Raises:
        InputError: They are not.
    """
    if getattr(pipe, "vae", None) is not None and any(size % step != rest % step for size in sizes):
        least, _, most = sizes
        more = f" and {rest} more" if rest else ""
        raise InputError(
            f"{setting} gives {least} to {most}, but {type(pipe).__name__} takes multiples of {step}{more} only. Give "
            "such a range."
        )


def _range(pipe: Any, bounds: Any, default: Any, setting: str) -> Range:
    if bounds is None and not isinstance(default, int):
        raise InputError(
            f"{type(pipe).__name__} does not give a default size. Give {setting}=(least, most)."
        )
    return as_range(default if bounds is None else bounds, setting)


def _text(pipe: Any, bounds: Any, default: int | None) -> Range | None:
    if bounds is not None:
        return as_range(bounds, "sequence_lengths")
    return None if default is None else Range(default, default, default)


def _clip_tokens(pipe: Any) -> int | None:
    """Returns the number of tokens of CLIP's texts."""
    length = getattr(pipe, "tokenizer_max_length", None)
    if length is not None:
        return int(length)
    tokenizer = getattr(pipe, "tokenizer", None)
    return getattr(tokenizer, "model_max_length", None)


def _default_size(pipe: Any, parameters: Any, scale: int) -> tuple[Any, Any]:
    """Returns height and width of images of a call that gives none."""
    height, width = _default(parameters, "height"), _default(parameters, "width")
    if isinstance(height, int) and isinstance(width, int):
        return height, width
    size = getattr(pipe, "default_sample_size", None)
    for name in _DENOISERS:
        config = getattr(getattr(pipe, name, None), "config", None)
        size = size or getattr(config, "sample_size", None)
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return (height and height * scale), (width and width * scale)


def _default(parameters: Any, name: str) -> Any:
    return parameters[name].default if name in parameters else None


def _first(pipe: Any, *names: str) -> Any:
    return next((value for name in names if (value := getattr(pipe, name, None))), None)
