"""What several objects of the interface have in common: a name, and inputs and outputs by number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchtrt_reference.interface.tensors import Tensor


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


class Ported:
    """Something with inputs and outputs: a layer or a network."""

    _inputs: Sequence[Tensor | None]
    _outputs: Sequence[Tensor]

    def get_input(self, index: int) -> Tensor | None:
        """Returns an input, None where there is none."""
        return self._inputs[index] if 0 <= index < len(self._inputs) else None

    def get_output(self, index: int) -> Tensor | None:
        """Returns an output, None where there is none."""
        return self._outputs[index] if 0 <= index < len(self._outputs) else None

    @property
    def num_inputs(self) -> int:
        """The number of inputs."""
        return len(self._inputs)

    @property
    def num_outputs(self) -> int:
        """The number of outputs."""
        return len(self._outputs)
