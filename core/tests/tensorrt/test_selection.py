"""The choice of a TensorRT by its name."""

import pytest

from torchtrt.errors import TensorRTUnavailableError
from torchtrt.tensorrt import use_tensorrt


@pytest.mark.parametrize("name", [None, 10.16])
def test_a_name_is_a_string(name):
    """A version alone is a number in the hands of some users."""
    message = rf"takes the name of a TensorRT, such as 'reference@10.16.1', not {name!r}"
    with pytest.raises(TensorRTUnavailableError, match=message), use_tensorrt(name):
        pass
