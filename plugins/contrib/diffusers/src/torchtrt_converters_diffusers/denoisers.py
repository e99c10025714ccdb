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

from torchtrt_converters_diffusers.controlnets import unet_stages
from torchtrt_converters_diffusers.sizes import AxesOfArguments, PipelineSizes


def unet(model: Any, sizes: PipelineSizes) -> AxesOfArguments:
    """Returns the sizes of the UNet of Stable Diffusion and Stable Diffusion XL.

    Each of its stages halves height and width, so engines take sizes that come out even in all of them.
    """
    step = 2**model.num_upsamplers
    rows = sizes.guided_images()
    return {
        "sample": {0: rows, 2: sizes.latent_height(step), 3: sizes.latent_width(step)},
        "encoder_hidden_states": sizes.texts(rows),
        "timestep_cond": {0: rows},
        "added_cond_kwargs": {
            "text_embeds": {0: rows},
            "time_ids": {0: rows},
            "image_embeds": [{0: rows}] * _ip_adapters(model),
        },
        **unet_stages(model, rows, sizes),
    }


def _ip_adapters(model: Any) -> int:
    """Returns the number of IP-Adapters of a UNet. Each reads embeddings of an image."""
    projections = getattr(model.encoder_hid_proj, "image_projection_layers", None)
    return 0 if projections is None else len(projections)


def sd3(model: Any, sizes: PipelineSizes) -> AxesOfArguments:
    """Returns the sizes of the transformer of Stable Diffusion 3, which reads CLIP's tokens before T5's."""
    step = model.config.patch_size
    rows = sizes.guided_images()
    return {
        "hidden_states": {0: rows, 2: sizes.latent_height(step), 3: sizes.latent_width(step)},
        "encoder_hidden_states": sizes.texts(rows, sizes.first_tokens),
        "pooled_projections": {0: rows},
        "timestep": {0: rows},
        "block_controlnet_hidden_states": [{0: rows, 1: sizes.patches(step)}]
        * len(model.transformer_blocks),
    }


def flux(model: Any, sizes: PipelineSizes) -> AxesOfArguments:
    """Returns the sizes of FLUX's transformer, whose tokens are squares of 2 by 2 latents."""
    tokens = sizes.flux_tokens()
    return {
        **tokens,
        "controlnet_block_samples": [tokens["hidden_states"]] * len(model.transformer_blocks),
        "controlnet_single_block_samples": [tokens["hidden_states"]]
        * len(model.single_transformer_blocks),
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
        "encoder_hidden_states": sizes.texts(rows),
        "encoder_hidden_states_image": {0: rows},
        "timestep": {0: rows},
    }


RULES: Mapping[type, Any] = {
    UNet2DConditionModel: unet,
    SD3Transformer2DModel: sd3,
    FluxTransformer2DModel: flux,
    WanTransformer3DModel: wan,
}
