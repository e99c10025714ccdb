"""From a model of transformers to engines for its prefill and its decode steps."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

import torchtrt
from torchtrt.errors import InputError, SettingsError
from torchtrt.settings import check_setting_names
from torchtrt_converters_transformers.attention import NOT_THROUGH_THE_INTERFACE
from torchtrt_converters_transformers.cache import SMALLEST, CacheLayout
from torchtrt_converters_transformers.cache_formats import check_cache_dtype, check_model_cache
from torchtrt_converters_transformers.compiled_class import hollow_copy
from torchtrt_converters_transformers.embedding_step import (
    EmbeddingStep,
    try_images,
    uncapped_copy,
)
from torchtrt_converters_transformers.encoder_decoder import (
    DecoderStep,
    EncoderStep,
    example_source,
    try_encoder_decoder,
)
from torchtrt_converters_transformers.encoder_decoder_model import CompiledEncoderDecoder
from torchtrt_converters_transformers.engine_model import EngineModel
from torchtrt_converters_transformers.generation import CompiledForCausalLM
from torchtrt_converters_transformers.image_towers import takes_grids
from torchtrt_converters_transformers.refusals import Refusal, other_modalities, refusing
from torchtrt_converters_transformers.requirements import check_model
from torchtrt_converters_transformers.sized_towers import takes_sizes
from torchtrt_converters_transformers.step import (
    Step,
    check_logits,
    dynamic_input,
    sharing_copy,
    trying,
)
from torchtrt_converters_transformers.vision_language import (
    compile_vision,
    with_engines,
)


def compile_for_generation(
    model: PreTrainedModel,
    *,
    max_batch_size: int = 1,
    max_length: int,
    opt_length: int | None = None,
    max_source_length: int | None = None,
    prefill_engine: bool | str = True,
    cache_dtype: torch.dtype | None = None,
    max_candidate_tokens: int = 0,
    max_image_tokens: int | None = None,
    **settings: Any,
) -> Any:
    """Compiles a model of transformers for ``generate``: a causal language model, or an encoder with a decoder.

    Args:
        model: The model, on the device that is to run it and in its dtype. It is not changed; it is compiled as it is
            in eval mode.
        max_batch_size: The maximum number of sequences at once, those of beams and of ``num_return_sequences`` counted.
        max_length: The maximum number of tokens of a sequence, its prompt included.
        opt_length: The length of prompts, and of what is cached, that engines are optimized for; by default half of
            ``max_length``.
        max_source_length: The maximum number of tokens that an encoder reads; by default ``max_length``. Features have
            the length that the model requires.
        prefill_engine: Build a second engine, for prompts. With ``"profile"``, one engine has an optimization profile
            for steps and one for prompts, and weights are held once. With ``False``, it has the one for steps only.
            The prompts of decoders behind an encoder are short, and have none.
        cache_dtype: The dtype of the cache: ``torch.float8_e4m3fn``, or None for the model's. Keys and values are
            rounded to it before attention reads them, those of the prompt too. A model whose keys and values ModelOpt
            or compressed-tensors quantizes to FP8 or INT8 has such a cache by itself, with its scales.
        max_candidate_tokens: The maximum number of candidates of assisted generation that a step verifies at once; 0
            for models that do not generate in this way. Steps are optimized for as many and one more.
        max_image_tokens: The maximum number of tokens of an image, or of a video, for models that take images of any
            size; by default 1024, and at most ``max_length``.
        **settings: Settings of ``torchtrt.compile``.

    Returns:
        A model with transformers' ``generate``: a ``CompiledForCausalLM``, or for an encoder with a decoder a
        ``CompiledEncoderDecoder`` of the model's own class.

    Raises:
        InputError: A number does not fit the model.
        UnsupportedProgramError: The model cannot generate in this way; the message contains the reason.
        TorchTRTError: As of ``torchtrt.compile``.
    """
    _check_settings(settings)
    _check(model, max_batch_size, max_length)
    check_cache_dtype(cache_dtype, has_encoder=model.config.is_encoder_decoder)
    _check_candidates(max_candidate_tokens, max_length)
    if not isinstance(prefill_engine, bool) and prefill_engine != "profile":
        raise InputError(f"prefill_engine={prefill_engine!r} is not True, False or 'profile'.")
    _check_image_tokens(model, max_image_tokens, max_length)
    opt_length = max(1, max_length // 2) if opt_length is None else opt_length
    if not 1 <= opt_length <= max_length:
        raise InputError(f"opt_length={opt_length} is not from 1 to max_length={max_length}.")
    has_encoder = model.config.is_encoder_decoder
    if max_source_length is not None and not has_encoder:
        raise InputError(f"max_source_length={max_source_length}, but the model has no encoder.")
    source_length = max_length if max_source_length is None else max_source_length
    sizes = Sizes(max_batch_size, max_length, opt_length, source_length, max_candidate_tokens)
    with refusing(model):
        check_model(model, max_length)
        if has_encoder:
            return _compile_encoder_decoder(model, sizes, settings)
        step = (EmbeddingStep if other_modalities(model) else Step)(model, max_length)
        language = _compile_decoder(
            model, step, sizes, settings, cache_dtype=cache_dtype, prefill_engine=prefill_engine
        )
        if not isinstance(step, EmbeddingStep):
            return language
        vision = compile_vision(model, max_image_tokens or min(1024, max_length), settings)
        return with_engines(model, step, language, vision)


def _compile_decoder(
    model: PreTrainedModel,
    step: Step,
    sizes: Sizes,
    settings: Mapping[str, Any],
    *,
    cache_dtype: torch.dtype | None,
    prefill_engine: bool | str,
) -> CompiledForCausalLM:
    """Returns the compiled language model of a model without an encoder.

    Raises:
        Refusal: The step does not compute what the model does.
    """
    check_model_cache(model, step.cache_dtype, cache_dtype)
    states, windows = _try(model, step)
    shapes = tuple((state.shape[1], state.shape[3]) for state in states)
    dtype = states[0].dtype
    config = model.config.get_text_config()
    max_length, candidates = sizes.max_length, sizes.max_candidate_tokens
    windowed = _has_windows(model, windows, max_length) or step.counts
    step.cache_dtype = step.cache_dtype or cache_dtype  # the model itself has no such setting
    layout = CacheLayout(shapes, sizes.max_batch_size, max_length, step.cache_dtype)
    batch, length = sizes.batch, (1, sizes.opt_length, max_length)
    keep = _kept_input(candidates) or {}

    def inputs(new: _Range, cached: _Range | None = None) -> _Call:
        counted = dynamic_input((batch, new), torch.bool)
        past = () if cached is None else _past(cached)
        named = {**keep, **step.named_inputs(batch, new)}
        return [*step.inputs(batch, new), counted, *past], named

    def _past(cached: _Range) -> list[Any]:
        states = [
            dynamic_input((batch, heads, cached, width), step.cache_dtype or dtype)
            for heads, width in shapes
        ]
        first = [torchtrt.Input((1,), dtype=torch.int64)] if windowed else []
        return [states, dynamic_input((batch, cached), torch.bool), *first]

    def compiled(call: _Call) -> torch.nn.Module:
        args, named = call
        return torchtrt.compile(step, args, kwarg_inputs=named or None, **settings)

    stepped = inputs((1, 1 + candidates, max_length), length)
    if prefill_engine == "profile":
        of_steps = inputs((1, 1 + candidates, 1 + candidates), length)
        # The cache of a prompt has room for this many tokens, and none in them.
        of_prompts = inputs(length, (1, min(SMALLEST, max_length), max_length))
        stepped = _either(of_steps, of_prompts)
    return CompiledForCausalLM(
        config,
        model.generation_config,
        layout,
        compiled(stepped),
        compiled(inputs(length)) if prefill_engine is True else None,
        windowed=windowed,
        embeds=isinstance(step, EmbeddingStep),
        max_candidate_tokens=candidates,
        image_inputs=step.images,
        dtype=dtype,
        device=states[0].device,
    )


_Range = tuple[int, int, int]
"""The minimum, the optimum and the maximum of a size."""
_Call = tuple[list[Any], dict[str, torchtrt.Input]]
"""The inputs of a step, by position and by name."""


def _either(first: Any, second: Any) -> Any:
    """Returns nested inputs with the sizes of two, in an optimization profile of each."""
    if isinstance(first, torchtrt.Input):
        return torchtrt.Input(ranges=[first.bounds, second.bounds], dtype=first.dtype)
    if isinstance(first, dict):
        return {name: _either(value, second[name]) for name, value in first.items()}
    return type(first)(map(_either, first, second))


def _has_windows(model: PreTrainedModel, windows: list[int | None], max_length: int) -> bool:
    """Returns whether layers read a window of the last tokens that sequences can outgrow.

    Raises:
        Refusal: The model's configuration names other windows than its layers do.
    """
    declared = _windows(model.config.get_text_config(decoder=True), len(windows))
    if windows != declared and any(
        window is not None and window < max_length for window in (*windows, *declared)
    ):
        raise Refusal("not all of its layers pass the window that they read to their attention")
    return any(window is not None and window < max_length for window in windows)


@dataclass(frozen=True)
class Sizes:
    """The maximum sizes of sequences and sources, and what engines are optimized for."""

    max_batch_size: int
    max_length: int
    opt_length: int
    max_source_length: int
    max_candidate_tokens: int

    @property
    def batch(self) -> tuple[int, int, int]:
        """The range of the number of sequences."""
        return (1, self.max_batch_size, self.max_batch_size)


def _compile_encoder_decoder(
    model: PreTrainedModel, sizes: Sizes, settings: Mapping[str, Any]
) -> Any:
    """Returns the compiled model of an encoder and a decoder, with an engine for each.

    Raises:
        Refusal: The programs do not compute what the model does.
    """
    batch = sizes.batch
    source_places = (1, max(1, sizes.max_source_length // 2), sizes.max_source_length)
    encoder, step = EncoderStep(model).eval(), DecoderStep(model, sizes.max_length).eval()
    example = example_source(model)
    encoder_inputs = [dynamic_input((batch, *example.shape[1:]), example.dtype)]
    if not example.is_floating_point():
        encoder_inputs = [dynamic_input((batch, source_places), torch.int64)] * 2
    states, cached, windows = try_encoder_decoder(model, encoder, step, example)
    _has_windows(model, windows, sizes.max_length)  # which refuses those that differ
    rows, heads, source_length, width = cached.shape[1:]
    fixed = example.is_floating_point()
    source_size = source_length if fixed else source_places
    shapes = tuple((state.shape[1], state.shape[3]) for state in states)
    cached_places = (1, sizes.opt_length, sizes.max_length)
    new = (1, 1 + sizes.max_candidate_tokens, sizes.max_length)
    dtype = states[0].dtype
    inputs = [
        dynamic_input((batch, new), torch.int64),
        dynamic_input((batch, new), torch.bool),
        [dynamic_input((batch, heads, source_size, width), dtype) for _ in range(rows)],
        dynamic_input((batch, source_size), torch.bool),
        [dynamic_input((batch, *shape[:1], cached_places, shape[1]), dtype) for shape in shapes],
        dynamic_input((batch, cached_places), torch.bool),
        torchtrt.Input((1,), dtype=torch.int64),
    ]
    if step.takes_positions:
        inputs.append(dynamic_input((batch, new), torch.int64))
    compiled = hollow_copy(model, CompiledEncoderDecoder)
    compiled.attach(
        CacheLayout(shapes, sizes.max_batch_size, sizes.max_length),
        torchtrt.compile(encoder, encoder_inputs, **settings),
        torchtrt.compile(
            step, inputs, kwarg_inputs=_kept_input(sizes.max_candidate_tokens), **settings
        ),
        takes_positions=step.takes_positions,
        source_places=example.shape[-1] if fixed else sizes.max_source_length,
        max_candidate_tokens=sizes.max_candidate_tokens,
        dtype=dtype,
        device=states[0].device,
    )
    return compiled


def _check(model: Any, max_batch_size: int, max_length: int) -> None:
    """Raises an error for a model that generates no text, or sizes that the model does not have."""
    is_compiled = isinstance(model, EngineModel)
    if is_compiled or not isinstance(model, PreTrainedModel) or not model.can_generate():
        advice = ""
        if isinstance(getattr(model, "peft_config", None), dict) and hasattr(
            model, "get_base_model"
        ):
            advice = " Give it model.get_base_model(), which has the adapters."
        raise InputError(
            f"compile_for_generation takes a model of transformers that generates, such as LlamaForCausalLM, and not a "
            f"{type(model).__name__}.{advice}"
        )
    for name, number in (("max_batch_size", max_batch_size), ("max_length", max_length)):
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise InputError(f"{name}={number!r} is not a positive integer.")
    if max_length == 1:
        raise InputError(
            "max_length=1 has room for a prompt of one token, and none for a new one. Choose 2 or more."
        )
    config = model.config.get_text_config()
    positions = getattr(config, "max_position_embeddings", None)
    if positions is not None and max_length > positions:
        raise InputError(f"max_length={max_length}, but the model has {positions} positions.")


def _check_settings(settings: Mapping[str, Any]) -> None:
    """Raises a ``SettingsError`` for a name that is no setting of ``torchtrt.compile``."""
    for name in settings:
        if name in inspect.signature(torchtrt.compile).parameters:
            raise SettingsError(
                f"{name} is an argument of torchtrt.compile. compile_for_generation derives the inputs of engines from "
                "max_batch_size and max_length: leave it out."
            )
    check_setting_names(settings, compile_for_generation)


def _check_candidates(max_candidate_tokens: int, max_length: int) -> None:
    """Raises an ``InputError`` where as many candidates cannot be verified."""
    number = max_candidate_tokens
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < max_length:
        raise InputError(
            f"max_candidate_tokens={number!r} is not an integer from 0 to {max_length - 1}: a step reads them and one "
            f"more token, of max_length={max_length}."
        )


def _check_image_tokens(model: Any, number: int | None, max_length: int) -> None:
    """Raises an ``InputError`` where images cannot have as many tokens."""
    if number is None:
        return
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= max_length:
        raise InputError(
            f"max_image_tokens={number!r} is not an integer from 1 to max_length={max_length}."
        )
    if not (takes_grids(model) or takes_sizes(model)):
        raise InputError(
            f"max_image_tokens={number}, but {type(model).__name__} takes no images of any size. Leave it out."
        )


def _kept_input(max_candidate_tokens: int) -> dict[str, torchtrt.Input] | None:
    """Returns the input of the places behind which a step returns logits; None where it is always the last."""
    if not max_candidate_tokens:
        return None
    most = max_candidate_tokens + 1
    return {"keep": dynamic_input([(1, most, most)], torch.int64)}


def _try(model: PreTrainedModel, step: Step) -> tuple[list[Tensor], list[int | None]]:
    """Runs a padded prompt and one more token through the step and through the model itself.

    Returns:
        New keys and values in turn, layer by layer, and each layer's window.

    Raises:
        Refusal: The step does not compute what the model does.
    """
    config = model.config.get_text_config()
    ids = (torch.arange(12, device=model.device) * 7 + 3).reshape(2, 6) % config.vocab_size
    mask = torch.ones_like(ids)
    mask[0, :2] = 0
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    first, second = slice(0, 5), slice(5, 6)
    theirs = DynamicCache(config=config)
    itself: Any = (uncapped_copy if isinstance(step, EmbeddingStep) else sharing_copy)(model)
    with torch.no_grad():
        cache = step.cache(mask[:, first].bool())
        with trying():
            ours = [step.read(ids[:, first], positions[:, first], cache)]
        states = cache.states

        def further(told: int = 0) -> Tensor:
            behind = step.cache(
                mask[:, second].bool(), states, mask[:, first].bool(), positions[1, second]
            )
            behind.told = told
            with trying():
                return step.read(ids[:, second], positions[:, second], behind)

        step.whole = cache.expands
        if not step.whole:
            step.counts = not torch.allclose(further(), further(step.max_length - 1))
            step.whole = step.counts
        ours.append(further())
        if not cache.is_complete():
            raise Refusal(NOT_THROUGH_THE_INTERFACE)
        for logits, part in zip(ours, (first, second), strict=True):
            wanted = itself(
                input_ids=ids[:, part],
                attention_mask=mask[:, : part.stop],
                position_ids=positions[:, part],
                past_key_values=theirs,
                use_cache=True,
            ).logits[:, -1:]
            check_logits(logits, wanted, states[0].dtype)
    if isinstance(step, EmbeddingStep):
        try_images(model, step)
    return states, cache.windows


def _windows(config: Any, layers: int) -> list[int | None]:
    """Returns each layer's window, as the configuration has it."""
    window = getattr(config, "sliding_window", None)
    types = getattr(config, "layer_types", None) or ["sliding_attention"] * layers
    return [window if type_ == "sliding_attention" else None for type_ in types]
