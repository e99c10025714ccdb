"""The decorators of this pack's converters."""

from __future__ import annotations

import functools

from torchtrt_converters_aten_core import pack
from torchtrt_converters_aten_core.impl.registration import converts_for

converts = converts_for(pack)
converts_elementwise = functools.partial(converts, empty=True, numbers=True, asks_sizes=False)
"""The decorator for converters whose layers work element by element: they accept tensors without elements."""
