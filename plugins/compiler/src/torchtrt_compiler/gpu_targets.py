"""The GPUs that engines are built for, where TensorRT takes them by compute capability."""

from __future__ import annotations

from typing import Any

import torch

from torchtrt.errors import SettingsError
from torchtrt.settings import CompilationSettings
from torchtrt.tensorrt import Capability, lacking, supports, trt
from torchtrt.tensorrt.selection import default_compute_capabilities

_SETTING = "target_compute_capabilities"


def compute_capabilities(settings: CompilationSettings) -> tuple[str, ...]:
    """Returns the compute capabilities of the GPUs that run the engines of a compilation: ``("8.6", "12.0")``.

    A ``+`` behind the last one includes later ones. The result is empty if TensorRT takes no targets.

    Raises:
        SettingsError: The TensorRT in use takes no targets, or not these.
    """
    wanted = settings.target_compute_capabilities
    if not wanted:
        return default_compute_capabilities()
    if problem := lacking(f"The setting {_SETTING}", Capability.TARGET_COMPUTE_CAPABILITIES):
        raise SettingsError(f"{problem}.")
    targets = _targets()
    if wanted == ("all",):
        return tuple(targets)
    if wanted == ("current",):
        if not torch.cuda.is_available():
            raise SettingsError(
                f"The setting {_SETTING}='current' needs a GPU while building, and PyTorch finds none. Name compute "
                f"capabilities: {', '.join(targets)}."
            )
        wanted = ("{}.{}".format(*torch.cuda.get_device_capability()),)
    unknown = [capability for capability in wanted if capability not in targets]
    if unknown:
        raise SettingsError(
            f"The setting {_SETTING} names {', '.join(unknown)}, and this TensorRT builds for {', '.join(targets)}."
        )
    return tuple(capability for capability in targets if capability in wanted)


def _targets() -> dict[str, Any]:
    """Returns the targets that TensorRT takes, by compute capability: ``{"8.6": ComputeCapability.SM86}``."""
    members = trt.ComputeCapability.__members__.items()
    numbers = {name.removeprefix("SM"): member for name, member in members if name[:2] == "SM"}
    in_order = sorted(numbers, key=int)
    return {f"{number[:-1]}.{number[-1]}": numbers[number] for number in in_order}


def set_targets(config: Any, settings: CompilationSettings) -> None:
    """Configures a builder for the GPUs that the settings name."""
    if not settings.target_compute_capabilities:
        return
    targets, wanted = _targets(), compute_capabilities(settings)
    config.num_compute_capabilities = len(wanted)
    for index, capability in enumerate(wanted):
        config.set_compute_capability(targets[capability], index)


def allocates_nothing(settings: CompilationSettings) -> bool:
    """Returns whether engines must not allocate memory while they run, so that a stream can capture them."""
    captures = settings.cuda_graphs in (True, "overwrite")
    return settings.user_allocation or (captures and supports(Capability.USER_ALLOCATION))
