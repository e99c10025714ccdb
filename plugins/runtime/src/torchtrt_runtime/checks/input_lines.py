"""The inputs of a compiled model in words, for its report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchtrt_runtime.checks.inputs import InputChecks
from torchtrt_runtime.checks.tensors import TensorCheck
from torchtrt_runtime.size_ranges import linear_size


def input_lines(checks: InputChecks) -> Iterator[str]:
    """Yields for each input its name, with its dtype and the sizes that it may have, or its only value."""
    for name, wanted in checks.inputs:
        if isinstance(wanted, TensorCheck) and wanted.is_number:
            yield f"{name}: int {_sizes(wanted.sizes[0], checks)}"
        elif isinstance(wanted, TensorCheck):
            dtype = str(wanted.dtype).removeprefix("torch.")
            yield f"{name}: {dtype} [{', '.join(_sizes(size, checks) for size in wanted.sizes)}]"
        else:
            yield f"{name}: always {wanted!r}"


def _sizes(size: Any, checks: InputChecks) -> str:
    """Returns a fixed size, the range of a dynamic size, or the expression of a size that depends on several."""
    if isinstance(size, int):
        return str(size)
    linear = linear_size(size)
    if linear is None:
        return checks.as_code(size)
    ranges = (linear.sizes(profile[linear.symbol]) for profile in checks.profiles)
    return " or ".join(dict.fromkeys(map(str, ranges)))
