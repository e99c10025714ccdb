"""The inputs of a compiled model in words, for its report."""

from __future__ import annotations

from collections.abc import Iterator

from torchtrt.tensorrt.dtypes import dtype_name
from torchtrt_runtime.checks.dimensions import Dimension
from torchtrt_runtime.checks.inputs import InputChecks
from torchtrt_runtime.checks.tensors import TensorCheck


def input_lines(checks: InputChecks) -> Iterator[str]:
    """Yields for each input its name, with its dtype and the sizes that it may have, or its only value."""
    for name, wanted in checks.inputs:
        if not isinstance(wanted, TensorCheck):
            yield f"{name}: always {wanted!r}"
            continue
        sizes = [_sizes(dimension, checks) for dimension in wanted.dimensions]
        dtype = dtype_name(wanted.dtype)
        yield (
            f"{name}: int {sizes[0]}"
            if wanted.is_number
            else f"{name}: {dtype} [{', '.join(sizes)}]"
        )


def _sizes(dimension: Dimension, checks: InputChecks) -> str:
    """Returns a fixed size, the range of a dynamic size, or the expression of a size that depends on several."""
    size, linear = dimension.size, dimension.linear
    if linear is None:
        return str(size) if isinstance(size, int) else checks.as_code(size)
    ranges = (linear.sizes(profile[linear.symbol]) for profile in checks.profiles)
    return " or ".join(dict.fromkeys(map(str, ranges)))
