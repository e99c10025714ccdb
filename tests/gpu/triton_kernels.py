"""Kernels in Triton, which reads their source from a file; only tests that found Triton import it."""

import triton
import triton.language as tl


@triton.jit
def doubled_kernel(x, n, y, BLOCK: tl.constexpr):
    """Writes twice a tensor."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y + offsets, tl.load(x + offsets, mask=mask) * 2, mask=mask)
