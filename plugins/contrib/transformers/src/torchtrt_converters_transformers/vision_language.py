"""Models that read images besides text, over engines: the ``generate`` of the model's own class."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutputWithPooling, MoeModelOutputWithPast

import torchtrt
from torchtrt.errors import InputError
from torchtrt_converters_transformers.cache import EngineCache
from torchtrt_converters_transformers.compiled_class import CompiledClass, hollow_copy
from torchtrt_converters_transformers.embedding_step import EmbeddingStep, mutual_tokens, placed
from torchtrt_converters_transformers.generation import CompiledForCausalLM
from torchtrt_converters_transformers.image_towers import (
    FEATURE_SETTINGS,
    CompiledTower,
    ImageFeatures,
    PatchIndices,
    image_input,
    packed_tower,
    patch_elements,
    tower_of,
)
from torchtrt_converters_transformers.saving import (
    check_saved_whole,
    class_of,
    fill,
    inner_folder,
    load_engines,
    prefix_of,
    renamed,
    write_folder,
)
from torchtrt_converters_transformers.sized_towers import (
    ImagePatches,
    sized_tower,
    takes_sizes,
)
from torchtrt_runtime.modules.supplying import Weights, state_dict_of
from torchtrt_runtime.serialization.folders import SavedFolder

_mutual: ContextVar[tuple[Tensor | None, Tensor | None] | None] = ContextVar("mutual", default=None)
"""The mask of a call, and which of its tokens read each other in both directions."""
_kept: ContextVar[int] = ContextVar("kept", default=1)
"""Behind how many of the last tokens of a call the logits are asked for; 0 for all."""


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
        visual_pos_masks: Tensor | None = None,
        deepstack_visual_embeds: Sequence[Tensor] | None = None,
        **others: Any,
    ) -> MoeModelOutputWithPast:
        """Reads embeddings behind a cache, and returns the logits behind the last of them: ``(batch, 1, vocabulary)``.

        Engines that verify candidates return as many logits as the model's call asks for.

        Args:
            input_ids: ``(batch, new)``, in place of embeddings.
            inputs_embeds: ``(batch, new, width)``.
            attention_mask: ``(batch, cached + new)``.
            position_ids: ``(batch, new)``, or with axes in front.
            past_key_values: The cache.
            visual_pos_masks: Booleans ``(batch, new)``: which tokens are those of images.
            deepstack_visual_embeds: What layers add to these, each ``(tokens of images, width)``.
            **others: As of ``CompiledForCausalLM.forward``.

        Raises:
            InputError, EngineError: As of ``CompiledForCausalLM.forward``.
        """
        if inputs_embeds is None:
            inputs_embeds = cast("Tensor", self.embed_tokens(input_ids))
        others.pop("use_cache", None)
        others.pop("return_dict", None)
        images: dict[str, Tensor] = {}
        if deepstack_visual_embeds is not None and visual_pos_masks is not None:
            images["features"] = placed(deepstack_visual_embeds, visual_pos_masks, inputs_embeds)
        if (noted := _mutual.get()) is not None:
            attention_mask, mutual = noted
            images |= {} if mutual is None else {"mutual": mutual}
        if self.engines.max_candidate_tokens:
            others["logits_to_keep"] = _kept.get()
        output = self.engines(
            inputs_embeds=inputs_embeds,
            attention_mask=attention_mask,
            position_ids=self._positions(position_ids, inputs_embeds, past_key_values),
            past_key_values=past_key_values,
            image_inputs=images,
            **others,
        )
        return MoeModelOutputWithPast(  # models without experts do not ask for what it has more
            last_hidden_state=output.logits, past_key_values=output.past_key_values
        )

    def _positions(
        self, positions: Tensor | None, embedded: Tensor, cache: EngineCache | None
    ) -> Tensor | None:
        """Returns positions with the axes that engines take; some models put those of the text before them."""
        if self.position_axes == 1:
            return positions
        if positions is None:
            start = 0 if cache is None else cache.get_seq_length()
            positions = start + torch.arange(embedded.shape[1], device=embedded.device)[None]
        if positions.dim() == 3:
            return positions[-3:].expand(3, -1, -1)  # behind a cache, one for all axes
        return positions.expand(3, len(embedded), -1)


class CompiledVisionLanguage(CompiledClass):
    """Adds engines to a class of transformers that reads images besides text.

    Attributes:
        language: The engines of the language model.
        vision: The compiled module that reads an image; None where PyTorch does.
    """

    saved_kind = "CompiledVisionLanguage"
    language: CompiledForCausalLM
    vision: torch.nn.Module | None

    def attach(
        self, language: CompiledForCausalLM, vision: Vision | None, position_axes: int
    ) -> None:
        """Gives the model its engines."""
        embeddings = self.get_input_embeddings()  # type: ignore[attr-defined]
        self._engine_device, self._engine_dtype = language.device, language.dtype
        self.layout, self._vision = language.layout, vision
        self.cache_memory = language.cache_memory
        self.max_candidate_tokens = language.max_candidate_tokens
        base: Any = self.base_model  # type: ignore[attr-defined]
        base.language_model = LanguageEngines(language, embeddings, position_axes)
        self.set_output_embeddings(torch.nn.Identity())  # type: ignore[attr-defined]
        object.__setattr__(self, "language", language)  # a module once, inside of LanguageEngines
        self.vision = None if vision is None else vision.engine
        if vision is not None and hasattr(base, "visual"):
            base.visual = CompiledTower(
                vision.engine, PatchIndices.of(base.visual), language.dtype, vision.image_tokens
            )
        elif vision is not None:
            config: Any = self.config  # type: ignore[attr-defined]
            settings = {name: getattr(config, name, None) for name in FEATURE_SETTINGS}
            most = vision.image_tokens
            patches = ImagePatches.of(config, most) if most else None
            base.get_image_features = _ImageFeatures(
                vision, language.dtype, settings, type(base), patches
            )
        if hasattr(base, "compute_3d_position_ids"):
            base.compute_3d_position_ids = functools.partial(_positions_behind, base)
        module = cast("torch.nn.Module", self)
        if language.max_candidate_tokens:
            module.register_forward_pre_hook(_note_kept, with_kwargs=True)
        if language.image_inputs.mutual:
            module.register_forward_pre_hook(_note_mutual, with_kwargs=True)
            module.register_forward_hook(_forget_mutual, always_call=True)

    def _prepare_position_ids_for_generation(
        self, inputs_tensor: Tensor, model_kwargs: dict[str, Any]
    ) -> Any:
        """Returns the positions of a run's tokens."""
        with _deltas_of(self.base_model, model_kwargs.get("past_key_values")):  # type: ignore[attr-defined]
            return super()._prepare_position_ids_for_generation(inputs_tensor, model_kwargs)  # type: ignore[misc]

    def save_pretrained(self, save_directory: str | os.PathLike[str], **others: Any) -> None:
        """Saves engines, configurations and what PyTorch runs; ``CompiledVisionLanguage.from_pretrained`` reads it.

        Raises:
            InputError: Other options are given, or the model's class is not one of transformers.
        """
        check_saved_whole(others)
        name = class_of(self)
        inside = {
            id(tensor)
            for part in (self.language, self.vision)
            for tensor in _tensors(part).values()
        }
        kept = {name: tensor for name, tensor in _tensors(self).items() if id(tensor) not in inside}
        language: Any = self.base_model.language_model  # type: ignore[attr-defined]
        vision = self._vision
        write_folder(
            save_directory,
            self,
            self.saved_kind,
            {} if self.vision is None else {"vision": self.vision},
            {
                "class": name,
                "position_axes": language.position_axes,
                "stacked": vision is not None and vision.stacked,
                "image_tokens": 0 if vision is None else vision.image_tokens,
            },
            {name: tensor for name, tensor in kept.items() if tensor.device.type != "meta"},
            {_LANGUAGE: self.language.write},
        )

    @classmethod
    def with_saved_engines(cls, model: Any, saved: SavedFolder, weights: Weights | None) -> Any:
        """Returns a copy of a model without weights, with the engines of a folder."""
        description = saved.content
        parts = _weights_of_parts(model, weights)
        engine = load_engines(saved, parts)("vision")
        compiled = hollow_copy(model, CompiledVisionLanguage)
        language = CompiledForCausalLM.read(inner_folder(saved, _LANGUAGE), parts["language"])
        vision = None
        if engine is not None:
            vision = Vision(engine, description["stacked"], description["image_tokens"])
        compiled.attach(language, vision, description["position_axes"])
        settings = cast("torchtrt.CompiledModule", language.step).settings
        takes_others = not settings.immutable_weights
        fill(compiled, saved, language.device, weights, takes_others=takes_others)
        return compiled


def _weights_of_parts(
    model: Any, weights: Weights | None
) -> dict[str, Mapping[str, Tensor] | None]:
    """Returns a model's weights for its language model and its vision tower, by their names in compiled modules."""
    if weights is None:
        return {"language": None, "vision": None}
    base, named = model.base_model, state_dict_of(weights)
    language = prefix_of(model, base.language_model)
    inside = {language: "model.", prefix_of(model, model.get_output_embeddings()): "head."}
    seen = {prefix_of(model, base): "model."}
    if tower_of(model) is not None:
        seen = {prefix_of(model, tower_of(model)): "tower."}
    others = {name: tensor for name, tensor in named.items() if not name.startswith(language)}
    return {"language": renamed(named, inside), "vision": renamed(others, seen)}


@dataclasses.dataclass(frozen=True)
class Vision:
    """A compiled vision tower.

    Attributes:
        engine: The compiled ``ImageFeatures``, ``PackedPatches`` or ``SizedPatches``.
        stacked: Whether the model has the embeddings of images in one tensor, and not in a list.
        image_tokens: The maximum number of tokens of an image of any size; 0 where images have one size.
    """

    engine: torch.nn.Module
    stacked: bool = False
    image_tokens: int = 0


_DELTAS = threading.Lock()


@contextmanager
def _deltas_of(base: Any, cache: EngineCache | None) -> Iterator[None]:
    """Gives a model the ``rope_deltas`` of a cache: its class has those of the last call, of whatever conversation."""
    with _DELTAS:
        if cache is not None and hasattr(base, "rope_deltas"):
            base.rope_deltas = cache.rope_deltas if cache.get_seq_length() else None
        yield
        if cache is not None:
            cache.rope_deltas = getattr(base, "rope_deltas", None)


def _positions_behind(base: Any, *arguments: Any, **named: Any) -> Any:
    """Returns what the model's ``compute_3d_position_ids`` does for the cache of a call."""
    compute = type(base).compute_3d_position_ids
    bound = inspect.signature(compute).bind(base, *arguments, **named)
    with _deltas_of(base, bound.arguments.get("past_key_values")):
        return compute(base, *arguments, **named)


def _note_kept(model: Any, arguments: Any, named: dict[str, Any]) -> None:
    """Notes how many logits a call asks for: its class does not pass that to the language model. A hook."""
    signature = inspect.signature(type(model).forward)
    bound = signature.bind(model, *arguments, **named).arguments
    asked = signature.parameters.get("logits_to_keep")
    _kept.set(bound.get("logits_to_keep", 0 if asked is None else asked.default))


def _note_mutual(model: Any, arguments: Any, named: dict[str, Any]) -> Any:
    """Takes the mask and the types of tokens from a call: engines make masks. A hook."""
    parameters = list(inspect.signature(type(model).forward).parameters)[1:]
    named = {**dict(zip(parameters, arguments, strict=False)), **named}
    types, mask = named.pop("token_type_ids", None), named.pop("attention_mask", None)
    read = named.get("inputs_embeds")
    read = named.get("input_ids") if read is None else read
    mutual = None
    if types is not None and read is not None and read.shape[1] > 1:
        width = model.get_input_embeddings().weight.shape[1]
        mutual = mutual_tokens(model, types[:, -read.shape[1] :], width)
    _mutual.set((mask, mutual))
    return (), named


def _forget_mutual(*_: Any) -> None:
    """Removes the mask of a call that has ended; a hook."""
    _mutual.set(None)


_LANGUAGE = "language"
"""The folder of the language model inside of the model's."""


def _tensors(module: Any) -> dict[str, Tensor]:
    """Returns the parameters and buffers of a module, each under one name."""
    if module is None:
        return {}
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


class _ImageFeatures:
    """Embeddings of images, in the place of a model's ``get_image_features``.

    Args:
        vision: The compiled vision tower.
        dtype: The model's dtype.
        settings: What the engine has compiled in, by the names of options.
        kind: The class of the model that has the method.
        patches: The patches of images of any size; None for images of one size.
    """

    def __init__(
        self,
        vision: Vision,
        dtype: torch.dtype,
        settings: Mapping[str, Any],
        kind: type[Any],
        patches: ImagePatches | None,
    ) -> None:
        self._vision, self._dtype, self._settings, self._kind = vision, dtype, settings, kind
        self._patches = patches

    @property
    def __signature__(self) -> inspect.Signature:
        """That of the method: transformers gives a method the options that it has parameters for."""
        signature = inspect.signature(self._kind.get_image_features)
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    def __call__(self, pixel_values: Tensor, **others: Any) -> BaseModelOutputWithPooling:
        """Returns the embeddings of images.

        Raises:
            InputError: Other options are given than those that the engine has compiled in, or an image has sides or a
                number of tokens that the engine does not take.
        """
        others.pop("return_dict", None)
        sizes = others.pop("image_sizes", None) if self._patches is not None else None
        asked = {name: value for name, value in others.items() if value is not None}
        for name, value in asked.items():
            if name not in self._settings:
                raise InputError(
                    f"The compiled vision tower takes pixel_values, and was called with {name}."
                )
            if _listed(value) != _listed(self._settings[name]):
                raise InputError(
                    f"The vision tower is compiled for {name}={self._settings[name]!r}, and was called with {value!r}. "
                    f"Set model.config.{name}, and compile the model again."
                )
        pixels = pixel_values.to(self._dtype)
        engine = self._vision.engine
        features: Any
        if self._patches is None:
            features = [engine(image)[0] for image in pixels.split(1)]
        else:
            images = zip(pixels, self._sizes(pixels, sizes), strict=True)
            features = [engine(*self._patches.inputs(image, size)) for image, size in images]
        return BaseModelOutputWithPooling(
            pooler_output=torch.stack(features) if self._vision.stacked else features
        )

    @staticmethod
    def _sizes(pixels: Tensor, sizes: Any) -> Any:
        """Returns the size of each image: by default, that of all."""
        return [pixels.shape[-2:]] * len(pixels) if sizes is None else sizes


def _listed(value: Any) -> Any:
    """Returns a list in the place of a tuple, which files and calls have for each other."""
    return list(value) if isinstance(value, tuple) else value


def compile_vision(model: Any, image_tokens: int, settings: Mapping[str, Any]) -> Vision | None:
    """Returns the compiled vision tower of a model; None where PyTorch runs it.

    Args:
        model: The model.
        image_tokens: The maximum number of tokens of an image of any size.
        settings: Those of ``torchtrt.compile``.
    """
    if (image := image_input(model)) is not None:
        program = ImageFeatures(model).eval()
        pixels = torch.zeros(image.max_shape, dtype=model.dtype, device=model.device)  # type: ignore[arg-type]
        with torch.no_grad():
            one = program.model.get_image_features(pixels, return_dict=True).pooler_output
        return Vision(torchtrt.compile(program, [image], **settings), isinstance(one, Tensor))
    if takes_sizes(model):
        sized, _ = sized_tower(model, image_tokens)
        if sized is None:
            return None
        engine = torchtrt.compile(sized, sized.inputs(), **settings)
        return Vision(engine, image_tokens=image_tokens)
    packed, _ = packed_tower(model)
    if packed is None:
        return None
    inputs = packed.inputs(patch_elements(tower_of(model)), model.dtype, image_tokens)
    return Vision(torchtrt.compile(packed, inputs, **settings), image_tokens=image_tokens)


def with_engines(
    model: Any, step: EmbeddingStep, language: CompiledForCausalLM, vision: Vision | None
) -> Any:
    """Returns a model of the class of ``model`` whose language model and vision tower are engines."""
    table = model.get_input_embeddings()
    kept = list(table.parameters()) + list(table.buffers())
    if vision is None:
        inside = {id(parameter) for parameter in model.base_model.language_model.parameters()}
        inside |= {id(parameter) for parameter in model.get_output_embeddings().parameters()}
        kept += [parameter for parameter in model.parameters() if id(parameter) not in inside]
        kept += list(model.buffers())
    compiled = hollow_copy(model, CompiledVisionLanguage, kept)
    compiled.attach(language, vision, step.position_axes)
    return compiled
