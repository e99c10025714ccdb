"""The decorators of this pack's converters."""

from __future__ import annotations

import functools

from torchtrt_blocks.registration import converts_for
from torchtrt_converters_aten_core import pack

converts = converts_for(pack)
converts_elementwise = functools.partial(
    converts, supports_empty=True, scalars_are_data=True, reads_runtime_shape=False
)
"""The decorator for converters whose layers work element by element: they accept tensors without elements."""
