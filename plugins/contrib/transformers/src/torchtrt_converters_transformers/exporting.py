"""Advice where PyTorch refuses to export the cache of a model of transformers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torchtrt.errors import UnsupportedProgramError
from torchtrt_converters_transformers._pack import pack


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
