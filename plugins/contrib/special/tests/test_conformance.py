"""The pack keeps what every pack should, and agrees with PyTorch on all of its ops."""

from torchtrt.testing import PackConformance, cases_of


class TestSpecial(PackConformance):
    """Special functions and polynomials, with sizes that vary where they can."""

    pack = "special"
    cases = cases_of("special")
    sizes = ("varying sizes",)
