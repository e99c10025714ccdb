"""Facts about the process group of a collective, and whether engines can exchange tensors in it."""

from __future__ import annotations

from typing import Any

import torch

from torchtrt.errors import ProcessGroupError
from torchtrt.settings import CompilationSettings
from torchtrt.tensorrt import Capability, supports

_NCCL = ("nccl", "fake")
"""The backends with NCCL's communicator, and PyTorch's own stand-in, which exchanges nothing."""


def ranks_of(group: Any) -> list[int]:
    """Returns the ranks of a process group, in its order.

    Raises:
        ProcessGroupError: There is no group of this name.
    """
    from torchtrt_runtime.processes import (
        groups as process_groups,  # here, since importing a pack must be fast
    )

    return process_groups.ranks_of(group)


def group_objection(group_name: Any, settings: CompilationSettings) -> str | None:
    """Returns why engines do not exchange tensors in a process group, or ``None`` if they do."""
    try:
        ranks = ranks_of(group_name)
    except ProcessGroupError as error:
        return str(error)
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
