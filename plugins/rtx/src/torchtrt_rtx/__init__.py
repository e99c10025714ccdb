"""TensorRT for RTX as a TensorRT for torchtrt: it builds engines on any machine, and RTX GPUs run them.

The entry-point group ``torchtrt.tensorrt`` names this module ``rtx``. NVIDIA's own module is ``tensorrt_rtx_bindings``;
``load`` imports it on first use. The two functions whose names end in ``objection`` return what it cannot do here.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Sequence
from typing import Any

import torch

from torchtrt.errors import TensorRTUnavailableError

_GPUS = "RTX GPUs of compute capability 8.0, 8.6, 8.9, and 12.0 or later"

DEVICES = _GPUS
"""The devices that run engines."""
DESCRIPTION = f"NVIDIA TensorRT for RTX: builds on any machine, runs on {_GPUS}"
"""A sentence for users: ``torchtrt doctor`` prints it."""
INTERFACE = "11.4.0"
"""The version of TensorRT whose layers, enumerations and settings TensorRT for RTX 1.7 has, plugins excepted."""

_MODULE = "tensorrt_rtx_bindings"
_DISTRIBUTION = "tensorrt-rtx-cu12-bindings"
COMPUTE_CAPABILITIES = ("8.0", "8.6", "8.9", "12.0+")
"""NVIDIA's documentation of version 1.7: an engine with no stated target runs on these, and on all from 12.0 on."""
_NEED_GPU = ("REFIT", "STRIPPED_PLANS")
"""The capabilities for which TensorRT for RTX 1.7 runs code on a GPU while it builds."""
_CAPABILITY_OBJECTIONS = {
    "BUILDS_WITHOUT_GPU": "",
    "VERSION_COMPATIBILITY": "it needs the lean runtime, which TensorRT for RTX does not have",
    "TIMING_CACHE": "TensorRT for RTX times no kernels while it builds",
    "DATA_DEPENDENT_SIZES": "TensorRT for RTX has no NonZero layer",
    "MIXTURE_OF_EXPERTS": "the builder of TensorRT for RTX cannot decompose the MoE layer",
    "NON_MAXIMUM_SUPPRESSION": "TensorRT for RTX has no NMS layer",
    "SINGLE_ROW_LOOPS": "the builder of TensorRT for RTX takes up to minutes for such a loop",
    "BFLOAT16_DECONVOLUTION": "TensorRT for RTX has no Deconvolution of bfloat16",
}
"""For the name of a capability: why TensorRT for RTX 1.7 lacks it, or an empty text if it has it."""


def _installed_versions() -> tuple[str, ...]:
    try:
        return (importlib.metadata.version(_DISTRIBUTION),)
    except importlib.metadata.PackageNotFoundError:
        return ()


VERSIONS = _installed_versions()
"""The installed version of TensorRT for RTX; empty where it is not installed."""

__all__ = [
    "COMPUTE_CAPABILITIES", "DESCRIPTION", "DEVICES", "INTERFACE", "VERSIONS", "capability_objection",
    "device_objection", "load",
]  # fmt: skip


def load(version: str | None = None) -> Any:
    """Returns NVIDIA's module, which is used like ``tensorrt``.

    Raises:
        TensorRTUnavailableError: Its wheels are not installed, or cannot be imported.
    """
    try:
        return importlib.import_module(_MODULE)
    except Exception as error:
        raise TensorRTUnavailableError(
            f"TensorRT for RTX cannot be used here: {type(error).__name__}: {error}. Install it with "
            '`pip install "torchtrt-rtx[tensorrt]"`, on Linux or Windows for x86-64 processors, or choose another '
            "TensorRT with TORCHTRT_TENSORRT."
        ) from error


def device_objection(device: torch.device, targets: Sequence[str] = COMPUTE_CAPABILITIES) -> str:
    """Returns why an engine does not run on a device; ``""`` where TensorRT for RTX supports it.

    Args:
        device: The device.
        targets: The compute capabilities that the engine was built for.
    """
    gpus = f"RTX GPUs of compute capability {_in_words(targets)}"
    if device.type != "cuda":
        return f"TensorRT for RTX runs this engine on {gpus}, and the tensors are on {device}"
    capability = torch.cuda.get_device_capability(device)
    number = "{}.{}".format(*capability)
    if number in targets or any(
        capability >= tuple(map(int, target[:-1].split(".")))
        for target in targets
        if target[-1] == "+"
    ):
        return ""
    gpu = f"{torch.cuda.get_device_name(device)} ({number})"
    return f"TensorRT for RTX runs this engine on {gpus}, and {device} is an {gpu}"


def _in_words(targets: Sequence[str]) -> str:
    """Returns ``"8.6, and 12.0 or later"`` for ``("8.6", "12.0+")``."""
    names = [f"{target[:-1]} or later" if target[-1] == "+" else target for target in targets]
    return ", ".join(names[:-1]) + (", and " if len(names) > 1 else "") + names[-1]


def capability_objection(name: str) -> str | None:
    """Returns why a capability is not available here, ``""`` if it is, and ``None`` if NVIDIA's module decides."""
    if name in _NEED_GPU and not torch.cuda.is_available():
        return "TensorRT for RTX needs a GPU while it builds such engines, and PyTorch finds none"
    return _CAPABILITY_OBJECTIONS.get(name)
