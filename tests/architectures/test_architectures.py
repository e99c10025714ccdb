"""Every architecture becomes engines alone and equals eager, on every TensorRT, with fixed and with varying sizes.

``TORCHTRT_TENSORRT=real pytest tests/architectures`` runs the same on an NVIDIA GPU.
"""

import pytest
import torch

from tests.architectures.zoo import ZOO

FIXED_IN = 12
"""``make test-models`` compiles each architecture for dynamic sizes, and one of so many for fixed ones."""


def ways():
    """Returns each architecture, with whether its sizes vary, as parameters."""
    return [
        pytest.param(
            architecture,
            varying,
            marks=() if varying or index % FIXED_IN == 0 else pytest.mark.slow,
            id=f"{architecture.name}-{'varying' if varying else 'fixed'}",
        )
        for index, architecture in enumerate(ZOO)
        for varying in (False, True)
    ]


@pytest.mark.parametrize(("architecture", "varying"), ways())
def test_an_architecture_becomes_engines_alone_and_equals_eager(architecture, varying, version):
    """On each version of TensorRT; at the least, usual and maximum sizes, if they vary."""
    compiled = architecture.compile(architecture.export(torch.float32, varying), {})

    architecture.compare(compiled, torch.float32, varying)
