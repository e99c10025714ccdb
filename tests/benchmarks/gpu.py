"""Published models on a GPU: eager PyTorch, ``torch.compile``, TensorRT's own ONNX parser and torchtrt, in one run.

``python -m tests.benchmarks.gpu FOLDER`` needs a GPU, the real TensorRT, ``torchvision``, ``transformers``,
``diffusers`` and, for the column of ONNX, ``onnx``. It exports each model once into the folder, gets all columns of
seven models at a time ready in processes of their own, measures them one after the other, alone, and prints the table.
Where TensorRT is installed for another Python than PyTorch, ``--tensorrt-python`` names that.

A time is that of a call, from one call to the next, measured by CUDA events around as many as take 50 ms; the median of
eleven such rounds. TensorRT chooses kernels by timing them: the fewer ``--jobs`` build at a time, the better it does.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks._gpu_tables import collect, section
from tests.benchmarks._measure import write_section
from tests.benchmarks._turns import in_turns, take_turn
from tests.benchmarks.published import MODELS

PROGRAMS = ("pytorch", "ours", "onnx", "inductor")
TOGETHER = 7
"""The default number of rows that prepare at a time: each has four processes, which hold memory until their turn."""
ROUNDS, ROUND = 11, 0.05
"""How many rounds, and how many seconds each takes."""
ONNX_BYTES = 2**31
"""How large a file of ONNX may be, weights included."""
TRIES = 0
"""How many ops ``tune=True`` tries in PyTorch, each of which builds the model anew."""
MODES: tuple[bool | str, ...] = (False, True)
"""Which ways of PyTorch to run the whole model ``tune=True`` tries: with ``"max-autotune"`` it would take minutes."""
BUILDING = {
    "tactic_sources": "where TensorRT may take kernels from; 0 where cuBLAS and cuDNN are not installed",
    "optimization_level": "TensorRT's optimization level",
    "max_engine_bytes": "the maximum number of bytes of weights of one engine",
    "share_execution_memory": "1 lets all engines compute in the same memory",
}
"""The settings of building that the command line takes."""
TIMINGS = 1
"""How often TensorRT times each kernel that it may choose."""


def settle() -> None:
    """Has the GPU work for another context, and come back: so that what is measured begins as all else did.

    From what a process launched or recorded last depends how long a CUDA graph takes from one kernel to the next, by
    up to 0.4 µs (H200, driver 580). A change of contexts always sets that back; nothing else was found that does.
    """
    torch.cuda.synchronize()
    driver = ctypes.CDLL("libcuda.so.1")
    ours, other, memory = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
    size = ctypes.c_size_t(4096)
    steps = (
        lambda: driver.cuCtxGetCurrent(ctypes.byref(ours)),
        lambda: driver.cuCtxCreate_v2(ctypes.byref(other), 0, torch.cuda.current_device()),
        lambda: driver.cuMemAlloc_v2(ctypes.byref(memory), size),
        lambda: driver.cuMemsetD8_v2(memory, ctypes.c_ubyte(0), size),
        lambda: driver.cuCtxSynchronize(),
        lambda: driver.cuCtxDestroy_v2(other),
        lambda: driver.cuCtxSetCurrent(ours),
    )
    for step in steps:
        if code := step():
            raise RuntimeError(f"the CUDA driver returned {code}")


def times(call: Callable[[], Any]) -> list[float]:
    """Returns milliseconds a call: the median of the rounds, the minimum and the maximum."""
    for _ in range(4):
        call()
    settle()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    count = max(1, min(400, int(ROUND / (time.perf_counter() - start))))
    rounds = []
    for _ in range(ROUNDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(count):
            call()
        end.record()
        torch.cuda.synchronize()
        rounds.append(begin.elapsed_time(end) / count)
    return [statistics.median(rounds), min(rounds), max(rounds)]


def in_a_graph(call: Callable[[], Any]) -> Callable[[], None]:
    """Returns what replays a call that is recorded as a CUDA graph here."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


class Work:
    """One model and batch, its files in the folder, and the settings with which TensorRT builds."""

    def __init__(
        self,
        folder: Path,
        label: str,
        building: Mapping[str, int | None] | None = None,
        builders: int = 1,
    ) -> None:
        self.label, self.builders = label, builders
        self.building = dict(building or {})
        self.name, _, batch = label.rpartition(", batch ")
        self.batch = int(batch)
        stem = "".join(letter if letter.isalnum() else "-" for letter in label)
        self.program, self.onnx, self.data = (
            folder / f"{stem}.{suffix}" for suffix in ("pt2", "onnx", "pt")
        )

    def model(self) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
        """Returns the module and its inputs, in float16 on the GPU, the same each time."""
        torch.manual_seed(0)
        spec = MODELS[self.name]
        model = spec.make().eval().half().cuda()
        for parameter in model.parameters():
            if not parameter.any():  # heads that begin at zero would have nothing to compare
                torch.nn.init.normal_(parameter, std=0.02)
        inputs = spec.inputs(self.batch)
        return model, tuple(
            input_.half().cuda() if input_.is_floating_point() else input_.cuda()
            for input_ in inputs
        )

    def settings(self) -> dict[str, Any]:
        """Returns the settings of ``torchtrt.compile``; engines are kept beside the program."""
        building = dict(self.building)
        if "share_execution_memory" in building:
            building["share_execution_memory"] = bool(building["share_execution_memory"])
        return {
            "require_full_compilation": True,
            **building,
            "num_avg_timing_iters": TIMINGS,
            "engine_cache": self.program.parent / "engines",
        }

    def loaded(self) -> tuple[Any, tuple[torch.Tensor, ...], Any]:
        """Returns the exported program, the inputs and the expected results."""
        inputs, expected = torch.load(self.data)
        return torch.export.load(self.program), inputs, expected


def export(work: Work) -> None:
    """Writes a model's program, its inputs and results, and its ONNX file."""
    from torchtrt_compiler.exporting.export import export as export_program

    model, inputs = work.model()
    with torch.no_grad():
        torch.save((inputs, model(*inputs)), work.data)
        torch.export.save(export_program(model, inputs, {}, None), work.program)
        if sum(weight.nbytes for weight in model.state_dict().values()) > ONNX_BYTES:
            return
        try:
            torch.onnx.export(model, inputs, work.onnx, opset_version=17, external_data=False)
        except Exception as error:  # the column stays empty
            print(work.label, "no ONNX:", str(error)[:300])


def pytorch(work: Work) -> Callable[[], dict[str, Any]]:
    """Gets the columns of PyTorch ready."""
    model, inputs = work.model()
    torch.set_grad_enabled(False)
    calls = {
        "eager": lambda: model(*inputs),
        "eager_graph": in_a_graph(lambda: model(*inputs)),
    }
    for column, mode in (("compiled", "default"), ("reduced", "reduce-overhead")):
        compiled = torch.compile(model, mode=mode)
        for _ in range(4):
            compiled(*inputs)
        calls[column] = lambda compiled=compiled: compiled(*inputs)
    return lambda: {column: times(call) for column, call in calls.items()}


def ours(work: Work) -> Callable[[], dict[str, Any]]:
    """Gets torchtrt's columns ready."""
    import torchtrt
    from torchtrt.tensorrt.selection import describe
    from torchtrt_compiler.measuring import tuning

    modes = {mode: how for mode, how in tuning.ALL_IN_TORCH.items() if mode in MODES}
    measuring = tuning.Measuring(tries=TRIES, all_in_torch=modes)
    program, inputs, expected = work.loaded()
    settings = work.settings()
    start = time.perf_counter()
    with _with_builders(work.builders):
        plain = torchtrt.compile(program, **settings)
    build = time.perf_counter() - start
    graphs = torchtrt.compile(program, **settings, cuda_graphs=True)
    torch.set_grad_enabled(False)
    for _ in range(4):
        result = graphs(*inputs)
    answer = {
        "on": f"{torch.cuda.get_device_name()}, {describe()}",
        "error": _error(result, expected),
        "build": build,
        "stages": plain.report.seconds,
        "plan": sum(block.plan_bytes for block in plain.report.blocks) / 2**20,
    }
    held: list[Any] = [None]

    def hold(compiled: Any) -> None:  # as ``result = model(x)`` in a loop
        held[0] = compiled(*inputs)

    def measure() -> dict[str, Any]:
        as_built = {
            "ours": times(lambda: plain(*inputs)),
            "ours_graph": times(lambda: hold(graphs)),
        }
        print(work.label, as_built, file=sys.stderr, flush=True)  # tuning may take minutes
        loose = {**settings, "require_full_compilation": False}
        with tuning.measuring_by(measuring):
            best = torchtrt.compile(program, **loose, cuda_graphs="overwrite", tune=True)
        hold(best)
        return {
            **answer,
            **as_built,
            "tuned": times(lambda: hold(best)),
            "tuned_error": _error(held[0], expected),
            "tried": best.report.tried,
            "kernels": _kernels(lambda: plain(*inputs)),
        }

    return measure


@contextlib.contextmanager
def _with_builders(count: int) -> Iterator[None]:
    """Lets so many processes, of which this is one, build the engines of the program for the same cache."""
    command = [sys.executable, "-m", "tests.benchmarks.gpu", *sys.argv[1:], "--program", "build"]
    helpers = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(count - 1)]
    try:
        yield
    finally:
        for helper in helpers:
            helper.wait()


def build(work: Work) -> None:
    """Puts engines of ours into the cache, beside the process that measures them."""
    import torchtrt

    torchtrt.compile(work.loaded()[0], **work.settings())


def inductor(work: Work) -> Callable[[], dict[str, Any]]:
    """Has Inductor cache what ``tune=True`` tries, which takes minutes: it is to measure alone."""
    import torchtrt
    from torchtrt_compiler.measuring.tuning import ops_of

    program, inputs, _ = work.loaded()
    ops = ops_of(program)
    torch.set_grad_enabled(False)
    for mode in MODES:
        torchtrt.compile(program, torch_executed_ops=ops, inductor=mode)(*inputs)
    return dict


def onnx(work: Work) -> Callable[[], dict[str, Any]]:
    """Gets the engine ready that TensorRT's parser makes of the model's ONNX file, with the same flags."""
    import tensorrt as trt

    inputs, expected = torch.load(work.data)
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(work.onnx)):
        raise RuntimeError(str(parser.get_error(0)))
    config = builder.create_builder_config()
    config.set_flag(trt.BuilderFlag.FP16)
    if (sources := work.building.get("tactic_sources")) is not None:
        config.set_tactic_sources(sources)
    if (level := work.building.get("optimization_level")) is not None:
        config.builder_optimization_level = level
    config.avg_timing_iterations = TIMINGS
    plan = builder.build_serialized_network(network, config)
    runtime = trt.Runtime(logger)
    engine = runtime.deserialize_cuda_engine(plan)
    context = engine.create_execution_context()
    types = {"HALF": torch.float16, "FLOAT": torch.float32, "INT32": torch.int32}
    held: list[Any] = [runtime, engine]
    tensors, results = iter(inputs), []
    for index in range(engine.num_io_tensors):
        name = engine.get_tensor_name(index)
        dtype = types[engine.get_tensor_dtype(name).name]
        if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT:
            tensor = next(tensors).to(dtype).contiguous()
        else:
            tensor = torch.empty(tuple(context.get_tensor_shape(name)), dtype=dtype, device="cuda")
            results.append(tensor)
        held.append(tensor)
        context.set_tensor_address(name, tensor.data_ptr())

    def call() -> None:
        context.execute_async_v3(torch.cuda.current_stream().cuda_stream)

    replay = in_a_graph(call)
    replay()
    answer = {"onnx_error": _error(results, expected), "onnx_plan": plan.nbytes / 2**20}

    def measure() -> dict[str, Any]:
        measured = {
            "onnx": times(replay),
            "onnx_plain": times(call),
            "onnx_kernels": _kernels(call),
        }
        held.clear()  # until now the context needed its runtime and its memory
        return {**answer, **measured}

    return measure


def _error(results: Any, expected: Any) -> float:
    """Returns the largest relative error of a result: of the differences' norm to the expected values'."""
    pairs = zip(
        *(
            [tensor] if isinstance(tensor, torch.Tensor) else list(tensor)
            for tensor in (results, expected)
        ),
        strict=True,
    )
    return max(
        float((result.float() - wanted.float()).norm() / wanted.float().norm())
        for result, wanted in pairs
    )


def _kernels(call: Callable[[], Any]) -> list[tuple[str, float, float]]:
    """Returns the ten kernels that take longest: name, launches and microseconds a call."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(3):
            call()
        torch.cuda.synchronize()
    totals: dict[str, list[float]] = {}
    for event in profiler.events():
        total = totals.setdefault(event.name, [0, 0.0])
        total[0] += 1 / 3
        total[1] += event.device_time / 3
    rows = sorted(totals.items(), key=lambda row: -row[1][1])[:10]
    return [(name[:120], round(count, 1), round(spent, 1)) for name, (count, spent) in rows]


def run(options: argparse.Namespace, labels: list[str]) -> None:
    """Exports, measures, and appends each answer to ``results.jsonl`` as it comes."""
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    me = ["-m", "tests.benchmarks.gpu", str(folder), "--builders", str(options.builders)]
    for name, value in _building(options).items():
        me += [f"--{name.replace('_', '-')}", str(value)]
    positions = {"pytorch": 3, "ours": options.jobs, "onnx": options.jobs, "inductor": 3}

    def note(name: str, answer: Any) -> None:
        with (folder / "results.jsonl").open("a") as file:
            file.write(json.dumps({"name": name, "answer": answer}) + "\n")

    for start in range(0, len(labels), options.together):
        group = labels[start : start + options.together]
        exports = [
            subprocess.Popen([sys.executable, *me, "--program", "export", "--model", label])
            for label in group
            if not Work(folder, label).program.exists()
        ]
        for process in exports:
            process.wait()
        programs = {
            f"{program}:{label}": [
                sys.executable if program == "pytorch" else options.tensorrt_python,
                *me,
                "--program",
                program,
                "--model",
                label,
            ]
            for label in group
            for program in PROGRAMS
            if program != "onnx" or Work(folder, label).onnx.exists()
        }
        in_turns(programs, positions, options.seconds, note, options.after)


def _building(options: argparse.Namespace) -> dict[str, int]:
    """Returns the settings with which TensorRT builds, as far as the command line has them."""
    options_ = {name: getattr(options, name) for name in BUILDING}
    return {name: value for name, value in options_.items() if value is not None}


def _run_program(name: str, work: Work) -> None:
    """Does one process's part of a row."""
    if name == "export":
        return export(work)
    warnings.simplefilter("ignore")
    os.environ.setdefault("TORCHTRT_TENSORRT", "real")
    if name == "build":
        return build(work)
    get_ready = {"pytorch": pytorch, "ours": ours, "onnx": onnx, "inductor": inductor}[name]
    return take_turn(lambda: get_ready(work))


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.gpu", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tensorrt-python", default=sys.executable)
    parser.add_argument(
        "--jobs", type=int, default=1, help="how many engines of a kind are built at a time"
    )
    parser.add_argument(
        "--seconds", type=float, default=1e6, help="how long rows may take to get ready"
    )
    for name, what in BUILDING.items():
        help_ = f"the setting {name}: {what}"
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, help=help_)
    parser.add_argument(
        "--together", type=int, default=TOGETHER, help="how many rows get ready at a time"
    )
    parser.add_argument(
        "--after",
        type=Path,
        help="measure only once this file exists: whatever else works on the machine makes it when it ends",
    )
    parser.add_argument(
        "--builders", type=int, default=1, help="how many processes build the engines of one row"
    )
    parser.add_argument("--program", choices=("export", "build", *PROGRAMS), help=argparse.SUPPRESS)
    parser.add_argument(
        "--model", action="append", help="a row, as 'ResNet-50, batch 1'; default: all"
    )
    parser.add_argument("--table", action="store_true", help="print the tables of an earlier run")
    parser.add_argument("--write", action="store_true", help="put the tables into the docs")
    options = parser.parse_args()
    labels = options.model or [
        f"{model.name}, batch {batch}" for model in MODELS.values() for batch in model.batches
    ]
    if options.table:
        print(section(collect(options.folder)))
    elif options.program:
        work = Work(options.folder, labels[0], _building(options), options.builders)
        _run_program(options.program, work)
    else:
        run(options, labels)
        text = section(collect(options.folder))
        print(text)
        if options.write:
            write_section("make bench-gpu", text)


if __name__ == "__main__":
    main()
