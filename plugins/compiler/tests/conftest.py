"""The compiler is tested with the fixtures of the runtime."""

from plugins.runtime.tests.conftest import every_tensorrt, fresh, no_compiler, seeded

__all__ = ["every_tensorrt", "fresh", "no_compiler", "seeded"]
