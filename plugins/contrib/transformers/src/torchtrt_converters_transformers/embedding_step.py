"""The language model of a model with images, as a function of embeddings: what engines are built from."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

import torchtrt
from torchtrt_converters_transformers.attention import StepCache, add_features
from torchtrt_converters_transformers.step import (
    ImageInputs,
    Step,
    check_logits,
    dynamic_input,
    selected,
    sharing_copy,
)


def why_not(model: PreTrainedModel) -> str | None:
    """Returns why the language model of a model with images cannot be compiled; None if it can."""
    language = getattr(model.base_model, "language_model", None)
    if not isinstance(language, PreTrainedModel) or model.get_output_embeddings() is None:
        return "it has no language_model with an output layer behind it"
    if not hasattr(model.base_model, "get_image_features"):
        return "its layers read images in another way than as embeddings of tokens"
    if (
        takes_types(model)
        and "token_type_ids" not in inspect.signature(_masks_of(model)).parameters
    ):
        return (
            "some of its tokens read each other in both directions, and its class has no create_masks_for_generate "
            "that says which"
        )
    return None


def takes_types(model: Any) -> bool:
    """Returns whether a model takes the types of tokens, which determine what reads in both directions."""
    return "token_type_ids" in inspect.signature(model.forward).parameters


def _masks_of(model: Any) -> Any:
    return getattr(type(model), "create_masks_for_generate", lambda: None)


def mutual_tokens(model: Any, types: Tensor, width: int) -> Tensor:
    """Returns which tokens read each other in both directions: booleans ``(batch, new, new)``.

    Args:
        model: A model that takes the types of tokens, or its class with engines.
        types: ``(batch, new)``.
        width: The width of embeddings.
    """
    config = copy.deepcopy(model.config.get_text_config())
    config._attn_implementation = "eager"  # whose masks are tensors in any case
    masks = _masks_of(model)(
        config=config,
        inputs_embeds=torch.empty((*types.shape, width), device=types.device),
        attention_mask=None,
        past_key_values=None,
        position_ids=None,
        token_type_ids=types,
    )
    mask = masks["full_attention"] if isinstance(masks, dict) else masks
    ahead: Tensor = mask[:, 0].eq(0).triu(1)
    return ahead | ahead.transpose(1, 2)


class EmbeddingStep(Step):
    """Reads the embeddings of new tokens, some of them of an image.

    Args:
        model: A model with a language model inside. It is left as it is.
        max_length: The maximum number of tokens of a sequence.
    """

    def __init__(self, model: PreTrainedModel, max_length: int) -> None:
        super().__init__(model, max_length)
        self.head: Any = self.model.get_output_embeddings()
        self._images = ImageInputs(takes_types(model), _layers_with_features(model))
        self.model = cast("Any", self.model.base_model).language_model
        rope = getattr(self.model.config, "rope_parameters", None) or {}
        self.position_axes = 3 if "mrope_section" in rope else 1
        for number in range(self.images.features):
            layer: torch.nn.Module = cast("Any", self.model).layers[number]
            layer.register_forward_hook(functools.partial(_with_features, number))

    @property
    def images(self) -> ImageInputs:
        """The inputs that belong to images, besides embeddings."""
        return self._images

    def read(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        cache: StepCache,
        keep: Tensor | None = None,
    ) -> Tensor:
        """Returns the logits of some of the new tokens, which are ids or embeddings ``(batch, new, width)``."""
        if not input_ids.is_floating_point():
            input_ids = self.model.get_input_embeddings()(input_ids)
        output = self.run(cache, inputs_embeds=input_ids, position_ids=position_ids)
        logits: Tensor = self.head(selected(output.last_hidden_state, keep))
        return logits

    def inputs(self, batch: tuple[int, ...], new: tuple[int, ...]) -> list[torchtrt.Input]:
        """Returns the ranges of embeddings and of positions, which may have axes of time, height and width."""
        weight: Any = self.model.get_input_embeddings().weight
        axes = (3,) if self.position_axes == 3 else ()
        return [
            dynamic_input((batch, new, weight.shape[1]), weight.dtype),
            dynamic_input((*axes, batch, new), torch.int64),
        ]

    def named_inputs(
        self, batch: tuple[int, ...], new: tuple[int, ...]
    ) -> dict[str, torchtrt.Input]:
        """Returns the ranges of what is read of images besides embeddings."""
        weight: Any = self.model.get_input_embeddings().weight
        return self.images.ranges(batch, new, weight.shape[1], weight.dtype)


def _layers_with_features(model: Any) -> int:
    """Returns how many layers of the language model add features of images."""
    language = model.base_model.language_model
    if "deepstack_visual_embeds" not in inspect.signature(language.forward).parameters:
        return 0
    return len(model.config.vision_config.deepstack_visual_indexes)


def _with_features(number: int, _module: Any, _arguments: Any, output: Any) -> Any:
    """Adds to the states behind a layer; a hook."""
    if isinstance(output, tuple):
        return (add_features(number, output[0]), *output[1:])
    return add_features(number, output)


def uncapped_copy(model: Any) -> Any:
    """Returns a copy of a model whose logits are those of its output layer.

    The class of a model with images may cap the logits of its language model, which is then left to the class.
    """
    copied: Any = sharing_copy(model)
    text = copied.config.get_text_config()
    if getattr(text, "final_logit_softcapping", None) is not None:
        text.final_logit_softcapping = None
    return copied


def try_images(model: Any, step: EmbeddingStep) -> None:
    """Runs a prompt with an image's tokens through the step and through the model itself.

    Raises:
        Refusal: The step does not compute what the model does.
    """
    if not step.images.mutual and not step.images.features:
        return
    itself = uncapped_copy(model)
    language = itself.base_model.language_model
    ids = (torch.arange(12, device=model.device) * 7 + 3).reshape(2, 6)
    ids = ids.remainder(model.config.get_text_config().vocab_size)
    types = torch.tensor([[0, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1]], device=model.device)
    ones, positions = torch.ones_like(ids), torch.arange(6, device=model.device).expand(2, -1)
    with torch.no_grad():
        embedded = language.get_input_embeddings()(ids)
        arguments: dict[str, Any] = {"attention_mask": ones, "position_ids": positions}
        arguments |= {"past_key_values": DynamicCache(config=language.config), "use_cache": True}
        if step.images.mutual:
            wanted = itself(input_ids=ids, token_type_ids=types, **arguments).logits
        else:
            generator = torch.Generator().manual_seed(0)
            image_tokens = types.bool()
            size = (step.images.features, int(image_tokens.sum()), embedded.shape[-1])
            features = list(torch.randn(size, generator=generator).to(embedded))
            arguments |= {"visual_pos_masks": image_tokens, "deepstack_visual_embeds": features}
            wanted = step.head(language(inputs_embeds=embedded, **arguments).last_hidden_state)
        cache = step.cache(ones.bool())
        if step.images.mutual:
            cache.mutual = mutual_tokens(model, types, embedded.shape[-1])
        else:
            cache.features = placed(features, image_tokens, embedded)
        check_logits(step.read(ids, positions, cache), wanted[:, -1:], embedded.dtype)


def placed(features: Sequence[Tensor], image_tokens: Tensor, embedded: Tensor) -> Tensor:
    """Returns features of images at the places of their tokens, and zeros elsewhere.

    Args:
        features: For each layer ``(tokens of images, width)``.
        image_tokens: Booleans ``(batch, new)``: the tokens of images.
        embedded: ``(batch, new, width)``.
    """
    return torch.stack(
        [
            torch.zeros_like(embedded).masked_scatter(image_tokens[..., None], feature.to(embedded))
            for feature in features
        ]
    )
