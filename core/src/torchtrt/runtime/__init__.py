"""What a compiled model is made of: engines as modules, and the module that the caller gets."""

from torchtrt.runtime.compiled_module import CompiledModule
from torchtrt.runtime.engine_module import EngineModule

__all__ = ["CompiledModule", "EngineModule"]
