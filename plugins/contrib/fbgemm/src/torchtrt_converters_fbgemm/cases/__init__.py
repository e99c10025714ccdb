"""The cases that this pack is tested with. Only tests import them; they need torchtrt-testing."""
