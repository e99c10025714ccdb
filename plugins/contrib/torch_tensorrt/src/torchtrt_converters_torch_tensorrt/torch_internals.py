"""The parts of PyTorch without a public name that the pack uses. They ran with PyTorch 2.11, 2.13 and 2.15.

``pytree`` flattens nested containers. ``torch.utils.pytree`` of later versions is not in 2.13.
``ConstantSource``, ``FakeTensorMode`` and ``ValueRanges`` describe the dynamic sizes of a traced converter.
"""

from torch._dynamo.source import ConstantSource
from torch._subclasses import FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._sympy.value_ranges import ValueRanges

__all__ = ["ConstantSource", "FakeTensorMode", "ValueRanges", "pytree"]
