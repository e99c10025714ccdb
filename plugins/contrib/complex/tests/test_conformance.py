"""The pack keeps what every pack should."""

from torchtrt.testing import PackConformance


class TestComplex(PackConformance):
    """It has a lowering pass, and no op."""

    pack = "complex"
