"""A process that lowers saved models to ExecuTorch, and runs the files on a stand-in for TensorRT's backend.

The stand-in reads a delegate by the layout that ExecuTorch's runtime of Torch-TensorRT reads, written here a second
time. It runs the engine on the reference TensorRT, with the addresses and sizes that ExecuTorch gives.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

import torchtrt

RANKS = 8
LOAD = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)
RUN = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_int64,
    ctypes.c_int,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_int64),
    ctypes.POINTER(ctypes.c_int64),
)


def parse(blob: bytes) -> tuple[dict[str, Any], bytes]:
    """Returns the metadata and the plan of a delegate.

    Raises:
        ValueError: It has another layout.
    """
    numbers = np.frombuffer(blob[4:16], "<u4")
    start, size, plan = (int(number) for number in numbers)
    length = int(np.frombuffer(blob[16:24], "<u8")[0])
    is_whole = 32 <= start and start + size <= plan and plan + length == len(blob)
    if blob[:4] != b"TR01" or plan % 16 or blob[24] != 1 or not is_whole:
        message = f"no delegate: {blob[:32]!r}"
        raise ValueError(message)
    return json.loads(blob[start : start + size]), blob[plan : plan + length]


class StandIn:
    """Engines of delegates on a reference TensorRT."""

    def __init__(self, library: Path, tensorrt: str) -> None:
        with torchtrt.use_tensorrt(tensorrt) as trt:
            self.trt: Any = trt
        self.logger = self.trt.Logger(self.trt.Logger.WARNING)
        self.delegates: list[tuple[dict[str, Any], bytes]] = []
        self.contexts: list[Any] = []
        self.calls = 0
        self.functions = LOAD(self.load), RUN(self.run)
        status = ctypes.CDLL(str(library)).register_stand_in(*self.functions)
        if status:
            message = f"ExecuTorch refuses the backend: {status}"
            raise RuntimeError(message)

    def load(self, address: int, size: int) -> int:
        """Returns the number of an engine, or -1."""
        try:
            self.delegates.append(parse(ctypes.string_at(address, size)))
            runtime = self.trt.Runtime(self.logger)
            runtime.torch_device = torch.device("cpu")
            engine = runtime.deserialize_cuda_engine(self.delegates[-1][1])
            self.contexts.append((engine.create_execution_context(), engine, runtime))
        except Exception as error:
            print(error, file=sys.stderr)
            return -1
        return len(self.contexts) - 1

    def run(self, number: int, count: int, addresses: Any, ranks: Any, sizes: Any) -> int:
        """Runs an engine with the addresses in the order of the names; writes the sizes of its outputs."""
        try:
            context = self.contexts[number][0]
            bindings = self.delegates[number][0]["io_bindings"]
            assert len(bindings) == count
            for index, binding in enumerate(bindings):
                name, start = binding["name"], index * RANKS
                assert context.set_tensor_address(name, addresses[index])
                if binding["is_input"]:
                    assert context.set_input_shape(name, tuple(sizes[start : start + ranks[index]]))
            for index, binding in enumerate(bindings):
                shape = context.get_tensor_shape(binding["name"])
                assert len(shape) == ranks[index]
                for dim, size in enumerate(shape):
                    sizes[index * RANKS + dim] = size
            self.calls += 1
            return 0 if context.execute_async_v3(0) else 1
        except Exception as error:
            print(error, file=sys.stderr)
            return 1


def build(folder: Path) -> Path:
    """Returns the library of the stand-in, compiled against the installed ExecuTorch."""
    import executorch

    (root,) = map(Path, executorch.__path__)
    headers = root / "include"
    c10 = headers / "executorch/runtime/core/portable_type/c10"
    library = folder / "stand_in.so"
    subprocess.run(
        [
            "c++", "-std=c++17", "-shared", "-fPIC", f"-I{headers}", f"-I{c10}", "-DC10_USING_CUSTOM_GENERATED_MACROS",
            str(Path(__file__).with_name("stand_in.cpp")), "-o", str(library), f"-L{root / 'lib'}", "-lexecutorch",
            f"-Wl,-rpath,{root / 'lib'}",
        ],
        check=True,
    )  # fmt: skip
    return library


def main(folder: Path, tensorrt: str) -> None:
    """Lowers and runs each model in a folder; prints what became of it as JSON, one line for each."""
    from executorch.runtime import Runtime

    import torchtrt_executorch

    runtime = Runtime.get()
    stand_in = StandIn(build(folder), tensorrt)
    for path in sorted(folder.glob("*.pt2")):
        answer: dict[str, Any] = {"model": path.stem}
        try:
            program = torch.export.load(path)
            plans = [value.numpy().tobytes() for value in program.constants.values()]
            lowered = torchtrt_executorch.lower(program)
            path.with_suffix(".pte").write_bytes(lowered.to_executorch().buffer)
            stand_in.delegates, stand_in.contexts, stand_in.calls = [], [], 0
            method = runtime.load_program(str(path.with_suffix(".pte"))).load_method("forward")
            results = [
                [result.clone() for result in method.execute(list(inputs))]
                for inputs in torch.load(path.with_suffix(".inputs"))
            ]
            torch.save(results, path.with_suffix(".results"))
            answer["names"] = [
                [(binding["name"], binding["is_input"]) for binding in metadata["io_bindings"]]
                for metadata, _ in stand_in.delegates
            ]
            answer["metadata"] = [metadata for metadata, _ in stand_in.delegates]
            answer["has_plans"] = all(plan in plans for _, plan in stand_in.delegates)
            answer["calls"] = stand_in.calls
        except Exception as error:
            answer["error"] = f"{type(error).__name__}: {error}"
        print("answer", json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
