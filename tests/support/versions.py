"""Tests of what an older PyTorch cannot do."""

from __future__ import annotations

import pytest
import torch
from torch.torch_version import TorchVersion


def since(version: str, reason: str) -> pytest.MarkDecorator:
    """Returns a mark that skips a test on each PyTorch before a version.

    Args:
        version: The oldest PyTorch on which the test passed, such as ``"2.13"``.
        reason: What an older one does instead, as a sentence about PyTorch.
    """
    is_older = TorchVersion(torch.__version__) < version
    return pytest.mark.skipif(is_older, reason=f"before {version}, PyTorch {reason}")
