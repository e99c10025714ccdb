"""Every exception and warning that torchtrt raises on purpose.

Each message contains what happened, where (the pack, the layer or the node), and what to do about it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


def did_you_mean(name: str, valid_names: Iterable[str], otherwise: str) -> str:
    """Returns the question that ends a message about an unknown name, or ``otherwise`` if no known one is close."""
    close = difflib.get_close_matches(name, sorted(valid_names), n=1)
    return f"Did you mean {close[0]!r}?" if close else otherwise


def kind_of(value: object) -> str:
    """Returns the type of a value, for a message: ``"a list"``, ``"an ndarray"``."""
    name = type(value).__name__
    return f"{'an' if name.startswith((*'aeioAEIO', 'nd')) else 'a'} {name}"


class TorchTRTError(Exception):
    """The base of torchtrt's exceptions."""


class SettingsError(TorchTRTError, ValueError):
    """A setting has no such name, or its value is unusable."""


class UnsupportedProgramError(TorchTRTError, ValueError):
    """The model, or its exported program, is of a form that cannot be compiled."""


class UnknownTargetError(TorchTRTError, ValueError):
    """An op was named that this PyTorch, with the libraries imported so far, does not have."""

    def __str__(self) -> str:
        # The closest name is searched for when the message is read: packs may name many
        # ops that this PyTorch does not have, which is no error.
        message = self.args[0]
        return str(message() if callable(message) else message)


class AmbiguousTargetError(TorchTRTError, ValueError):
    """A name stands for several ops where exactly one is needed."""


class InvalidTargetError(TorchTRTError, TypeError):
    """Something else than an op is in the place of an op, such as a number or a class."""


class ConverterSignatureError(TorchTRTError, TypeError):
    """The parameters of a converter or validator determine no calling convention."""


class NoConverterError(TorchTRTError, KeyError):
    """No converter accepted a node. The message carries every candidate's reason."""

    def __str__(self) -> str:
        # KeyError shows its argument quoted, which makes one unreadable line of a text of several.
        return str(self.args[0]) if self.args else ""


class ConversionError(TorchTRTError, RuntimeError):
    """A converter failed, or TensorRT refused the layer that it asked for.

    Attributes:
        resolution: The registry's answer for the node that could not be converted, where there is one.
    """

    def __init__(self, message: str, resolution: Any | None = None) -> None:
        super().__init__(message)
        self.resolution = resolution


class TensorRTUnavailableError(TorchTRTError, RuntimeError):
    """The TensorRT that was asked for cannot be used here."""


class UnsupportedDtypeError(TorchTRTError):
    """The TensorRT in use has no such dtype."""


class NewAssumptionError(TorchTRTError):
    """Code that looked at a graph would have fixed one of its symbolic sizes.

    Attributes:
        expression: What the code asked.
        value: The answer for the sizes in the example.
    """

    expression: Any = None
    value: Any = None


class PackError(TorchTRTError):
    """A converter pack is unusable, or a pack was used wrongly."""


class PackWarning(UserWarning):
    """A converter pack was found but is not used, or not as asked."""


class CatalogueError(TorchTRTError, ValueError):
    """A list of packs that may be installed cannot be read, or names something else than packs and ops."""


class CatalogueWarning(UserWarning):
    """A list of packs that may be installed cannot be read. The other lists remain."""


class CacheWarning(UserWarning):
    """A cache of engines, timings or kernels cannot be used as asked. Compiling goes on without it."""


class ConversionWarning(UserWarning):
    """An op stays in PyTorch because its converter failed or TensorRT refused it: see ``torch_executed_on_failure``."""


class SettingsWarning(UserWarning):
    """A setting changes nothing in a compilation, or less than it was to."""


class SizeWarning(UserWarning):
    """Sizes that were asked for are not compiled, because PyTorch exports the model differently for them."""


class NoEngineWarning(UserWarning):
    """Nothing of a model became an engine, so that all of it runs in PyTorch."""


class DequantizedWeightsWarning(UserWarning):
    """Packed weights are compiled in floating point, because no pack supports their format."""


class FollowWarning(UserWarning):
    """PyTorch runs a call of a model that ``torchtrt.follow`` returned, or the model is exported again and again."""


class InputError(TorchTRTError, ValueError):
    """An input, given to compile for or to run on, does not fit: its kind, dtype, shape or number."""


class ExportError(TorchTRTError, RuntimeError):
    """``torch.export`` could not trace the model."""


@dataclass(frozen=True)
class TorchOp:
    """A node that stays in PyTorch, and why.

    Attributes:
        node: The node's name.
        op: Its op's qualified name.
        reason: Why it stays there, in one or more lines that name the converters.
        codes: The rejection codes, in the order of the candidates; ``docs/registry.md`` lists them.
        advice: What to do about it, as packs suggest.
        model_line: The line of the model that made the node, or an empty string.
        reasons: The reasons alone, without the names of converters.
        available: The distributions that provide the op and are not installed.
    """

    node: str
    op: str
    reason: str
    codes: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    model_line: str = ""
    reasons: tuple[str, ...] = ()
    available: tuple[str, ...] = ()


class FullCompilationError(TorchTRTError, RuntimeError):
    """Nodes would stay in PyTorch although ``require_full_compilation`` was asked for.

    Or all of a followed model would, although ``fallback=False`` was.

    Attributes:
        missing: The nodes.
    """

    def __init__(self, message: str, missing: tuple[TorchOp, ...] = ()) -> None:
        super().__init__(message)
        self.missing = missing


class BuildError(TorchTRTError, RuntimeError):
    """TensorRT refused to build a network."""


class VerificationError(TorchTRTError, RuntimeError):
    """A network computes something else than the model, or eager PyTorch does not run the model to compare them.

    Attributes:
        outputs: What was compared; see ``CompilationReport.verified``.
    """

    def __init__(self, message: str, outputs: tuple[Any, ...] = ()) -> None:
        super().__init__(message)
        self.outputs = outputs


class EngineError(TorchTRTError, RuntimeError):
    """An engine could not be loaded or run."""


class EngineMismatchError(EngineError):
    """An engine was built for another TensorRT or another GPU, or runs an op by a plugin of a pack that is not here."""


class ProcessGroupError(EngineError):
    """The other processes of a model are missing, or are not those that it was compiled for."""


class RefitError(EngineError):
    """New weights do not fit a compiled model, or it cannot take any. Nothing was changed."""


class UnreadableFileError(TorchTRTError, ValueError):
    """A file is no saved model, or is damaged."""


class UnwritableFileError(TorchTRTError, OSError):
    """A model cannot be saved, or added to a repository, where it was asked for."""


class MissingOperatorError(TorchTRTError, RuntimeError):
    """A saved model calls an op that no imported library has registered."""


class MissingDistributionError(TorchTRTError, ImportError):
    """A part of torchtrt is in a distribution that is not installed."""
