"""The events that a build sends to a progress monitor."""

from __future__ import annotations

from typing import Any

from torchtrt_reference.semantics.tensor_facts import RefusedError


class Progress:
    """One phase of a build, reported to a progress monitor; without a monitor it does nothing."""

    _PHASE = "Building the engine"
    _STEPS = 3  # lowering, shape inference, rewriting

    def __init__(self, monitor: Any) -> None:
        self._monitor = monitor
        self._done = 0

    def __enter__(self) -> Progress:
        if self._monitor is not None:
            self._monitor.phase_start(self._PHASE, None, self._STEPS)
        return self

    def step(self) -> None:
        """Reports that a step is complete.

        Raises:
            RefusedError: The monitor cancels the build.
        """
        if self._monitor is not None and not self._monitor.step_complete(self._PHASE, self._done):
            message = "the progress monitor cancelled the build"
            raise RefusedError(message)
        self._done += 1

    def __exit__(self, *error: object) -> None:
        if self._monitor is not None:
            self._monitor.phase_finish(self._PHASE)
