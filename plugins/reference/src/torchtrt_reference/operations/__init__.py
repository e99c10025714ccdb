"""The semantics of TensorRT's layers, one family to a file; ``OPERATIONS`` is the table of all.

A family is a module that defines ``OPERATIONS`` in one of the folders. Listing the folders finds it, so a new family is
a new file and nothing else:

* ``values``: values that are made or changed element by element;
* ``positions``: elements that move, or are chosen by their position;
* ``contractions``: many elements that become one: sums, products, windows;
* ``composites``: layers that stand for several others;
* ``control``: loops and conditionals.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from torchtrt_reference.semantics.operation import Operation


def families() -> list[ModuleType]:
    """Returns the modules that define operations, in the order of their names."""
    listed = pkgutil.walk_packages(__path__, f"{__name__}.")
    return [importlib.import_module(module.name) for module in listed if not module.ispkg]


OPERATIONS: dict[str, Operation] = {
    operation.name: operation for family in families() for operation in family.OPERATIONS
}
METHODS: dict[str, Operation] = {
    method: operation for operation in OPERATIONS.values() for method in operation.methods
}
