"""The pack keeps what every pack should."""

from torchtrt.testing import PackConformance, cases_of

from . import vision  # noqa: F401  # defines the ops


class TestTorchvision(PackConformance):
    """torchvision's operators, from their definitions in plain Python."""

    pack = "torchvision"
    imports = (f"{__package__}.vision",)
    cases = cases_of("torchvision")
    # The definitions have no kernel for autograd, which torchvision's own operators have.
    opcheck = ("test_schema", "test_faketensor")
