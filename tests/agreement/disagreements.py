"""Where the reference is known to differ from TensorRT 8.6.0, and why. A test asserts that it still does."""

from __future__ import annotations

REASONS: dict[str, str] = {}
