"""Every op agrees with PyTorch."""

import pytest

from .cases import CASES
from .harness import check_where_exact


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_engine_agrees_with_pytorch(case, version):
    """An engine gives PyTorch's values, dtypes and shapes at least, usual and maximum sizes.

    Or the op is rejected because this TensorRT's integers are not exact.
    """
    check_where_exact(case)
