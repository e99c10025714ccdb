"""What the distribution ``torchtrt-engines`` brings, imported when it is first needed: engines outside their process.

It is found through the entry-point group ``torchtrt.engines``.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import IO, TYPE_CHECKING, Any

import torch

from torchtrt.errors import MissingPieceError

if TYPE_CHECKING:
    from torchtrt.runtime import CompiledModule

CACHE_VARIABLE = "TORCHTRT_CACHE"


@functools.cache
def engines() -> Any:
    """Returns the package ``torchtrt_engines``.

    Raises:
        MissingPieceError: It is not installed.
    """
    found = tuple(entry_points(group="torchtrt.engines"))
    if not found:
        raise MissingPieceError(
            "Saving, loading, caching and refitting engines is in a distribution of its own, which is not installed: "
            "`pip install torchtrt-engines`."
        )
    return found[0].load()


def engine_cache(setting: bool | str | os.PathLike[str] | None) -> Any:
    """Returns the cache that a compilation with this setting uses, or None.

    Raises:
        MissingPieceError: There shall be one, and ``torchtrt-engines`` is not installed.
    """
    where = os.environ.get(CACHE_VARIABLE, "") if setting is None else setting
    return engines().open_cache(where) if where and where != "0" else None


def save(compiled: CompiledModule, path: str | os.PathLike[str] | IO[bytes]) -> None:
    """Writes a compiled model to a ``.pt2`` file, engines and all.

    ``torchtrt.load(path)`` reads it; so does, once torchtrt is imported, ``torch.export.load(path)``.

    Args:
        compiled: What :func:`torchtrt.compile` returned.
        path: The file, or something to write bytes to. A file appears complete or not at all.

    Raises:
        UnsupportedProgramError: The model holds something that has no form in a file; the message names it.
        MissingPieceError: ``torchtrt-engines`` is not installed.
    """
    engines().save(compiled, path)


def load(path: str | os.PathLike[str] | IO[bytes]) -> CompiledModule:
    """Returns the compiled model in a file that :func:`save` wrote. Nothing in the file is executed.

    Args:
        path: The file, or something to read bytes from that can seek.

    Raises:
        UnreadableFileError: The file is no saved model, or is damaged.
        EngineMismatchError: Its engines are for another TensorRT, or for another GPU.
        MissingOperatorError: A library has to be imported first, for an operator that the model calls.
        MissingPieceError: ``torchtrt-engines`` is not installed.
    """
    return engines().load(path)  # type: ignore[no-any-return]


def refit_module_weights(
    compiled: CompiledModule,
    new_weights: torch.nn.Module | torch.export.ExportedProgram | Mapping[str, torch.Tensor],
    *,
    in_place: bool = False,
) -> CompiledModule:
    """Returns a compiled model with other weights, without building engines.

    Args:
        compiled: A model compiled with ``immutable_weights=False``, or loaded.
        new_weights: A model of the same class, its exported program, or a state dict: all of its weights, by their
            names, with the shapes and dtypes that they had.
        in_place: Give the weights to ``compiled`` itself, rather than to a copy.

    Raises:
        RefitError: The weights do not fit, or something that depends on their values is compiled in. Nothing has
            changed then.
        MissingPieceError: ``torchtrt-engines`` is not installed.
    """
    return engines().refit_module_weights(compiled, new_weights, in_place=in_place)  # type: ignore[no-any-return]


def _run(inputs: list[torch.Tensor], plan: torch.Tensor, description: str) -> list[torch.Tensor]:
    return engines().execute_engine(inputs, plan, description)  # type: ignore[no-any-return]


def _fake(inputs: list[torch.Tensor], plan: torch.Tensor, description: str) -> list[torch.Tensor]:
    return engines().engine_outputs(inputs, plan, description)  # type: ignore[no-any-return]


def _no_gradients(_: Any, *gradients: Any) -> Any:
    return engines().no_gradients(*gradients)


_LIBRARY: Any = torch.library.Library("torchtrt", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define(
    "execute_engine(Tensor[] inputs, Tensor plan, str description) -> Tensor[]",
    tags=torch.Tag.pt2_compliant_tag,
)
_LIBRARY.impl("execute_engine", _run, "CompositeExplicitAutograd")
torch.library.register_fake("torchtrt::execute_engine", _fake, lib=_LIBRARY)
torch.library.register_autograd("torchtrt::execute_engine", _no_gradients, lib=_LIBRARY)
