"""Text generation with the causal language models of transformers, in TensorRT engines.

Nothing here imports transformers before one of these names is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchtrt.lazy import lazy_names

if TYPE_CHECKING:
    from torchtrt_converters_transformers.cache import EngineCache
    from torchtrt_converters_transformers.compiling import compile_for_generation
    from torchtrt_converters_transformers.encoder_decoder_model import CompiledEncoderDecoder
    from torchtrt_converters_transformers.generation import CompiledForCausalLM
    from torchtrt_converters_transformers.vision_language import CompiledVisionLanguage

__all__ = [
    "CompiledEncoderDecoder",
    "CompiledForCausalLM",
    "CompiledVisionLanguage",
    "EngineCache",
    "compile_for_generation",
]

_LAZY = {
    "torchtrt_converters_transformers.cache": ("EngineCache",),
    "torchtrt_converters_transformers.compiling": ("compile_for_generation",),
    "torchtrt_converters_transformers.encoder_decoder_model": ("CompiledEncoderDecoder",),
    "torchtrt_converters_transformers.generation": ("CompiledForCausalLM",),
    "torchtrt_converters_transformers.vision_language": ("CompiledVisionLanguage",),
}

__getattr__, __dir__ = lazy_names(globals(), _LAZY)
