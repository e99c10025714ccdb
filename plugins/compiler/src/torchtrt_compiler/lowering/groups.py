"""Groups of nodes, which run one after the other: no engine has nodes of two groups.

``lowering/divided_rows.py`` makes them. Without it, no node has a group.
"""

from __future__ import annotations

from torch.fx import Node

_GROUP = "torchtrt_group"


def group_of(node: Node) -> int | None:
    """Returns the number of a node's group, in the order in which they run; ``None`` if it has none."""
    return node.meta.get(_GROUP)


def put_into_group(node: Node, group: int | None) -> None:
    """Puts a node into a group; does nothing for ``None``."""
    if group is not None:
        node.meta[_GROUP] = group
