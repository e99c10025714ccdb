"""Front ends: what turns a kind of model that ``torch.export`` does not take into an exported program.

One is found through the entry-point group ``torchtrt.frontends``, whose entry names a module with the
functions of ``FrontEnd``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from torch.export import ExportedProgram

from torchtrt.packs import FRONT_ENDS
from torchtrt.packs.extensions import installed, module_of


class FrontEnd(Protocol):
    """The functions of a front end's entry-point module. Importing it must be cheap."""

    def accepts(self, model: object) -> bool:
        """Returns whether this front end takes the model. Called before ``torch.export``."""

    def export(
        self,
        model: Any,
        inputs: Sequence[Any],
        kwarg_inputs: Mapping[str, Any],
        dynamic_shapes: Any,
    ) -> ExportedProgram:
        """Returns the model as an exported program. The arguments are those of ``torchtrt.compile``."""


def front_end_for(model: object) -> FrontEnd | None:
    """Returns the installed front end that takes a model, the first by name; ``None`` if none does."""
    for _, extension in sorted(installed(FRONT_ENDS).items()):
        module = module_of(extension)
        if not isinstance(module, str) and module.accepts(model):
            return cast("FrontEnd", module)
    return None
