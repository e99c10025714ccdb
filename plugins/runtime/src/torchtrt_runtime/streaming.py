"""``torchtrt.weight_streaming``: how much of a compiled model's weights stays on the GPU."""

from __future__ import annotations

import torch

from torchtrt.errors import EngineError, InputError
from torchtrt.setting_kinds import is_integer
from torchtrt.tensorrt import Capability, selection, supports
from torchtrt.tensorrt.logging import ErrorLog
from torchtrt_runtime.modules.compiled import CompiledModule, check_compiled
from torchtrt_runtime.modules.engine import EngineModule
from torchtrt_runtime.serialization.engine_metadata import tensorrt_for


def weight_streaming(compiled: CompiledModule) -> WeightStreaming:
    """Returns the budget of a compiled model's weights on the GPU, which can be set.

    As a context manager, it restores the budget from before at the end of the ``with`` block.

    Args:
        compiled: A model compiled with ``enable_weight_streaming=True``, or loaded from a file of one.

    Raises:
        InputError: ``compiled`` is something else.
        EngineError: None of its engines streams weights.
    """
    check_compiled(compiled, "weight_streaming")
    return WeightStreaming(compiled)


class WeightStreaming:
    """The budget of a compiled model's weights on the GPU, in bytes.

    Attributes:
        total_device_budget: How many bytes the weights have that can be streamed. With this budget none are.
        automatic_device_budget: The budget that TensorRT chose for the memory that was free.

    Args:
        compiled: The compiled model.
    """

    def __init__(self, compiled: CompiledModule) -> None:
        parts = compiled.graph_module.modules()
        engines = [module for module in parts if isinstance(module, EngineModule)]
        self._sizes: dict[EngineModule, int] = {}
        self._automatic: dict[EngineModule, int] = {}
        for engine in engines:
            size, automatic = _streamable(engine)
            if size:
                self._sizes[engine], self._automatic[engine] = size, automatic
        if not self._sizes:
            raise EngineError(
                "The model's engines have no weights that can be streamed. Compile it with "
                "enable_weight_streaming=True, which TensorRT 10 and later take."
            )
        self.total_device_budget = sum(self._sizes.values())
        self.automatic_device_budget = sum(self._automatic.values())
        self._before: dict[EngineModule, int | None] = {}

    @property
    def device_budget(self) -> int:
        """The bytes of the weights that stay on the GPU. A new value holds from the next call on, for all engines.

        Raises:
            InputError: It is less than 0, or more than ``total_device_budget``.
        """
        return sum(
            self._automatic[engine] if engine.weight_budget is None else engine.weight_budget
            for engine in self._sizes
        )

    @device_budget.setter
    def device_budget(self, budget: int) -> None:
        total = self.total_device_budget
        if not is_integer(budget, 0, total):
            message = (
                f"The budget {budget!r} is not usable: it must be bytes, from 0 to {total}, the size of all weights "
                "that can be streamed."
            )
            raise InputError(message)
        left, rest = budget, total
        for engine, size in self._sizes.items():
            share = left * size // rest  # to each engine by its size, and all of it in the end
            left, rest = left - share, rest - size
            engine.reload(weight_budget=share)

    def __enter__(self) -> WeightStreaming:
        self._before = {engine: engine.weight_budget for engine in self._sizes}
        return self

    def __exit__(self, *_: object) -> None:
        for engine, budget in self._before.items():
            if engine.weight_budget != budget:
                engine.reload(weight_budget=budget)


def _streamable(engine: EngineModule) -> tuple[int, int]:
    """Returns how many bytes of an engine's weights can be streamed, and TensorRT's own budget for them."""
    what = f"The engine of {engine.name}"
    tensorrt = tensorrt_for(engine.tensorrt, engine.gpu, what, engine.compatible)
    with selection.use_module(tensorrt), ErrorLog() as log:
        _runtime, loaded = engine.deserialize(torch.device("cpu"))
        if loaded is None:
            raise EngineError(f"{what} cannot be loaded: {log.text()}")
        size = int(loaded.streamable_weights_size) if supports(Capability.WEIGHT_STREAMING) else 0
        return size, int(loaded.get_weight_streaming_automatic_budget()) if size else 0
