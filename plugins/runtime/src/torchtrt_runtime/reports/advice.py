"""Advice about nodes that stay in PyTorch, by the codes of their reasons."""

from __future__ import annotations

from collections.abc import Mapping

from torchtrt.errors import TorchOp
from torchtrt.registry.candidate import RejectionCode

OTHERWISE: RejectionCode = "declined"

BY_CODE: Mapping[RejectionCode, str] = {
    "write": "Nothing: that memory is the model's own or the caller's.",
    "view": "Nothing: PyTorch views that memory without a copy.",
    "divided": "Nothing: async_tensor_parallel divides the rows among the processes.",
    "user-excluded": "Take the op out of torch_executed_ops.",
    "block-too-small": "Compile with a smaller min_block_size; 1 makes an engine of any op.",
    "no-input": "Nothing is lost: the same comes of it in every call. Compute it once, in the model's __init__.",
    "unbounded-size": "Bring what makes that size into the engine, or pad it to a size that is known.",
    "number": "Take the number from a shape or an attribute of the model, not from a tensor's values.",
    "failed": "Report it to the pack that the reason names, with the model's line.",
    "unbuilt": "Report it with the model's line: TensorRT refused what the converter made of the op.",
    "dtype": "Cast to a dtype that TensorRT has; for float64, truncate_double=True computes in float32.",
    "tensorrt-version": "Install a TensorRT that the converter works with, or a newer version of its pack.",
    "tensorrt-capability": "Use a TensorRT that has the capability in the reason.",
    "dynamic-shapes": "Export with fixed sizes here or, where the converter is known to take any size, compile with "
    "assume_dynamic_shape_support=True.",
    "behind-decomposition": "Prefer that pack for the op with converter_preferences, or register its converter with "
    "HIGH.",
    "validator-failed": "Report it to the pack's authors.",
    "not-loaded": "Run `torchtrt doctor`: a pack that is not loaded may have a converter.",
    "no-converter": "Install a pack that has the op that the reason names, or write a converter: "
    "`torchtrt new-pack NAME`.",
    "no-such-preference": "Name a pack in converter_preferences that has the op: `torchtrt converters {op}`.",
    OTHERWISE: "Change the call as the reason says, or ask the pack's authors for it: `torchtrt explain {op}`.",
    "decomposition": "Change the call as the reason says, or write a converter: `torchtrt new-pack NAME`.",
}
"""The advice by the code of the reason. If there are several reasons, the first in this order counts."""


def advice(entry: TorchOp) -> str:
    """Returns what to do so that a node that stays in PyTorch goes to TensorRT.

    The advice of packs comes first; ``torchtrt.packs.Reject`` takes it. A pack that has the op and is not installed
    comes before the advice by code.
    """
    lines = [*entry.advice, *filter(None, [installation(entry)])]
    if lines:
        return " ".join(lines)
    code = next((code for code in BY_CODE if code in entry.codes), OTHERWISE)
    return BY_CODE[code].format(op=entry.op)


def installation(entry: TorchOp) -> str:
    """Returns which distribution to install for a node that stays in PyTorch, or an empty string."""
    return f"Install {' or '.join(entry.available)}." if entry.available else ""
