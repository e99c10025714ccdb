"""The parts of PyTorch without a public name that the backend uses. They ran with PyTorch 2.11, 2.13 and 2.15.

- ``aot_autograd`` makes a backend of a compiler of graphs without gradients.
- ``TracingContext`` has the guards and the parameters of the graph that Dynamo compiles.
- ``without_modes`` turns the modes of a trace off inside a ``with`` block.

A backend of ``torch.compile`` has no public way to either of them.
"""

from torch._dynamo.backends.common import aot_autograd
from torch._guards import TracingContext
from torch.utils._python_dispatch import _disable_current_modes as without_modes

__all__ = ["TracingContext", "aot_autograd", "without_modes"]
