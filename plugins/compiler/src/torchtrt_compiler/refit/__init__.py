"""Other weights for engines: how each of an engine's weights follows from the model's is recorded, and done again."""

from torchtrt_compiler.refit.recording import ProgramRecorder, watcher_of
from torchtrt_compiler.refit.refitting import refit_module_weights, refit_with_memory

__all__ = [
    "ProgramRecorder",
    "refit_module_weights",
    "refit_with_memory",
    "watcher_of",
]
