"""The table: every module of this package holds one family of cases in ``CASES``."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections import Counter

from tools.agreement.case import Case


@functools.lru_cache(maxsize=1)
def table() -> dict[str, tuple[Case, ...]]:
    """Returns the cases of each family, by the family's name.

    Raises:
        ValueError: Two cases have one name, or a case is in another family's module.
    """
    families = sorted(module.name for module in pkgutil.iter_modules(__path__))
    cases_by_family = {
        name: tuple(importlib.import_module(f"{__name__}.{name}").CASES) for name in families
    }
    names = Counter(case.name for cases in cases_by_family.values() for case in cases)
    wrong = [name for name, count in names.items() if count > 1]
    wrong += [
        case.name
        for family, cases in cases_by_family.items()
        for case in cases
        if case.family != family
    ]
    if wrong:
        message = (
            f"These names are used twice or are not in their family's module: {', '.join(wrong)}."
        )
        raise ValueError(message)
    return cases_by_family
