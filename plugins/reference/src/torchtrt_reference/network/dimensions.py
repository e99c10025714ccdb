"""``Dims`` and ``Permutation``: the small containers of TensorRT's interface."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from torchtrt_reference.implementation import Implementation

RANK_LIMIT = 8


def exact_int(value: Any) -> int:
    """Returns ``value`` as an int; floats, strings and None are a TypeError."""
    if hasattr(value, "__index__"):
        return int(value.__index__())
    message = f"Expected an integer, not {value!r} of type {type(value).__name__}."
    raise TypeError(message)


class Dims(Implementation):
    """A mutable shape of up to eight dimensions, or the invalid shape, which has no length.

    It equals lists and tuples only; comparing two ``Dims`` is a TypeError, as in TensorRT.
    """

    _implements = ("Dims",)
    _checks_arguments = True
    _maximum: ClassVar[int] = 2**63 - 1
    _values: list[int] | None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, *shape: Any) -> None:
        values = shape[0] if len(shape) == 1 and not hasattr(shape[0], "__index__") else shape
        self._values = [self._checked(value) for value in values]
        if len(self._values) > RANK_LIMIT:
            message = f"Dims hold at most {RANK_LIMIT} dimensions, not {len(self._values)}."
            raise ValueError(message)

    @classmethod
    def _follow(cls, spec: Mapping[str, Any]) -> None:
        # Where MAX_DIMS is a property, dimensions are 32-bit.
        if "MAX_DIMS" in spec["properties"]:
            cls._maximum = 2**31 - 1
            cls.MAX_DIMS = property(lambda _: RANK_LIMIT)  # type: ignore[attr-defined]

    @classmethod
    def _invalid(cls) -> Dims:
        made = cls()
        made._values = None
        return made

    @classmethod
    def _checked(cls, value: Any) -> int:
        dimension = exact_int(value)
        if abs(dimension) > cls._maximum:
            message = f"The dimension {dimension} does not fit into TensorRT's integer."
            raise TypeError(message)
        return dimension

    def _listed(self) -> list[int]:
        if self._values is None:
            message = "These Dims are invalid: the shape is not known, or was never set."
            raise ValueError(message)
        return self._values

    def __len__(self) -> int:
        return len(self._listed())

    def __iter__(self) -> Iterator[int]:
        return iter(tuple(self._listed()))

    def __getitem__(self, index: Any) -> Any:
        selected = self._listed()[index]
        return tuple(selected) if isinstance(selected, list) else selected

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            self._listed()[index] = [self._checked(item) for item in value]
        else:
            self._listed()[index] = self._checked(value)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (list, tuple)):
            return self._values is not None and self._values == list(other)
        message = f"Dims compare with lists and tuples only, not with {type(other).__name__}."
        raise TypeError(message)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __repr__(self) -> str:
        return "(invalid)" if self._values is None else str(tuple(self._values))


def _fixed_rank(rank: int) -> Any:
    def __init__(self: Dims, *shape: Any) -> None:
        Dims.__init__(self, *(shape or ([0] * rank,)))
        if len(self) != rank:
            message = f"{type(self).__name__} hold exactly {rank} dimensions, not {len(self)}."
            raise ValueError(message)

    return __init__


class Dims2(Dims):
    """Two dimensions."""

    _implements = ("Dims2",)
    __init__ = _fixed_rank(2)


class Dims3(Dims):
    """Three dimensions."""

    _implements = ("Dims3",)
    __init__ = _fixed_rank(3)


class Dims4(Dims):
    """Four dimensions."""

    _implements = ("Dims4",)
    __init__ = _fixed_rank(4)


class DimsHW(Dims2):
    """A height and a width."""

    _implements = ("DimsHW",)

    @property
    def h(self) -> int:
        """The height."""
        return int(self[0])

    @h.setter
    def h(self, value: int) -> None:
        self[0] = value

    @property
    def w(self) -> int:
        """The width."""
        return int(self[1])

    @w.setter
    def w(self, value: int) -> None:
        self[1] = value


class Permutation(Implementation):
    """A permutation of up to eight axes; it always shows eight entries, the unused ones 0."""

    _implements = ("Permutation",)
    _checks_arguments = True

    def __init__(self, order: Iterable[Any] = ()) -> None:
        axes = [exact_int(axis) for axis in order]
        self._rank = len(axes)
        if self._rank > RANK_LIMIT:
            message = f"A Permutation holds at most {RANK_LIMIT} axes, not {self._rank}."
            raise ValueError(message)
        self._order = axes + [0] * (RANK_LIMIT - self._rank)

    def _axes(self) -> tuple[int, ...]:
        """The entries up to the last one that was set."""
        return tuple(self._order[: self._rank])

    def __len__(self) -> int:
        return RANK_LIMIT

    def __iter__(self) -> Iterator[int]:
        return iter(tuple(self._order))

    def __getitem__(self, index: Any) -> Any:
        return self._order[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._order[index] = exact_int(value)
        self._rank = max(self._rank, range(RANK_LIMIT)[index] + 1)

    def __repr__(self) -> str:
        return str(tuple(self._order))


def volume(iterable: Iterable[int]) -> int:
    """Returns the product of the dimensions; 1 for none."""
    return math.prod(iterable)
