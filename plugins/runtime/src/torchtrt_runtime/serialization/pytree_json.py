"""How the inputs or the outputs of a model nest, as data.

PyTorch writes containers that it has a name for. Named tuples, its own among them, it has none for unless they were
registered: they are written as tuples, with their classes beside them.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping
from typing import Any

from torchtrt.errors import TorchTRTError, UnreadableFileError, UnsupportedProgramError
from torchtrt.torch_internals import pytree
from torchtrt_runtime.serialization.file_safety import check_tree, imported

_REGISTERED = "torch.export.register_dataclass(..., serialized_type_name=...)"
"""The call that registers the name of a dataclass in a file."""
_LEAF = pytree.tree_structure(0)


def unnamed(tree: pytree.TreeSpec) -> tuple[pytree.TreeSpec, dict[str, str]]:
    """Returns a tree with tuples in place of the named tuples that PyTorch cannot write, and the class at each path.

    Raises:
        UnsupportedProgramError: A class cannot be found by its name.
    """
    classes: dict[str, str] = {}
    return _unnamed(tree, "", classes), classes


def _unnamed(tree: pytree.TreeSpec, path: str, classes: dict[str, str]) -> pytree.TreeSpec:
    """Returns a tree with plain tuples for named ones, and adds to ``classes`` the class at each path.

    Raises:
        UnsupportedProgramError: A class cannot be found by its name.
    """
    if tree.is_leaf():
        return tree
    children = [
        _unnamed(child, f"{path}/{index}", classes) for index, child in enumerate(_children(tree))
    ]
    kind = tree.context if tree.type is namedtuple else tree.type
    if not _is_named_tuple(kind) or not _objection(tree):
        return pytree.TreeSpec(tree.type, tree.context, children)
    classes[path] = f"{kind.__module__}:{kind.__qualname__}"
    if imported(classes[path]) is not kind:
        raise UnsupportedProgramError(
            f"The model takes or returns the named tuple {classes[path]!r}, which cannot be found by its name. "
            "Define it at the top of a module, or return a dictionary."
        )
    return pytree.TreeSpec(tuple, None, children)


def tree_to_json(tree: pytree.TreeSpec) -> str:
    """Returns a tree without named tuples of its own as text.

    Raises:
        UnsupportedProgramError: It would not be the same tree again.
    """
    try:
        text = pytree.treespec_dumps(tree)
        is_same = tree_from_json(text) == tree
        reason = "what PyTorch writes of it is something else"
    except (NotImplementedError, TypeError, ValueError, AttributeError, TorchTRTError) as error:
        is_same, reason = False, str(error).rstrip(".")
    if is_same:
        return text
    if (kind := _without_name(tree)) is not None:
        name = kind.__name__
        raise UnsupportedProgramError(
            f"The model takes or returns a container of the class {name}, which is registered with PyTorch without a "
            "name for files. Give the registration the argument serialized_type_name=, as in "
            f"torch.export.register_dataclass({name}, "
            f'serialized_type_name="{kind.__module__}.{name}"), here and where the file is loaded.'
        )
    raise UnsupportedProgramError(
        f"The model takes or returns {tree}, which has no form in a file: {reason}. Use tuples, lists, dictionaries "
        f"whose keys are text or numbers, and dataclasses that are registered with {_REGISTERED}."
    )


def _without_name(tree: pytree.TreeSpec) -> type | None:
    """Returns the first class of a tree that is registered with PyTorch, and without a name for files."""
    if tree.is_leaf():
        return None
    if isinstance(tree.type, type) and "serialized_type_name" in _objection(tree):
        return tree.type
    return next(filter(None, map(_without_name, _children(tree))), None)


def tree_from_json(text: str, classes: Mapping[str, str] | None = None) -> pytree.TreeSpec:
    """Returns the tree that was written.

    Args:
        text: What ``tree_to_json`` returned.
        classes: The classes of named tuples, by their places.

    Raises:
        UnreadableFileError: A container is not known here.
    """
    check_tree(text)
    try:
        tree = pytree.treespec_loads(text)
    except (NotImplementedError, KeyError, TypeError) as error:
        what = str(error).rstrip(".")
        raise UnreadableFileError(
            f"The model takes or returns a container that is not known here: {what}. Import the library that has it, "
            f"or register it with {_REGISTERED}, before loading."
        ) from error
    return _named(tree, "", classes) if classes else tree


def _named(tree: pytree.TreeSpec, path: str, classes: Mapping[str, str]) -> pytree.TreeSpec:
    """Returns a tree with named tuples at the paths in ``classes``.

    Raises:
        UnreadableFileError: A class is not known here.
    """
    if tree.is_leaf():
        return tree
    children = [
        _named(child, f"{path}/{index}", classes) for index, child in enumerate(_children(tree))
    ]
    if path not in classes:
        return pytree.TreeSpec(tree.type, tree.context, children)
    kind = imported(classes[path])
    if not _is_named_tuple(kind) or _length(kind) != len(children):
        raise UnreadableFileError(
            f"The model takes or returns the named tuple {classes[path]!r}, which is not known here. Import its "
            "module before loading."
        )
    if hasattr(kind, "_fields"):
        return pytree.TreeSpec(namedtuple, kind, children)
    return pytree.TreeSpec(kind, None, children)


def _is_named_tuple(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and _length(kind) is not None


def _length(kind: Any) -> int | None:
    """Returns how many values a named tuple has; PyTorch's own count them otherwise."""
    fields = getattr(kind, "_fields", None)
    return getattr(kind, "n_fields", None) if fields is None else len(fields)


def _objection(tree: pytree.TreeSpec) -> str:
    """Returns why PyTorch does not write a container; nothing if it does."""
    leaves = [_LEAF] * len(_children(tree))
    try:
        pytree.treespec_dumps(pytree.TreeSpec(tree.type, tree.context, leaves))
    except (NotImplementedError, TypeError) as error:
        return str(error) or "it has no form"
    return ""


def _children(tree: Any) -> list[Any]:
    return list(tree.children() if hasattr(tree, "children") else tree.children_specs)
