"""The name of an element that nothing else depends on."""

from __future__ import annotations


class Named:
    """Something with a name that nothing else depends on."""

    _name: str

    @property
    def name(self) -> str:
        """The name."""
        return self._name

    @name.setter
    def name(self, value: str) -> None:
        self._name = value
