"""Random programs over complex numbers agree with eager PyTorch; the tool runs any number of them."""

import pytest

from tools.complex_programs import VERSIONS, check, generate


@pytest.mark.parametrize("seed", range(30))
def test_a_random_program_agrees(seed):
    """Each number is another program; one in four has sizes that vary, and each TensorRT has its share."""
    assert check(generate(seed), VERSIONS[seed % 3], varying=seed % 4 == 3)
