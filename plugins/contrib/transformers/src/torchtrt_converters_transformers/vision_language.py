"""Models that read images besides text: a program that reads embeddings, and the compiled model."""

from __future__ import annotations

import functools
import inspect
import os
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast, BaseModelOutputWithPooling

import torchtrt
from torchtrt.errors import InputError
from torchtrt_converters_transformers.attention import StepCache
from torchtrt_converters_transformers.cache import EngineCache
from torchtrt_converters_transformers.compiled_class import CompiledClass, hollow_copy
from torchtrt_converters_transformers.generation import CompiledForCausalLM
from torchtrt_converters_transformers.saving import (
    check_has_weights,
    check_saved_whole,
    class_of,
    empty_model,
    fill,
    load_engines,
    read_description,
    write_folder,
)
from torchtrt_converters_transformers.step import Step, selected, sharing_copy, varying_input


def why_not(model: PreTrainedModel) -> str | None:
    """Returns why the language model of a model with images cannot be compiled; None if it can."""
    language = getattr(model.base_model, "language_model", None)
    if not isinstance(language, PreTrainedModel) or model.get_output_embeddings() is None:
        return "it has no language_model with an output layer behind it"
    takes = inspect.signature(model.forward).parameters
    if "token_type_ids" in takes:
        return "the tokens of an image read each other in both directions, and the engines read forward only"
    further = [
        name for name in inspect.signature(language.forward).parameters if "deepstack" in name
    ]
    if further:
        return f"the layers of its language model take features of images ({further[0]}), and the engines embeddings"
    return None


class EmbeddingStep(Step):
    """Reads the embeddings of new tokens, some of them of an image.

    Args:
        model: A model with a language model inside. It is left as it is.
        max_length: The most tokens of a sequence.
    """

    def __init__(self, model: PreTrainedModel, max_length: int) -> None:
        super().__init__(model, max_length)
        self.head: Any = self.model.get_output_embeddings()
        self.model = cast("Any", self.model.base_model).language_model
        rope = getattr(self.model.config, "rope_parameters", None) or {}
        self.position_axes = 3 if "mrope_section" in rope else 1

    def read(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        cache: StepCache,
        keep: Tensor | None = None,
    ) -> Tensor:
        """Returns the logits behind some tokens, of token ids or of embeddings ``(batch, new, width)``."""
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
            varying_input((batch, new, weight.shape[1]), weight.dtype),
            varying_input((*axes, batch, new), torch.int64),
        ]


class ImageFeatures(torch.nn.Module):
    """The vision tower with what projects its features to embeddings.

    Args:
        model: A model with ``get_image_features``. It is left as it is.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model: Any = sharing_copy(model).base_model
        self.model.language_model = torch.nn.Identity()

    def forward(self, pixel_values: Tensor) -> Tensor:
        """Returns embeddings, ``(1, tokens, width)``, of an image ``(1, channels, height, width)``."""
        features = self.model.get_image_features(pixel_values, return_dict=True).pooler_output
        return features if isinstance(features, Tensor) else torch.stack(list(features))


class LanguageEngines(torch.nn.Module):
    """Engines in the place of a language model: they return logits in place of a state.

    Args:
        engines: The compiled language model, with its output layer.
        embeddings: The table of tokens.
        position_axes: 3 where positions have axes of time, height and width, else 1.
    """

    def __init__(
        self, engines: CompiledForCausalLM, embeddings: torch.nn.Module, position_axes: int
    ) -> None:
        super().__init__()
        self.position_axes = position_axes
        self.engines, self.embed_tokens = engines, embeddings
        self.config = engines.config

    def get_input_embeddings(self) -> torch.nn.Module:
        """Returns the table of tokens."""
        return self.embed_tokens

    def forward(
        self,
        input_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: EngineCache | None = None,
        **others: Any,
    ) -> BaseModelOutputWithPast:
        """Reads embeddings behind a cache, and returns the logits behind the last of them: ``(batch, 1, vocabulary)``.

        Raises:
            InputError, EngineError: As of ``CompiledForCausalLM.forward``.
        """
        if inputs_embeds is None:
            inputs_embeds = cast("Tensor", self.embed_tokens(input_ids))
        others.pop("use_cache", None)
        others.pop("return_dict", None)
        output = self.engines(
            inputs_embeds=inputs_embeds,
            attention_mask=attention_mask,
            position_ids=self._positions(position_ids, inputs_embeds, past_key_values),
            past_key_values=past_key_values,
            **others,
        )
        return BaseModelOutputWithPast(
            last_hidden_state=output.logits, past_key_values=output.past_key_values
        )

    def _positions(
        self, given: Tensor | None, embedded: Tensor, cache: EngineCache | None
    ) -> Tensor | None:
        """Returns positions with the axes that engines take; some models put those of the text before them."""
        if self.position_axes == 1:
            return given
        if given is None:
            start = 0 if cache is None else cache.get_seq_length()
            given = start + torch.arange(embedded.shape[1], device=embedded.device)[None]
        if given.dim() == 3:
            return given[-3:]
        return given.expand(3, len(embedded), -1)


class CompiledVisionLanguage(CompiledClass):
    """Adds engines to a class of transformers that reads images besides text.

    Attributes:
        language: The engines of the language model.
        vision: The compiled module that reads an image of the configuration's size; None where PyTorch does.
    """

    language: CompiledForCausalLM
    vision: torch.nn.Module | None

    def attach(
        self, language: CompiledForCausalLM, vision: torch.nn.Module | None, position_axes: int
    ) -> None:
        """Gives the model its engines."""
        embeddings = self.get_input_embeddings()  # type: ignore[attr-defined]
        self._engine_device, self._engine_dtype = language.device, language.dtype
        self.layout, self.vision = language.layout, vision
        base: Any = self.base_model  # type: ignore[attr-defined]
        base.language_model = LanguageEngines(language, embeddings, position_axes)
        self.set_output_embeddings(torch.nn.Identity())  # type: ignore[attr-defined]
        object.__setattr__(self, "language", language)  # a module once, inside of LanguageEngines
        if vision is not None:
            base.get_image_features = functools.partial(_image_features, vision, language.dtype)

    def lend_cache(self) -> EngineCache:
        """Returns an empty cache of the language model's engines."""
        return self.language.lend_cache()

    def save_pretrained(self, save_directory: str | os.PathLike[str], **others: Any) -> None:
        """Saves engines, configurations and what PyTorch runs; ``CompiledVisionLanguage.from_pretrained`` reads it.

        Raises:
            InputError: Other options are given, the model's class is none of transformers, or its engines have no
                weights.
        """
        check_saved_whole(others)
        name = class_of(self)
        check_has_weights(self.vision, self.language.step, self.language.prefill)
        inside = {
            id(each) for part in (self.language, self.vision) for each in _tensors(part).values()
        }
        kept = {name: each for name, each in _tensors(self).items() if id(each) not in inside}
        language: Any = self.base_model.language_model  # type: ignore[attr-defined]
        write_folder(
            save_directory,
            self,
            "CompiledVisionLanguage",
            {} if self.vision is None else {"vision": self.vision},
            {"class": name, "position_axes": language.position_axes},
            {name: each for name, each in kept.items() if each.device.type != "meta"},
        )
        self.language.save_pretrained(Path(save_directory) / _LANGUAGE)

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str], **others: Any) -> Any:
        """Returns a model that ``save_pretrained`` saved; nothing is compiled.

        Raises:
            InputError: The folder has no such model, or other options are given.
            UnreadableFileError, EngineMismatchError: As of ``torchtrt.load``.
        """
        saved = read_description(folder, "CompiledVisionLanguage", others)
        description, engine = saved.content, load_engines(saved)
        compiled = hollow_copy(empty_model(folder, description), CompiledVisionLanguage)
        language = CompiledForCausalLM.from_pretrained(Path(folder) / _LANGUAGE)
        compiled.attach(language, engine("vision"), description["position_axes"])
        fill(compiled, saved, language.device)
        return compiled


_LANGUAGE = "language"
"""The folder of the language model inside of the model's."""


def _tensors(module: Any) -> dict[str, Tensor]:
    """Returns the parameters and buffers of a module, each under one name."""
    if module is None:
        return {}
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _image_features(
    vision: torch.nn.Module, dtype: torch.dtype, pixel_values: Tensor, **others: Any
) -> BaseModelOutputWithPooling:
    """Returns the embeddings of images, in the place of a model's ``get_image_features``.

    Raises:
        InputError: Other options are given than those that the configuration sets.
    """
    asked = [name for name, value in others.items() if value is not None]
    asked = [name for name in asked if name not in ("return_dict", *_SETTINGS)]
    if asked:
        raise InputError(
            f"The compiled vision tower takes pixel_values, and was called with {', '.join(asked)}."
        )
    features: Any = [vision(image)[0] for image in pixel_values.to(dtype).split(1)]
    return BaseModelOutputWithPooling(pooler_output=features)


def image_input(model: PreTrainedModel) -> torchtrt.Input | None:
    """Returns one image as the vision tower takes it; None where sizes vary, which no configuration says then."""
    vision = model.config.vision_config
    size, channels = getattr(vision, "image_size", None), getattr(vision, "num_channels", 3)
    if not isinstance(size, int) or "image_grid_thw" in inspect.signature(model.forward).parameters:
        return None
    return varying_input((1, channels, size, size), model.dtype)


def with_engines(
    model: Any, step: EmbeddingStep, language: CompiledForCausalLM, vision: torch.nn.Module | None
) -> Any:
    """Returns a model of the class of ``model`` whose language model and vision tower are engines."""
    table = model.get_input_embeddings()
    kept = list(table.parameters()) + list(table.buffers())
    if vision is None:
        inside = {id(each) for each in model.base_model.language_model.parameters()}
        inside |= {id(each) for each in model.get_output_embeddings().parameters()}
        kept += [each for each in model.parameters() if id(each) not in inside]
        kept += list(model.buffers())
    compiled = hollow_copy(model, CompiledVisionLanguage, kept)
    compiled.attach(language, vision, step.position_axes)
    return compiled


_SETTINGS = ("vision_feature_layer", "vision_feature_select_strategy")
"""Options of ``get_image_features`` that the configuration sets, and that the engine has compiled in."""
