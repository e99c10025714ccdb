"""What a call through the module costs over calling the engine by hand; needs the real TensorRT.

Run with ``TORCHTRT_TENSORRT=real python -m tests.benchmarks.overhead``.
"""

from __future__ import annotations

from typing import Any

import torch

import torchtrt
from tests.benchmarks._measure import seconds_in_turn
from tests.benchmarks.gpu import in_a_graph
from torchtrt_runtime import EngineModule

CALLS = 2000


def main() -> None:
    """Prints microseconds a call, GPU work included, for a model that is nothing but overhead."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).eval().cuda()
    shapes = torchtrt.Input(min_shape=(1, 64), opt_shape=(8, 64), max_shape=(32, 64))
    settings: dict[str, Any] = {"require_full_compilation": True, "tactic_sources": 0}
    compiled = torchtrt.compile(model, [shapes], **settings)
    recorded = torchtrt.compile(model, [shapes], **settings, cuda_graphs=True)
    x = torch.rand(8, 64, device="cuda")
    compiled(x)
    (engine,) = (module for module in compiled.modules() if isinstance(module, EngineModule))
    ((execution,),) = engine._idle.values()
    context = execution.context
    output = torch.empty(8, 64, device="cuda")
    stream = torch.cuda.Stream()

    def by_hand() -> None:
        with torch.cuda.stream(stream):
            for _ in range(CALLS):
                context.set_tensor_address(engine.inputs[0].name, x.data_ptr())
                context.set_tensor_address(next(iter(engine.outputs)), output.data_ptr())
                context.execute_async_v3(stream.cuda_stream)
            stream.synchronize()

    def calls_of(module: torch.nn.Module) -> None:
        with torch.cuda.stream(stream), torch.no_grad():
            for _ in range(CALLS):
                result = module(x)  # held until the next one is there, as in a loop
            stream.synchronize()
        del result

    replay = in_a_graph(lambda: compiled(x))

    def replays() -> None:
        with torch.cuda.stream(stream):
            for _ in range(CALLS):
                replay()
            stream.synchronize()

    times = seconds_in_turn(
        {
            "engine by hand": by_hand,
            "EngineModule": lambda: calls_of(engine),
            "CompiledModule": lambda: calls_of(compiled),
            "a replay by hand": replays,
            "CompiledModule, cuda_graphs=True": lambda: calls_of(recorded),
            "eager PyTorch": lambda: calls_of(model),
        },
        rounds=7,
    )
    for name, seconds in times.items():
        print(f"{name}: {seconds / CALLS * 1e6:.1f} µs a call")


if __name__ == "__main__":
    main()
