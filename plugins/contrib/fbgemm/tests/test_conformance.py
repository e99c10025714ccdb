"""The pack keeps what every pack should."""

import pytest

from tests.support.models import import_alone
from torchtrt.testing import PackConformance, cases_of

try:
    import_alone("fbgemm_gpu")
except (ImportError, OSError) as error:  # its libraries are for one version of PyTorch
    pytest.skip(f"FBGEMM cannot be imported: {error}", allow_module_level=True)


class TestFbgemm(PackConformance):
    """Ops of FBGEMM, compared with FBGEMM's own kernels."""

    pack = "fbgemm"
    imports = ("fbgemm_gpu",)
    cases = cases_of("fbgemm")
    opcheck = ()  # of the library, whose ops these are
