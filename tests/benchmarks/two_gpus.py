"""A Llama on two GPUs: tensor-parallel engines, the same plan under ``torch.compile`` and eager, and one GPU.

Run with ``python -m torch.distributed.run --nproc-per-node 2 -m tests.benchmarks.two_gpus``, or without the launcher:
it then starts two processes itself. The layers have the sizes of a model of 8 billion parameters, with random weights.
``--device cpu`` runs a small model over gloo. Each result is a line of JSON in ``--output``, written when it is known.
The phases with ``inductor`` leave all ops to PyTorch: they need no engines, and no TensorRT.
A process that is late ends all of them: after ``--limit`` seconds in one phase, each process stops itself.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import faulthandler
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

import torchtrt
from tests.benchmarks._llama import SMALL, Sizes, llama
from tests.support.parallel_models import small_parts
from torchtrt.tensorrt.selection import describe
from torchtrt_compiler.measuring import tuning

ROUNDS = 11
PHASES = (
    "smoke",
    "engines",
    "engines-async",
    "inside",
    "tuned",
    "tuned-async",
    "inductor",
    "inductor-async",
    "eager",
    "compiled",
    "one",
    "one-tuned",
    "one-inductor",
    "one-compiled",
)
CONTENDERS = {
    "engines": "torchtrt, two GPUs, collectives between engines",
    "engines-async": "torchtrt, two GPUs, async_tensor_parallel=True",
    "inside": "torchtrt, two GPUs, collectives inside engines",
    "tuned": "torchtrt, two GPUs, tune=True",
    "tuned-async": "torchtrt, two GPUs, tune=True, async_tensor_parallel=True",
    "inductor": "torchtrt, two GPUs, all ops in PyTorch, inductor=True",
    "inductor-async": "torchtrt, two GPUs, all ops in PyTorch, inductor=True, async_tensor_parallel=True",
    "eager": "eager, two GPUs",
    "compiled": "torch.compile, two GPUs",
    "one": "torchtrt, one GPU",
    "one-tuned": "torchtrt, one GPU, tune=True",
    "one-inductor": "torchtrt, one GPU, all ops in PyTorch, inductor=True",
    "one-compiled": "torch.compile, one GPU",
}

BETWEEN: dict[str, Any] = {"disabled_capabilities": ["DISTRIBUTED_COLLECTIVES"]}
IN_TORCH: dict[str, Any] = {"min_block_size": 2**31 - 1, "inductor": True}
SETTINGS: dict[str, dict[str, Any]] = {
    "engines": BETWEEN,
    # NCCL inside of engines is not known to be captured: these run without CUDA graphs.
    "inside": {"nccl_in_engines": torch.cuda.is_available()},
    "tuned": {**BETWEEN, "tune": True},
    "inductor": {**BETWEEN, **IN_TORCH},
    "one": {},
    "one-tuned": {"tune": True},
    "one-inductor": IN_TORCH,
}
"""The settings of the phases in which torchtrt compiles."""
ASYNC = "-async"
"""The end of the name of a phase that is like another one, with ``async_tensor_parallel``."""


def settings_of(phase: str) -> dict[str, Any]:
    """Returns the settings of a phase in which torchtrt compiles."""
    settings = SETTINGS[phase.removesuffix(ASYNC)]
    return {**settings, "async_tensor_parallel": True} if phase.endswith(ASYNC) else settings


Run = Callable[..., Sequence[Tensor]]


class Session:
    """What a contender reads: a prompt, then single tokens over a cache.

    Args:
        sizes: The model's.
        share: Into how many parts the cache's heads are divided.
    """

    def __init__(self, sizes: Sizes, share: int, device: torch.device, dtype: torch.dtype) -> None:
        self.sizes, self.device = sizes, device
        generator = torch.Generator().manual_seed(1)
        ids = torch.randint(0, sizes.vocabulary, (1, sizes.prompt), generator=generator)
        self.low = -1e4
        position = torch.arange(sizes.prompt, device=device)
        self.prompt = ids.to(device), position
        shape = (1, sizes.kv_heads // share, sizes.positions, sizes.width)
        self.cache = [
            torch.zeros(shape, device=device, dtype=dtype) for _ in range(2 * sizes.layers)
        ]
        self.token = torch.zeros(1, 1, dtype=torch.int64, device=device)
        self.position = torch.zeros(1, dtype=torch.int64, device=device)
        self.mask = torch.zeros(1, sizes.positions + 1, device=device, dtype=dtype)

    @property
    def step(self) -> tuple[Tensor, ...]:
        """The inputs of a decode step."""
        return self.token, self.position, self.mask, *self.cache

    def generate(self, prefill: Run, step: Run, count: int) -> tuple[list[int], Tensor]:
        """Returns the most likely tokens, and the logits behind the prompt."""
        for buffer in self.cache:
            buffer.zero_()
        self.mask.fill_(self.low)
        self.mask[:, -1] = 0
        logits, *states = prefill(*self.prompt)
        first, start, tokens = logits.clone(), 0, []
        for _ in range(count):
            length = states[0].shape[2]
            for held, new in zip(self.cache, states, strict=True):
                held[:, :, start : start + length] = new
            self.mask[:, start : start + length] = 0
            start += length
            tokens.append(int(logits.argmax()))
            self.token.fill_(tokens[-1])
            self.position.fill_(start)
            logits, *states = step(*self.step)
        return tokens, first


class Measurement:
    """The phases of the benchmark in one process."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.rank = int(os.environ["RANK"])
        self.is_gpu = options.device == "cuda"
        self.device = torch.device(options.device)
        if self.is_gpu:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", self.rank)))
            self.device = torch.device("cuda", torch.cuda.current_device())
        # The second process waits while phases run in the first alone.
        limit = datetime.timedelta(seconds=3 * options.limit)
        backend = "nccl" if self.is_gpu else "gloo"
        priority = None
        if self.is_gpu and options.high_priority:
            priority = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
        dist.init_process_group(backend, timeout=limit, pg_options=priority)
        self.mesh = init_device_mesh(options.device, (dist.get_world_size(),))
        self.share = dist.get_world_size()
        self.dtype = torch.float16 if self.is_gpu else torch.float32
        full = Sizes(layers=options.layers, prompt=options.prompt, positions=options.prompt + 128)
        self.sizes = full if self.is_gpu else SMALL
        self.tokens: dict[str, list[int]] = {}

    def tell(self, **result: Any) -> None:
        """Writes a line, at once."""
        line = json.dumps({"rank": self.rank, "at": round(time.time(), 1), **result})
        print(line, flush=True)
        if self.options.output:
            with open(self.options.output, "a", encoding="utf-8") as file:
                file.write(line + "\n")

    def run(self, phase: str) -> None:
        """Runs a phase in all processes; those on one GPU run in the first alone."""
        timer = threading.Timer(self.options.limit, self._stop, (phase,))
        timer.daemon = True
        timer.start()
        faulthandler.dump_traceback_later(max(1, self.options.limit - 5))  # what it waits for
        start = time.perf_counter()
        try:
            if phase == "smoke":
                self._smoke()
            elif not phase.startswith("one") or self.rank == 0:
                self._measure(phase)
        finally:
            timer.cancel()
            faulthandler.cancel_dump_traceback_later()
        self.tell(phase=phase, seconds=round(time.perf_counter() - start, 1))
        if not phase.startswith("one"):
            dist.barrier()

    def _stop(self, phase: str) -> None:
        self.tell(phase=phase, error=f"took longer than {self.options.limit} s")
        os._exit(1)

    def _settings(self, cuda_graphs: bool) -> dict[str, Any]:
        """Returns the settings of each compilation."""
        return {
            "min_block_size": 1,
            "optimization_level": self.options.level,
            "cuda_graphs": cuda_graphs and self.is_gpu,
            "immutable_weights": True,
            "tactic_sources": self.options.tactic_sources,
            "max_engine_bytes": self.options.max_engine_bytes,
            "torch_executed_ops": set(self.options.torch_executed_ops),
            "engine_cache": self.options.engines and f"{self.options.engines}/{self.rank}",
        }

    def _compiled(
        self,
        model: nn.Module,
        inputs: Sequence[Tensor],
        what: str,
        graphs: bool,
        **changed: Any,
    ) -> Any:
        """Compiles a model for this rank, and sends the time that it took to the first process."""
        start = time.perf_counter()
        settings = {**self._settings(graphs), **changed}
        # An op alone in PyTorch would be another build of minutes, and max-autotune a search of minutes.
        modes = {mode: tuning.ALL_IN_TORCH[mode] for mode in (False, True)}
        with tuning.measuring_by(tuning.Measuring(tries=0, all_in_torch=modes)):
            compiled = torchtrt.compile(model, list(inputs), **settings)
        self.tell(
            built=what,
            seconds=round(time.perf_counter() - start, 1),
            engines=len(compiled.report.blocks),
            calls=sum(block.calls for block in compiled.report.blocks),
            divided=len(compiled.report.splits),
            rows=compiled.report.divided,
            stages={name: round(value, 1) for name, value in compiled.report.seconds.items()},
            tried=compiled.report.tried,
        )
        return compiled

    def _smoke(self) -> None:
        """Compares engines with eager PyTorch in float32, with and without CUDA graphs."""
        expected_tokens, expected = self._generate_eager_on_one()
        session = Session(SMALL, self.share, self.device, torch.float32)
        model = llama(SMALL, self.device, torch.float32, self.mesh)
        has_engines = not all("inductor" in phase for phase in self.options.phases[1:])
        settings = SETTINGS["engines" if has_engines else "inductor"]
        for graphs in (False, True):
            step = self._compiled(model, session.step, "smoke step", graphs, **settings)
            for is_async in (False, True):
                changed = {**settings, "async_tensor_parallel": is_async}
                what = f"smoke prefill, async_tensor_parallel={is_async}"
                with small_parts():
                    prefill = self._compiled(model, session.prompt, what, graphs, **changed)
                # With CUDA graphs, the second call is captured, and the third replayed.
                for call in range(3):
                    tokens, logits = session.generate(prefill, step, 8)
                    error = float((logits - expected).abs().max() / expected.abs().max())
                    same = tokens == expected_tokens
                    case = f"CUDA graphs {graphs}, async {is_async}, call {call}"
                    self.tell(smoke=case, error=error, tokens=same)
                    if not same or error > 1e-3:
                        raise SystemExit("The engines' results differ from those of one process.")

    def _generate_eager_on_one(self) -> tuple[list[int], Tensor]:
        model = llama(SMALL, self.device, torch.float32)
        session = Session(SMALL, 1, self.device, torch.float32)
        with torch.no_grad():
            return session.generate(model, model, 8)

    def _measure(self, phase: str) -> None:
        """Measures prefill and a decode step, and compares tokens with those of eager PyTorch.

        A phase with ``async_tensor_parallel`` measures prefill alone, and takes steps in eager PyTorch.
        """
        alone = phase.startswith("one")
        session = Session(self.sizes, 1 if alone else self.share, self.device, self.dtype)
        model = llama(self.sizes, self.device, self.dtype, None if alone else self.mesh)
        prefill: Run = model
        step: Run = model
        has_step = not phase.endswith((ASYNC, "inductor"))
        if not has_step:
            with contextlib.nullcontext() if self.is_gpu else small_parts():
                prefill = self._compiled(
                    model, session.prompt, f"{phase} prefill", True, **settings_of(phase)
                )
        elif not phase.endswith(("compiled", "eager")):
            step, prefill = (
                self._compiled(
                    model, inputs, f"{phase} {what}", phase != "inside", **settings_of(phase)
                )
                for inputs, what in ((session.step, "step"), (session.prompt, "prefill"))
            )
        elif phase.endswith("compiled"):
            torch._dynamo.reset()
            # NCCL between the parts of a graph is not captured in every version of PyTorch.
            prefill = step = torch.compile(model, dynamic=False)
        with torch.no_grad():
            tokens, _ = session.generate(prefill, step, self.options.new)
            result = {"prefill_ms": self._milliseconds(lambda: prefill(*session.prompt))}
            if has_step:
                result["step_ms"] = self._milliseconds(lambda: step(*session.step))
        self.tokens[phase] = tokens
        others = {name: token == tokens for name, token in self.tokens.items() if name != phase}
        self.tell(
            result=CONTENDERS[phase],
            **result,
            tokens=tokens,
            same_tokens_as=others,
            sizes=vars(self.sizes),
            dtype=str(self.dtype),
            torch=torch.__version__,
            tensorrt=describe(),
            high_priority=self.options.high_priority,
            device=torch.cuda.get_device_name() if self.is_gpu else "cpu",
        )

    def _milliseconds(self, call: Callable[[], object]) -> float:
        """Returns the median time of a call, one after the other, without waiting between those of a round."""
        calls = 10 if self.is_gpu else 1
        times = []
        for turn in range(ROUNDS + 2):
            if self.is_gpu:
                torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(calls):
                call()
            if self.is_gpu:
                torch.cuda.synchronize()
            if turn >= 2:
                times.append((time.perf_counter() - start) / calls * 1e3)
        return round(statistics.median(times), 4)


def work(options: argparse.Namespace) -> None:
    """Runs the phases in this process."""
    measurement = Measurement(options)
    for phase in options.phases:
        try:
            measurement.run(phase)
        except Exception as error:
            measurement.tell(phase=phase, error=f"{type(error).__name__}: {error}"[:2000])
            if phase == "smoke" or options.strict:
                raise
    dist.barrier()
    dist.destroy_process_group()


def _spawned(rank: int, options: argparse.Namespace, port: int) -> None:
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )  # fmt: skip
    work(options)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the phases that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--phases", nargs="+", choices=PHASES, default=list(PHASES))
    parser.add_argument(
        "--high-priority",
        action="store_true",
        help="NCCL's kernels begin before the next ones of engines",
    )
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--prompt", type=int, default=2048)
    parser.add_argument("--new", type=int, default=8, help="how many tokens are compared")
    parser.add_argument("--level", type=int, default=None, help="optimization_level of TensorRT")
    parser.add_argument(
        "--tactic-sources", type=int, help="as the setting: 0 without cuBLAS and cuDNN"
    )
    parser.add_argument(
        "--max-engine-bytes",
        type=int,
        help="as the setting: TensorRT 8.6 takes too long for all weights in one engine",
    )
    parser.add_argument("--torch-executed-ops", nargs="*", default=[], help="as the setting")
    parser.add_argument("--engines", help="a folder that keeps the engines")
    parser.add_argument("--limit", type=int, default=150, help="seconds that a phase may take")
    parser.add_argument("--strict", action="store_true", help="end at the first error")
    parser.add_argument("--output", default=os.environ.get("OUT_FILE"))
    options = parser.parse_args(arguments)
    if "RANK" in os.environ:
        work(options)
    else:
        store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True)
        port = store.port
        del store
        torch.multiprocessing.spawn(_spawned, (options, port), nprocs=2)


if __name__ == "__main__":
    sys.exit(main())
