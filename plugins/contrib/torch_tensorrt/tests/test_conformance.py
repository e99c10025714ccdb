"""The pack keeps what every pack should."""

from torchtrt.testing import PackConformance


class TestTorchTensorrt(PackConformance):
    """It has no converter of its own: what it adopts is in packs of their own."""

    pack = "torch_tensorrt"

    def test_it_registers_nothing_itself(self):
        """Each converter is recorded for the pack that wrote it, so that nothing here needs a case."""
        assert not self.registrations
        assert not self.loaded.pack.decompositions
        assert not self.loaded.pack.lowering_passes
