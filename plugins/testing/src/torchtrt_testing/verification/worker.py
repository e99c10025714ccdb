"""A worker of a verification: ``python -m torchtrt_testing.verification.worker CONFIGURATION``."""

from __future__ import annotations

import base64
import importlib
import pickle
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any


def command(settings: Mapping[str, Any], libraries: Sequence[str]) -> list[str]:
    """Returns the command that starts a worker.

    Args:
        settings: Settings of the compilations.
        libraries: Modules to import first, for the ops that they register.
    """
    configuration = base64.b64encode(pickle.dumps((dict(settings), list(libraries)))).decode()
    return [sys.executable, "-m", __name__, configuration]


def main(configuration: str) -> None:
    """Works with a configuration of ``command``."""
    settings, libraries = pickle.loads(base64.b64decode(configuration))
    import torch

    from torchtrt_testing.verification.items import parts_with
    from torchtrt_testing.verification.workers import work

    for library in libraries:
        importlib.import_module(library)
    warnings.simplefilter("ignore")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.set_num_threads(1)
    work(parts_with(settings))


if __name__ == "__main__":
    main(sys.argv[1])
