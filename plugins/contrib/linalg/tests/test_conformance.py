"""The pack keeps what every pack should, and agrees with PyTorch on all of its ops."""

from torchtrt.testing import PackConformance, cases_of


class TestLinalg(PackConformance):
    """Factorizations of matrices, with sizes that vary where they can."""

    pack = "linalg"
    cases = cases_of("linalg")
    sizes = ("varying sizes",)
