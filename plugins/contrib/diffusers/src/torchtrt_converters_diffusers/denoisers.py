"""The sizes of denoisers: which dimensions of their arguments follow from a pipeline's sizes, by class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from diffusers import (
    FluxTransformer2DModel,
    SD3Transformer2DModel,
    UNet2DConditionModel,
    WanTransformer3DModel,
)

from torchtrt_converters_diffusers.sizes import Axes, Axis, PipelineSizes

AxesOfArguments = dict[str, Any]
"""For parameters of ``forward``, the dimensions that vary, or a dictionary of these."""


def unet(model: Any, sizes: PipelineSizes) -> AxesOfArguments:
    """Returns the sizes of the UNet of Stable Diffusion and Stable Diffusion XL.

    Each of its stages halves height and width, so engines take sizes that come out even in all of them.
    """
    step = 2**model.num_upsamplers
    rows = sizes.guided_images()
    return {
        "sample": {0: rows, 2: sizes.latent_height(step), 3: sizes.latent_width(step)},
        "encoder_hidden_states": _text(rows, sizes.tokens()),
        "timestep_cond": {0: rows},
        "added_cond_kwargs": {"text_embeds": {0: rows}, "time_ids": {0: rows}},
        **_control(model, rows, sizes),
    }


def _control(model: Any, rows: Axis, sizes: PipelineSizes) -> AxesOfArguments:
    """Returns the sizes of a ControlNet's results, which are those of the UNet's stages on the way down."""
    stages = model.num_upsamplers + 1
    layers = model.config.layers_per_block
    each = [layers] * stages if isinstance(layers, int) else list(layers)
    levels = [0]
    for stage, count in enumerate(each):
        levels += [stage] * count + [stage + 1] * (stage + 1 < stages)
    height, width = sizes.latent_height(), sizes.latent_width()

    def at(level: int) -> Axes:
        return {0: rows, 2: height.halved(level), 3: width.halved(level)}

    return {
        "down_block_additional_residuals": [at(level) for level in levels],
        "mid_block_additional_residual": at(stages - 1),
    }


def sd3(model: Any, sizes: PipelineSizes) -> AxesOfArguments:
    """Returns the sizes of the transformer of Stable Diffusion 3, which reads CLIP's tokens before T5's."""
    step = model.config.patch_size
    rows = sizes.guided_images()
    return {
        "hidden_states": {0: rows, 2: sizes.latent_height(step), 3: sizes.latent_width(step)},
        "encoder_hidden_states": _text(rows, sizes.tokens(sizes.first_tokens)),
        "pooled_projections": {0: rows},
        "timestep": {0: rows},
    }


def flux(_: Any, sizes: PipelineSizes) -> AxesOfArguments:
    """Returns the sizes of FLUX's transformer, whose tokens are squares of 2 by 2 latents."""
    rows = sizes.images()
    side = 2 * sizes.scale
    patches = Axis(
        sizes.height.over(side).product(sizes.width.over(side)),
        "height × width",
        "heights × widths",
        side**2,
    )
    text = sizes.tokens()
    return {
        "hidden_states": {0: rows, 1: patches},
        "encoder_hidden_states": _text(rows, text),
        "pooled_projections": {0: rows},
        "timestep": {0: rows},
        "guidance": {0: rows},
        "img_ids": {0: patches},
        "txt_ids": {0: text} if text else {},
    }


def wan(model: Any, sizes: PipelineSizes) -> AxesOfArguments:
    """Returns the sizes of Wan's transformer, which takes videos."""
    frames, height, width = model.config.patch_size
    rows = sizes.images()
    return {
        "hidden_states": {
            0: rows,
            2: sizes.latent_frames(frames),
            3: sizes.latent_height(height),
            4: sizes.latent_width(width),
        },
        "encoder_hidden_states": _text(rows, sizes.tokens()),
        "encoder_hidden_states_image": {0: rows},
        "timestep": {0: rows},
    }


def _text(rows: Axis, tokens: Axis | None) -> Axes:
    return {0: rows, 1: tokens} if tokens else {0: rows}


RULES: Mapping[type, Any] = {
    UNet2DConditionModel: unet,
    SD3Transformer2DModel: sd3,
    FluxTransformer2DModel: flux,
    WanTransformer3DModel: wan,
}
