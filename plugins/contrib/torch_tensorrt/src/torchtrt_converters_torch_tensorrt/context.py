"""The context and the settings as adopted functions see them: ours, with the attributes that Torch-TensorRT's have."""

from __future__ import annotations

from typing import Any

import torch

from torchtrt.conversion import ConversionContext
from torchtrt.settings import CompilationSettings

DEFAULTS = {
    "attn_bias_is_causal": False,
    "cache_built_engines": False,
    "cpu_memory_budget": None,
    "debug": False,
    "decompose_attention": False,
    "device": torch.device("cuda"),
    "dynamically_allocate_resources": False,
    "enable_experimental_decompositions": False,
    "enable_resource_partitioning": False,
    "lazy_engine_init": False,
    "make_refittable": False,
    "pass_through_build_failures": False,
    "refit_identical_engine_weights": False,
    "reuse_cached_engines": False,
    "timing_cache_path": "",
    "use_distributed_mode_trace": False,
    "use_explicit_typing": True,
    "use_fast_partitioner": True,
    "use_python_runtime": True,
}
"""Torch-TensorRT's settings that torchtrt lacks, with the values that describe how torchtrt compiles."""


class AdoptedSettings(CompilationSettings):
    """The settings of a compilation, which also answer to Torch-TensorRT's names.

    Attributes:
        original: The settings themselves.
    """

    original: CompilationSettings

    @classmethod
    def over(cls, settings: Any) -> AdoptedSettings:
        """Returns settings as adopted functions see them."""
        if isinstance(settings, cls):
            return settings
        made = object.__new__(cls)
        vars(made).update(vars(settings), original=settings)
        return made

    def __getattr__(self, name: str) -> Any:
        if name == "enabled_precisions":
            return {torch.float32} | ({self.autocast} if self.autocast else set())
        if name == "enable_autocast":
            return self.autocast is not None
        if name == "autocast_low_precision_type":
            return self.autocast
        if name in DEFAULTS:
            return DEFAULTS[name]
        raise AttributeError(f"torchtrt has no setting named {name!r}.")


class AdoptedContext(ConversionContext):
    """The conversion context, which also answers to Torch-TensorRT's names. It shares all with the one it is over."""

    requires_native_multidevice = False

    @classmethod
    def over(cls, ctx: ConversionContext) -> AdoptedContext:
        """Returns a context as adopted converters see it."""
        if isinstance(ctx, cls):
            return ctx
        made = object.__new__(cls)
        made.__dict__ = ctx.__dict__
        return made

    @property
    def compilation_settings(self) -> AdoptedSettings:  # type: ignore[override]
        """The settings of this compilation."""
        return AdoptedSettings.over(self.__dict__["compilation_settings"])

    @property
    def weight_refit_map(self) -> dict[str, torch.Tensor]:
        """The records of adopted converters. Nothing reads them: torchtrt follows weights into the network itself."""
        recorded: dict[str, torch.Tensor] = self.attachments.setdefault(
            "torch_tensorrt_weights", {}
        )
        return recorded

    def record_weight(self, name: str, weight: torch.Tensor) -> None:
        """Notes that the engine's weights ``name`` hold ``weight``, and keeps its memory: several may have one name."""
        self.weight_refit_map[name] = weight
        self.cpu_weights_reference_holder.append(weight)

    @property
    def current_node(self) -> torch.fx.Node | None:
        """The graph node in conversion."""
        return self.node
