"""Counts the layers of small models of libraries, with and without the layers that only a current TensorRT has.

``python -m tools.current_layers`` prints a table for docs/current-layers.md, and ``--only PATTERN`` chooses models. The
configurations are small, with random weights: a layer of the model has the same network, whatever its width.
"""

from __future__ import annotations

import argparse
import importlib
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import torchtrt
from torchtrt.tensorrt import Capability
from torchtrt_runtime.reports.report import CompilationReport

TENSORRTS = ("reference@11.4.0", "rtx")
LAYERS = tuple(
    capability
    for capability in Capability
    if capability.group == "layers" and capability.since.startswith("TensorRT 1")
)
COUNTED = (Capability.ATTENTION, Capability.ROTARY_EMBEDDING, Capability.NORMALIZATION_V2)
"""The columns of the table."""
TEXT = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
"""The configuration of each language model."""
FLUX = {
    "patch_size": 1,
    "in_channels": 4,
    "num_layers": 2,
    "num_single_layers": 2,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "joint_attention_dim": 32,
    "pooled_projection_dim": 32,
    "axes_dims_rope": [4, 4, 8],
    "guidance_embeds": True,
}
UNET = {
    "sample_size": 8,
    "in_channels": 4,
    "out_channels": 4,
    "block_out_channels": (8, 16),
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
    "norm_num_groups": 4,
    "cross_attention_dim": 16,
    "attention_head_dim": 4,
    "layers_per_block": 1,
}


class Called(nn.Module):
    """A model with tensors in and out.

    Args:
        model: The model.
        call: Returns its result for the tensors.
    """

    def __init__(self, model: nn.Module, call: Callable[..., Any]) -> None:
        super().__init__()
        self.model, self.call = model, call

    def forward(self, *inputs: Tensor) -> Any:
        """Calls the model."""
        return self.call(self.model, *inputs)


@dataclass(frozen=True)
class CurrentModel:
    """A model of a library.

    Attributes:
        library: The library.
        model: The name of its class.
        settings: Its configuration.
        inputs: Returns its inputs.
        call: Calls it with them.
        config: The name of the class of the configuration; the model itself takes it if empty.
    """

    library: str
    model: str
    settings: dict[str, Any]
    inputs: Callable[[], tuple[Tensor, ...]]
    call: Callable[..., Any]
    config: str = ""

    def build(self) -> nn.Module:
        """Returns the model with random weights, the same every time."""
        library = importlib.import_module(self.library)
        torch.manual_seed(0)
        settings = self.settings
        made = getattr(library, self.model)
        made_of = getattr(library, self.config)(**settings) if self.config else None
        model = made(**settings) if made_of is None else made(made_of)
        return Called(model, self.call).eval()


def prompts(batch: int = 2, length: int = 8) -> tuple[Tensor, Tensor]:
    """Returns token ids, and a mask that hides up to three tokens of padding on the left."""
    torch.manual_seed(length)
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[0, : min(3, length - 1)] = 0
    return torch.randint(1, 64, (batch, length)), mask


def _logits(model: Callable[..., Any], ids: Tensor, mask: Tensor) -> Any:
    return model(input_ids=ids, attention_mask=mask, use_cache=False).logits


def _flux_inputs() -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    images, words = torch.randint(0, 4, (16, 3)).float(), torch.zeros(8, 3)
    pooled, step, guidance = torch.randn(1, 32), torch.tensor([1.0]), torch.tensor([3.5])
    return torch.randn(1, 16, 4), torch.randn(1, 8, 32), pooled, step, images, words, guidance


def _flux(model: Callable[..., Any], *inputs: Tensor) -> Any:
    """Calls a transformer of Flux with its inputs by name, and returns the noise that it predicts."""
    hidden, words, pooled, step, image_places, word_places, guidance = inputs
    return model(
        hidden_states=hidden,
        encoder_hidden_states=words,
        pooled_projections=pooled,
        timestep=step,
        img_ids=image_places,
        txt_ids=word_places,
        guidance=guidance,
        return_dict=False,
    )[0]


def _unet_inputs() -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    return torch.randn(1, 4, 8, 8), torch.tensor([1.0]), torch.randn(1, 5, 16)


def _unet(model: Callable[..., Any], *inputs: Tensor) -> Any:
    return model(*inputs, return_dict=False)[0]


def _language_model(name: str, **extra: Any) -> CurrentModel:
    model, config = f"{name}ForCausalLM", f"{name}Config"
    return CurrentModel("transformers", model, {**TEXT, **extra}, prompts, _logits, config)


MODELS = {
    "Llama": _language_model("Llama"),
    "Qwen2": _language_model("Qwen2"),
    "Qwen3": _language_model("Qwen3", head_dim=16),
    "Mixtral": _language_model("Mixtral", num_local_experts=4),
    "FLUX": CurrentModel("diffusers", "FluxTransformer2DModel", FLUX, _flux_inputs, _flux),
    "Stable Diffusion": CurrentModel(
        "diffusers", "UNet2DConditionModel", UNET, _unet_inputs, _unet
    ),
}
"""The models, by the names that the table has."""


def report_of(
    model: nn.Module, inputs: tuple[Tensor, ...], disabled: Iterable[Capability] = ()
) -> CompilationReport:
    """Returns the report of a model that is one engine on the TensorRT in use."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torchtrt.compile(
            model,
            inputs,
            require_full_compilation=True,
            truncate_double=True,
            disabled_capabilities=disabled,
        )
    return compiled.report


def rows(names: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yields for each model and TensorRT the numbers of layers without and with those of current TensorRT."""
    for name in names:
        model, inputs = MODELS[name].build(), MODELS[name].inputs()
        for tensorrt in TENSORRTS:
            with torchtrt.use_tensorrt(tensorrt):
                reports = [report_of(model, inputs, off) for off in (LAYERS, ())]
            totals = [sum(block.layers for block in report.blocks) for report in reports]
            used = {row.capability: len(row.nodes) for row in reports[1].layers}
            counts = (used.get(capability.name, 0) for capability in COUNTED)
            yield name, tensorrt.partition("@")[0], *map(str, (*totals, *counts))


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.current_layers", description=__doc__)
    parser.add_argument("--only", default="", help="a regular expression: the models to count")
    options = parser.parse_args()
    chosen = [name for name in MODELS if re.search(options.only, name)]
    print("| model | TensorRT | layers without | layers with | attention | rotary | groups |")
    print("|---|---|---|---|---|---|---|")
    for row in rows(chosen):
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
