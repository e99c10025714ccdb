"""The C++ library that runs saved models without Python, and what builds it on this machine."""

from __future__ import annotations

from torchtrt_cpp.building import BuildError, build, source_dir

__all__ = ["BuildError", "build", "source_dir"]
