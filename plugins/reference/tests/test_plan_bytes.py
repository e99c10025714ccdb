"""The bytes of constants, as plans hold them."""

import torch

from torchtrt_reference.graphs.plan import bytes_of


def test_a_constant_of_one_element_may_have_any_stride():
    """A stride of zero, as after ``expand``, is contiguous there."""
    for constant in (torch.tensor(3.0).expand(1), torch.arange(4.0)[1:2].expand(1, 1)):
        assert bytes(bytes_of(constant)) == constant.clone().numpy().tobytes()
