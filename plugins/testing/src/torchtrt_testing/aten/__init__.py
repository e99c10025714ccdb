"""Cases for every op of the first-party packs, a module for each family: for them, and for whoever overrides them."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any

from torchtrt.errors import FullCompilationError
from torchtrt.targets import parse_targets, qualified_name
from torchtrt.tensorrt import Capability, supports
from torchtrt_testing.cases import OpCase
from torchtrt_testing.checking import check_case


@functools.cache
def _all() -> tuple[OpCase, ...]:
    families = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = [importlib.import_module(f"{__name__}.{family}") for family in families]
    return tuple(case for module in modules for case in module.CASES)


def first_party_cases(*ops: str) -> tuple[OpCase, ...]:
    """Returns the cases that the first-party packs are tested with.

    Args:
        *ops: Only those of these ops, in any spelling; all if omitted.

    Raises:
        UnknownTargetError: There is no such op.
    """
    if not ops:
        return _all()
    targets = {target for op in ops for target in parse_targets(op)}
    names = {qualified_name(target) for target in targets}
    return tuple(case for case in _all() if names & set(case.ops) or case.function in targets)


def is_expected_rejection(error: FullCompilationError) -> bool:
    """Returns whether one of these cases may stay in PyTorch: this TensorRT has no exact integers, or no bfloat16."""
    text = str(error)
    lacks = "loses bits beyond 2^24" in text or Capability.BFLOAT16.title in text
    return lacks and not supports(Capability.INT64)  # and then reduces them in float32


def check_where_exact(
    case: OpCase, settings: Mapping[str, Any] | None = None, *, varying: bool = True
) -> None:
    """As ``torchtrt_testing.checking.check_case``; or the case is rejected as it may be."""
    try:
        check_case(case, varying=varying, settings=settings)
    except FullCompilationError as error:
        if not is_expected_rejection(error):
            raise
