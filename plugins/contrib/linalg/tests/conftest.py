"""What ``make test`` leaves out: flags of solvers, each of which takes seconds."""

import pytest

from tests.support.shards import leave_cases


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Leaves most flags of a solver to ``make test-all``."""
    leave_cases(items, {"lu_solve": 4, "solve_triangular": 4, "aten.linalg_lu.default": 2})
