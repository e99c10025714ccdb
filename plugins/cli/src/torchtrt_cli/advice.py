"""What a person can do about a node that stays in PyTorch, told from the words of its reason."""

from __future__ import annotations

import re

_RULES = (
    (r"writes to a buffer or an input", "Nothing: that memory is the model's own or the caller's."),
    (r"min_block_size is", "Compile with a smaller min_block_size; 1 makes an engine of any op."),
    (r"torch_executed_ops keeps", "Take the op out of torch_executed_ops."),
    (
        r"depends on no input of the model",
        "Nothing is lost: the same comes of it in every call. Compute it once, in the model's __init__.",
    ),
    (
        r"comes from outside the engine with a size that depends on data",
        "Bring what makes that size into the engine, or pad it to a size that is known.",
    ),
    (
        r"It uses the number .* cannot be computed in TensorRT",
        "Take the number from a shape or an attribute of the model, not from a tensor's values.",
    ),
    (
        r"it does not support dynamic shapes",
        "Export with fixed sizes here or, where the converter is known to take any size, compile with "
        "assume_dynamic_shape_support=True.",
    ),
    (
        r"works with TensorRT .* is in use",
        "Install a TensorRT that the converter works with, or a newer version of its pack.",
    ),
    (
        r"STANDARD converter comes after first-party packs",
        "Prefer that pack for the op with converter_preferences, or register its converter with HIGH.",
    ),
    (r"its validator .* (raised|returned) ", "Report it to the pack's authors."),
    (r"not loaded: ", "Run `torchtrt doctor`: a pack that is not loaded may have a converter."),
    (
        r"\S has no (b?float|u?int|complex|bool)\w*\.",
        "Cast to a dtype that TensorRT has; for float64, truncate_double=True computes in float32.",
    ),
    (
        r"its decomposition needs (?P<op>\S+), which has no converter",
        "Install a pack that has {op}, or write a converter for it: `torchtrt explain {op}`.",
    ),
    (
        r"no pack has a converter",
        "Install a pack that has {subject}, or write a converter: `torchtrt new-pack NAME`.",
    ),
)
"""Words of a reason and what to do, the first that fit. ``{subject}`` is the op, other names are groups."""

_OTHERWISE = "Change the call as the reason says, or ask the pack's authors for it: `torchtrt explain {subject}`."


def advice(op: str, reason: str) -> str:
    """Returns what to do so that an op that stays in PyTorch for a reason goes to TensorRT.

    Args:
        op: The op's qualified name.
        reason: Why it stays, as a report tells.
    """
    for words, what in _RULES:
        if found := re.search(words, reason):
            return what.format(subject=op, **found.groupdict())
    return _OTHERWISE.format(subject=op)
