"""Contexts to export models of transformers in: advice about caches, and questions without conditions."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch

from torchtrt.errors import UnsupportedProgramError
from torchtrt_converters_transformers._pack import pack

_INTERFACE = "transformers.modeling_utils"
_MASKS = "transformers.masking_utils"


@pack.export_context
@contextlib.contextmanager
def without_cache() -> Iterator[None]:
    """Returns advice where a model takes or returns a cache, which ``torch.export`` refuses without advice.

    Raises:
        UnsupportedProgramError: It does.
    """
    try:
        yield
    except Exception as error:
        if "transformers.cache_utils." not in str(error):
            raise
        raise UnsupportedProgramError(
            "The model takes or returns a cache of transformers, which torch.export cannot export. Set "
            "model.config.use_cache = False to compile what it computes without one; to generate text, use "
            "torchtrt_converters_transformers.compile_for_generation."
        ) from error


@pack.export_context
@contextlib.contextmanager
def without_harmless_questions() -> Iterator[None]:
    """Lets models of transformers ask these questions without a condition on their sizes.

    * Attention asks whether there is more than one query, to choose ``is_causal``. With a mask, or without causality,
      it does not use the answer. With as many keys as queries, a single query sees its only key either way.
    * The preparation of masks expands position ids if the batch is not theirs. For a batch of 1 that is no change.
    """
    from torchtrt.graphs import same_for_all_answers  # here, as it imports SymPy

    with contextlib.ExitStack() as stack:
        functions: Any = getattr(sys.modules.get(_INTERFACE), "ALL_ATTENTION_FUNCTIONS", None)
        if functions is not None and "sdpa" in functions:
            attention = functions["sdpa"]
            wrapped = _attention(attention)
            type(functions).register("sdpa", wrapped)
            stack.callback(type(functions).register, "sdpa", attention)
            # A function that the user's code has set goes before those registered.
            if functions["sdpa"] is not wrapped:
                functions["sdpa"] = wrapped
                stack.callback(functions.__setitem__, "sdpa", attention)
        masks = sys.modules.get(_MASKS)
        if prepare := getattr(masks, "_preprocess_mask_arguments", None):
            quiet = same_for_all_answers()(prepare)
            stack.enter_context(mock.patch.object(masks, prepare.__name__, quiet))
        yield


def _attention(attention: Callable[..., Any]) -> Callable[..., Any]:
    """Returns an attention function whose question about the number of queries is no condition where it is harmless."""

    @functools.wraps(attention)
    def attend(
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        **options: Any,
    ) -> Any:
        from torch.fx.experimental.symbolic_shapes import statically_known_true

        from torchtrt.graphs import same_for_all_answers  # here, as both import SymPy

        is_causal = options.get("is_causal")
        if is_causal is None:
            is_causal = getattr(module, "is_causal", True)
        has_all_keys = statically_known_true(query.shape[2] == key.shape[2])
        is_harmless = attention_mask is not None or not is_causal or has_all_keys
        with same_for_all_answers() if is_harmless else contextlib.nullcontext():
            return attention(module, query, key, value, attention_mask, **options)

    return attend
