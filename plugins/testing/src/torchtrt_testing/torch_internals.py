"""The parts of PyTorch without a public name that the test kit uses. They ran with PyTorch 2.11, 2.13 and 2.15.

``FakeTensor`` and ``FakeTensorMode`` are tensors without values. They have no public name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

__all__ = ["FakeTensor", "FakeTensorMode", "default_tolerances", "op_database"]


def default_tolerances(*tensors: torch.Tensor) -> tuple[float, float]:
    """Returns the relative and the absolute tolerance of ``torch.testing.assert_close`` for the dtypes of tensors.

    It wraps ``torch.testing._comparison.default_tolerances``. The documentation of ``assert_close`` has the same table.
    """
    from torch.testing._comparison import default_tolerances

    relative, absolute = default_tolerances(*tensors)
    return relative, absolute


def op_database() -> Sequence[Any]:
    """Returns PyTorch's own samples, by op. It wraps ``op_db`` of ``torch.testing._internal``, and imports for seconds.

    There is no public fallback: PyTorch's tests alone have samples of every op.
    """
    from torch.testing._internal.common_methods_invocations import op_db

    return op_db
