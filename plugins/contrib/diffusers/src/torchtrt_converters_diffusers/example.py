"""The call of a pipeline that compiles its components: one step for the minimum sizes."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any

import torch

from torchtrt.errors import InputError, TorchTRTError
from torchtrt_converters_diffusers.sizes import PipelineSizes


def run_example(pipe: Any, sizes: PipelineSizes, example: Mapping[str, Any]) -> None:
    """Calls a pipeline once, so that its components are compiled.

    The call changes neither the pipeline's scheduler nor PyTorch's random numbers.

    Args:
        pipe: The pipeline.
        sizes: The sizes that it is compiled for.
        example: Arguments of the call; others are made up.

    Raises:
        InputError: The pipeline does not take the arguments.
        TorchTRTError: A component cannot be compiled.
    """
    pipe = copy.copy(pipe)
    if getattr(pipe, "scheduler", None) is not None:
        pipe.scheduler = copy.deepcopy(pipe.scheduler)
    pipe._progress_bar_config = {"disable": True}
    arguments = {**example_arguments(pipe, sizes, example), **example}
    try:
        with torch.random.fork_rng(), torch.no_grad():
            pipe(**arguments)
    except TorchTRTError:
        raise
    except Exception as error:
        raise InputError(
            f"{type(pipe).__name__} cannot be compiled ahead: it raised {type(error).__name__} ({error}) when it was "
            f"called with {', '.join(sorted(arguments))}. Give example={{...}}, the arguments of a call that works, "
            "or compile_now=False, which compiles in the first call."
        ) from error


def example_arguments(
    pipe: Any, sizes: PipelineSizes, example: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns arguments for a pipeline's call with the minimum sizes, those of its parameters that are known."""
    parameters = inspect.signature(type(pipe).__call__).parameters
    batch, height, width = sizes.batch.least, sizes.height.least, sizes.width.least
    image = torch.full((batch, 3, height, width), 0.5)
    arguments: dict[str, Any] = {
        "height": height,
        "width": width,
        "num_inference_steps": 1,
        "strength": 1.0,
        "output_type": "pt",
        "image": image,
        "control_image": image,
        "mask_image": torch.ones(batch, 1, height, width),
        "generator": torch.Generator().manual_seed(0),
    }
    if sizes.frames is not None:
        arguments["num_frames"] = sizes.frames.least
    if sizes.text is not None and "max_sequence_length" in parameters:
        arguments["max_sequence_length"] = sizes.text.least
    if "prompt_embeds" not in example:
        arguments["prompt"] = [""] * batch
    return {name: value for name, value in arguments.items() if name in parameters}
