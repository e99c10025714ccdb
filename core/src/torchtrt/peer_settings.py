"""The settings of Torch-TensorRT that torchtrt does not have, with the setting that does the same or the way round.

``docs/from-torch-tensorrt.md`` has them in a table.
"""

from __future__ import annotations

from types import MappingProxyType

_CACHE = "Use engine_cache=True, or engine_cache='folder'."
_LIMIT = "Use max_engine_bytes, the maximum number of bytes of weights of one engine."
_REFIT = "Use immutable_weights=False."
_TYPING = "Drop it: the dtypes of the model are those of its engines."

ADVICE = MappingProxyType(
    {
        "arg_inputs": "Pass them as inputs, the second argument.",
        "attn_bias_is_causal": "Drop it: engines add the mask that the model computes.",
        "autocast_low_precision_type": "Use autocast=torch.float16 or autocast=torch.bfloat16.",
        "cache_built_engines": _CACHE,
        "cpu_memory_budget": _LIMIT,
        "custom_engine_cache": "Use engine_cache, which takes an object with load(key) and save(key, data).",
        "debug": "Use torchtrt.record_compilation; compiled.report says what became of each op.",
        "decompose_attention": "Use disabled_capabilities=['ATTENTION'].",
        "device": "Drop it: engines run on the device of the model. For a DLA, give dla_core and allow_gpu_fallback.",
        "disabled_constant_fold_exclusions": "Drop it: packs name the ops that are not computed while compiling.",
        "dynamically_allocate_resources": "Use share_execution_memory=True.",
        "enable_autocast": "Use autocast=torch.float16 or autocast=torch.bfloat16.",
        "enable_experimental_decompositions": "Name the ops in torch_enabled_decompositions.",
        "enable_resource_partitioning": _LIMIT,
        "engine_cache_dir": "Use engine_cache='folder'.",
        "engine_cache_size": "Set the environment variable TORCHTRT_CACHE_SIZE.",
        "ir": "Drop it: torchtrt.compile exports the model, and torch.compile(model, backend='torchtrt') traces it.",
        "lazy_engine_init": "Drop it: the first call loads the engines.",
        "make_refitable": _REFIT,
        "make_refittable": _REFIT,
        "pass_through_build_failures": "Drop it: an engine that cannot be built is an error. With "
        "torch_executed_on_failure=True, PyTorch runs the op instead.",
        "refit": _REFIT,
        "refit_identical_engine_weights": "Drop it: with immutable_weights=False, all weights can be replaced.",
        "reuse_cached_engines": _CACHE,
        "timing_cache_path": "Use timing_cache='folder'.",
        "truncate_long_and_double": "Use truncate_double=True.",
        "use_complex_decomposition": "Drop it: the pack complex replaces complex values by pairs of real ones.",
        "use_distributed_mode_trace": "Drop it: torchtrt recognizes models with distributed weights.",
        "use_explicit_typing": _TYPING,
        "use_fast_partitioner": "Drop it: there is one way to partition.",
        "use_python_runtime": "Drop it: the runtime is in Python.",
        "use_strong_types": _TYPING,
    }
)
"""For each name a sentence or two."""
