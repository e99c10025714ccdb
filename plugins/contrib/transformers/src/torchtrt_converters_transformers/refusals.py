"""Why a model cannot be compiled for generation, and what to do instead."""

from __future__ import annotations

import contextlib
import inspect
import os
import traceback
from collections.abc import Iterator
from typing import Any

from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

from torchtrt.errors import ExportError, UnsupportedProgramError


class Refusal(UnsupportedProgramError):
    """A reason, to which ``refusing`` adds the model, and what to do.

    Args:
        reason: Why the model cannot be compiled for generation, as a clause without a full stop.
        advice: What to do, likewise; None for what works for each model of the kind.
    """

    def __init__(self, reason: str, advice: str | None = None) -> None:
        super().__init__(reason)
        self.reason, self.advice = reason, advice


@contextlib.contextmanager
def refusing(model: Any) -> Iterator[None]:
    """Raises an ``UnsupportedProgramError`` with the model, the reason and what to do, for each way of refusing one."""
    try:
        yield
    except Refusal as refusal:
        reason, advice = refusal.reason, refusal.advice or _instead(model)
        if refusal.__cause__ is not None:
            reason += f": {_raised(model, refusal.__cause__)}"
        raise _error(model, reason, advice) from refusal
    except ExportError as error:
        cause = error.__cause__ or error
        depends = "DataDependent" in type(cause).__name__
        reason = "torch.export cannot trace its code"
        if depends:
            reason += f", which depends on values of tensors: {_failing_line(model, cause)}"
        else:
            reason += f": {_raised(model, cause)}"
        advice = f"{_IN_PYTORCH}, or change this line"
        raise _error(model, reason, advice) from error


def other_modalities(model: Any) -> list[str]:
    """Returns what a model reads besides text: ``["image"]``."""
    # The text models of Gemma 3 and others inherit the modalities of the model with images.
    if model.config.get_text_config() is model.config:
        return []
    modalities = getattr(model, "input_modalities", "text")
    names = (modalities,) if isinstance(modalities, str) else modalities
    return [modality for modality in names if modality != "text"]


_IN_PYTORCH = "Generate with PyTorch"


def _instead(model: Any) -> str:
    """Returns what to do with a model of this kind."""
    if model.config.is_encoder_decoder:
        return f"{_IN_PYTORCH}, perhaps with torchtrt.follow for its encoder"
    if other_modalities(model):
        if type(model.config.get_text_config()) not in MODEL_FOR_CAUSAL_LM_MAPPING:
            return _IN_PYTORCH
        return (
            f"{_IN_PYTORCH}, or give the weights of its language model to a model for text alone "
            "(AutoModelForCausalLM.from_config(model.config.get_text_config())), and compile that"
        )
    return (
        f"{_IN_PYTORCH}. For the logits of texts of one length, set model.config.use_cache = False and call "
        "torchtrt.compile(model, [input_ids])"
    )


def _error(model: Any, reason: str, advice: str) -> UnsupportedProgramError:
    return UnsupportedProgramError(
        f"{type(model).__name__} cannot be compiled for generation: {reason}. {advice}."
    )


def _raised(model: Any, error: BaseException) -> str:
    """Returns the line of a model that raised an error, and the first line of the error."""
    message = str(error).partition("\n")[0].rstrip(".")
    return ", ".join(
        filter(None, (_failing_line(model, error), f"{type(error).__name__}: {message}"))
    )


def _failing_line(model: Any, error: BaseException) -> str:
    """Returns the last line in a model's own code that an error passed, or an empty string."""
    kinds = {type(part) for part in model.modules()}
    own = {inspect.getfile(kind) for kind in kinds if not kind.__module__.startswith("torch.")}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in own]
    if not frames:
        return ""
    last = frames[-1]
    return f"{os.path.basename(last.filename)}, line {last.lineno}, `{last.line}`"
