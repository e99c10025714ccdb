"""Facts about the process group of a collective, and whether engines can exchange tensors in it."""

from __future__ import annotations

from typing import Any

import torch

from torchtrt.settings import CompilationSettings
from torchtrt.tensorrt import Capability, supports
from torchtrt_runtime.process_groups import ranks_of

_NCCL = ("nccl", "fake")
"""The backends with NCCL's communicator, and PyTorch's own stand-in, which exchanges nothing."""


def group_objection(group_name: Any, settings: CompilationSettings) -> str | None:
    """Returns why engines do not exchange tensors in a process group, or ``None`` if they do."""
    try:
        ranks = ranks_of(group_name)
    except Exception as error:  # of PyTorch, which has several kinds
        return f"the process group {group_name!r} does not exist: {error}"
    if len(ranks) == 1:
        return None
    if ranks != sorted(ranks):
        return f"the ranks {ranks} of the process group are not in ascending order"
    return _transport_objection(settings)


def _transport_objection(settings: CompilationSettings) -> str | None:
    if supports(Capability.PROCESS_GROUPS):
        return None
    if not settings.nccl_in_engines:
        return "PyTorch runs collectives, unless nccl_in_engines=True leaves them to TensorRT"
    backends = torch.distributed.get_backend_config()
    if not any(name in backends for name in _NCCL):
        return f"TensorRT exchanges tensors over NCCL, and torch.distributed over {backends}"
    return None
