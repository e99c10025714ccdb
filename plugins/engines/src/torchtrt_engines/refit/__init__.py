"""Other weights for engines: how each of an engine's weights follows from the model's is recorded, and done again."""

from torchtrt_engines.refit.recording import ProgramRecorder
from torchtrt_engines.refit.refitting import refit_module_weights

__all__ = ["ProgramRecorder", "refit_module_weights"]
