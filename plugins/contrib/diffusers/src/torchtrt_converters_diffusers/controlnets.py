"""The sizes of ControlNets, and of what denoisers take of them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from diffusers import (
    ControlNetModel,
    FluxControlNetModel,
    FluxMultiControlNetModel,
    MultiControlNetModel,
    SD3ControlNetModel,
    SD3MultiControlNetModel,
    T2IAdapter,
)
from diffusers.models.adapter import MultiAdapter

from torchtrt_converters_diffusers.sizes import Axes, AxesOfArguments, Axis, PipelineSizes


def unet_stages(model: Any, rows: Axis, sizes: PipelineSizes) -> AxesOfArguments:
    """Returns the sizes of a ControlNet's results, which are those of the UNet's stages on the way down."""
    stages = model.num_upsamplers + 1
    layers = model.config.layers_per_block
    layers_per_stage = [layers] * stages if isinstance(layers, int) else list(layers)
    levels = [0]
    for stage, count in enumerate(layers_per_stage):
        levels += [stage] * count + [stage + 1] * (stage + 1 < stages)
    height, width = sizes.latent_height(), sizes.latent_width()

    def at(level: int) -> Axes:
        return {0: rows, 2: height.halved(level), 3: width.halved(level)}

    return {
        "down_block_additional_residuals": [at(level) for level in levels],
        "mid_block_additional_residual": at(stages - 1),
    }


def control_net(model: Any, sizes: PipelineSizes) -> AxesOfArguments:
    """Returns the sizes of a ControlNet of Stable Diffusion and Stable Diffusion XL, which reads images."""
    step = 2 ** (len(model.config.block_out_channels) - 1)
    rows, (height, width) = sizes.guided_images(), sizes.pixels()
    return {
        "sample": {0: rows, 2: sizes.latent_height(step), 3: sizes.latent_width(step)},
        "encoder_hidden_states": sizes.texts(rows),
        "controlnet_cond": {0: rows, 2: height, 3: width},
        "added_cond_kwargs": {"text_embeds": {0: rows}, "time_ids": {0: rows}},
    }


def flux_control_net(_: Any, sizes: PipelineSizes) -> AxesOfArguments:
    """Returns the sizes of a ControlNet of FLUX, which reads latents of images in the form of the denoiser's."""
    patches = {0: sizes.images(), 1: sizes.patches(2)}
    return {**sizes.flux_tokens(), "controlnet_cond": patches}


def sd3_control_net(model: Any, sizes: PipelineSizes) -> AxesOfArguments:
    """Returns the sizes of a ControlNet of Stable Diffusion 3, which reads latents of images."""
    step = model.config.patch_size
    rows = sizes.guided_images()
    latents = {0: rows, 2: sizes.latent_height(step), 3: sizes.latent_width(step)}
    return {
        "hidden_states": latents,
        "controlnet_cond": latents,
        "encoder_hidden_states": sizes.texts(rows, sizes.first_tokens),
        "pooled_projections": {0: rows},
        "timestep": {0: rows},
    }


RULES: Mapping[type, Any] = {
    ControlNetModel: control_net,
    FluxControlNetModel: flux_control_net,
    SD3ControlNetModel: sd3_control_net,
}
SEVERAL = (MultiControlNetModel, SD3MultiControlNetModel)
"""The classes that call each of their ``nets`` with a scale, and add the results."""
ADAPTERS = (T2IAdapter, MultiAdapter)
"""The classes of T2I-Adapters."""
REFUSED: Mapping[type, str] = {
    FluxMultiControlNetModel: "it calls ControlNets in ways that depend on whether they are a union. Follow each: "
    "pipe.controlnet.nets[0] = torchtrt.follow(pipe.controlnet.nets[0])",
    **dict.fromkeys(ADAPTERS, "it runs once for all steps"),
}
"""The reasons of modules that are not compiled."""
_FEATURES = "down_intrablock_additional_residuals"
"""The parameter of a UNet for the features of a T2I-Adapter."""


def adapter_features(model: Any, adapter: Any, sizes: PipelineSizes) -> AxesOfArguments:
    """Returns the sizes of the features of a T2I-Adapter, which stages of a UNet add on the way down.

    A stage with attention adds them before it halves the sizes, and another one after that.

    Args:
        model: The UNet.
        adapter: ``T2IAdapter``, or ``MultiAdapter``, which adds the features of several.
        sizes: The pipeline's sizes.
    """
    first: Any = adapter.adapters[0] if isinstance(adapter, MultiAdapter) else adapter
    last = len(model.down_blocks) - 1
    levels = [
        stage if getattr(block, "has_cross_attention", False) else min(stage + 1, last)
        for stage, block in enumerate(model.down_blocks)
    ]
    rows, height, width = sizes.guided_images(), sizes.latent_height(), sizes.latent_width()
    count = len(first.adapter.body)
    return {
        _FEATURES: [
            {0: rows, 2: height.halved(level), 3: width.halved(level)}
            for level in [*levels, last][:count]  # the last may be that of the middle
        ]
    }


def keeping_features(model: Any, axes: AxesOfArguments) -> Any:
    """Returns a UNet that leaves a T2I-Adapter's features in their list; others as they are.

    UNets remove them, which a program does not repeat. Pipelines give a new list in each step. The result shares all
    attributes with the UNet.

    Args:
        model: A component.
        axes: The sizes that it is compiled for.
    """
    if _FEATURES not in axes:
        return model
    kind: Any = type(model)

    @functools.wraps(kind.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        adapter_features = kwargs.get(_FEATURES)
        features = {} if adapter_features is None else {_FEATURES: list(adapter_features)}
        return kind.forward(self, *args, **{**kwargs, **features})

    own: Any = type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})
    kept = own.__new__(own)
    object.__setattr__(kept, "__dict__", vars(model))
    return kept
