"""Kernels that packs compile ahead of time: plans keep them, and need neither Python nor the pack."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import torchtrt
from tests.support.compiled import assert_same, engines_of
from tests.support.kernels import compiled, rows
from tests.support.modules import Function
from tests.support.processes import run_python
from torchtrt.errors import (
    EngineError,
    FullCompilationError,
    PackError,
    UnreadableFileError,
    UnsupportedProgramError,
)
from torchtrt.packs import (
    ConverterPack,
    ConverterPriority,
    PackInfo,
    add_pack,
    current_packs,
    use_packs,
)
from torchtrt_kernels import CompiledKernel, PluginKey
from torchtrt_kernels.plan_plugins import _PlanPlugin

Tensor = torch.Tensor
INFO = PackInfo("compiled", "their-compiled-kernels", "1.0", "/packs")


def ptx(name: str, scalars: int = 1, inputs: int = 1) -> str:
    """Returns a kernel that does nothing: no test here has a GPU."""
    types = [".u64"] * inputs + [".u32"] * scalars + [".u64"]
    parameters = ", ".join(f".param {type_} p{index}" for index, type_ in enumerate(types))
    return f".version 8.0\n.target sm_80\n.address_size 64\n.entry {name}({parameters}) {{ ret; }}"


@torch.library.custom_op("compiled_kernels::scaled", mutates_args=())
def scaled(x: Tensor, factor: float, rows: int = 1) -> Tensor:
    """Returns multiples of a tensor, and repeats its rows."""
    return torch.cat([x * factor] * rows)


@scaled.register_fake
def _(x: Tensor, factor: float, rows: int = 1) -> Tensor:
    return x.new_empty(x.shape[0] * rows, *x.shape[1:])


asked: list[tuple[Any, ...]] = []
"""The arguments of the calls of ``scaled_kernel``."""


def scaled_kernel(x: Tensor, factor: float, rows: int = 1) -> CompiledKernel:
    """Returns the kernel of a call: one for each dtype."""
    asked.append((x.dtype, tuple(x.shape), factor, rows))
    n, name = x.numel(), f"scaled_{str(x.dtype)[6:]}"
    return CompiledKernel(
        name, ptx(name, 2), ((n * rows + 255) // 256, 1), [256], (n, x.shape[0] - 1), 128
    )


@pytest.fixture
def pack() -> Iterator[ConverterPack]:
    """A pack with a kernel that it compiles, gone after the test."""
    made = ConverterPack("compiled")
    made.plugin(scaled, aot=lambda *args: scaled_kernel(*args))  # new: nothing is compiled yet
    asked.clear()
    with use_packs():
        add_pack(made, INFO)
        yield made


@pytest.fixture(params=["reference@10.16.1", "reference@11.4.0"])
def versions(request: pytest.FixtureRequest, pack: ConverterPack) -> Iterator[ConverterPack]:
    """The pack, with each TensorRT that has such plugins."""
    with torchtrt.use_tensorrt(request.param):
        yield pack


def launches(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Returns the kernels that TensorRT takes from now on."""
    taken: list[Any] = []

    def get_kernel(self: Any, *_: Any) -> tuple[str, bytes]:
        taken.append(self.launch)
        return self.launch.name, self.launch.code

    monkeypatch.setattr(_PlanPlugin, "get_kernel", get_kernel)
    return taken


def without_pack() -> Any:
    """Returns the packs without this one."""
    packs = current_packs()
    return replace(packs, loaded=tuple(one for one in packs.loaded if one.info.name != INFO.name))


def test_a_compiled_kernel_runs_at_every_size(
    versions: ConverterPack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launch is an expression of the sizes, and the engine's key names the kernel."""
    taken = launches(monkeypatch)
    model, engine = compiled(lambda x: scaled(x + 1, 2.0, 3) * 2, [rows(1, 4, 64, 8)])

    for count in (1, 5, 64):
        assert_same(engine, model, torch.rand(count, 8))

    (key,) = engines_of(engine)[0].plugins
    assert key == PluginKey("compiled", "compiled_kernels::scaled", "1", kernel="scaled_float32")
    (launch,) = taken
    n = ["Mul", 8, ["symbol", [0, 0]]]
    assert launch.grid[1:] == (1, 1)
    assert launch.block == (256, 1, 1)
    assert n in launch.scalars
    assert launch.shared_memory == 128
    assert launch.code == ptx("scaled_float32", 2).encode()


def test_the_function_runs_once_for_equal_calls(versions: ConverterPack) -> None:
    """Compiling costs a second: planning and building ask for the same kernel."""

    def function(x: Tensor) -> Tensor:
        return scaled(scaled(x, 2.0), 2.0) + scaled(x, 3.0)

    compiled(function, [torch.rand(3, 71)])

    assert sorted(factor for *_, factor, _ in asked) == [2.0, 3.0]


def test_two_kernels_of_one_op_are_in_one_plan(
    versions: ConverterPack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for each dtype; the results are those of the op."""
    taken = launches(monkeypatch)
    model, engine = compiled(
        lambda x: scaled(x, 2.0).sum(0) + scaled(x.half(), 3.0).float().sum(0), [rows(2, 4, 8, 6)]
    )

    assert_same(engine, model, torch.rand(5, 6))
    assert {launch.name for launch in taken} == {"scaled_float32", "scaled_float16"}
    assert {key.kernel for key in engines_of(engine)[0].plugins} == {
        "scaled_float32",
        "scaled_float16",
    }


def test_threads_run_one_engine(versions: ConverterPack) -> None:
    """Each gets its own results."""
    model, engine = compiled(lambda x: scaled(x, 2.0) + 1, [rows(1, 4, 64, 8)])
    failures: list[Exception] = []

    def work(seed: int) -> None:
        try:
            for count in range(1, 20):
                assert_same(engine, model, torch.full((count, 8), float(seed)))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []


def reason(function: Any, inputs: list[Any]) -> str:
    """Returns why an engine has no kernel for an op."""
    report = torchtrt.explain(Function(function).eval(), inputs, min_block_size=1)
    (row,) = [row for row in report.in_torch if row.op.startswith("compiled_kernels")]
    return row.reason


def kernel(**changes: Any) -> Callable[..., CompiledKernel]:
    """Returns a function that compiles a kernel for one input, with these fields."""
    fields = {"name": "k", "code": ptx("k"), "grid": (1,), "block": (32,), "scalars": (1,)}

    return lambda x, *_: CompiledKernel(  # type: ignore[arg-type]
        **{
            name: value(x) if callable(value) else value
            for name, value in {**fields, **changes}.items()
        }
    )


@pytest.mark.parametrize(
    ("aot", "expected"),
    [
        (lambda *_: 1 / 0, "its function aot raised ZeroDivisionError: division by zero"),
        (lambda *_: None, "its function aot returned NoneType, and no CompiledKernel"),
        (lambda: None, "its function aot raised TypeError"),
        (lambda x, *_: kernel()(x) if x.shape[0] > 7 else None, "decides by the dynamic sizes"),
        (lambda x, *_: kernel()(x) if x.shape[0] != 1 else None, "decides by the dynamic sizes"),
        (lambda x, *_: kernel(grid=(int(x.shape[0]),))(x), "decides by the dynamic sizes"),
        (kernel(name="other"), "has no entry other, but k"),
        (kernel(code=b"\x7fELF"), "binary, and TensorRT takes PTX"),
        (kernel(code=ptx("k", 2)), "reads 4 parameters, and TensorRT gives 3|parameter 2 of"),
        (kernel(scalars=()), "parameter 1 of its kernel k is .u32, and TensorRT gives .* 64 bits"),
        (kernel(scalars=7), "the scalars of its kernel are several, and not 7"),
        (kernel(scalars=(1.5,)), "has 1.5, which is no integer"),
        (kernel(scalars=(2**31,)), "has 2147483648, and can have"),
        (kernel(grid=()), r"has one to 3 dimensions, and is \(\)"),
        (kernel(grid=(1, 1, 1, 1)), "has one to 3 dimensions"),
        (kernel(grid=7), "has one to 3 dimensions, and is 7"),
        (kernel(grid=(True,)), "has True, which is no integer"),
        (kernel(grid=(0,)), "the grid of its kernel has 0, and can have 1 to 2147483647"),
        (kernel(grid=(1, 65536)), "has 65536, and can have 1 to 65535"),
        (kernel(block=(32, 64)), "the block of its kernel has 2048, and can have 1 to 1024"),
        (kernel(block=(1, 1, 65)), "has 65, and can have 1 to 64"),
        (kernel(shared_memory=2**20), "the shared memory of its kernel has 1048576"),
        (kernel(grid=lambda x: (x.shape[0] ** x.shape[0],)), "a plan cannot compute the grid"),
    ],
)  # fmt: skip
def test_what_no_plan_can_launch_stays_in_pytorch(aot: Any, expected: str) -> None:
    """With the reason, at once; the model still runs."""
    pack = ConverterPack("compiled")
    pack.plugin(scaled, aot=aot)
    with torchtrt.use_tensorrt("reference@11.4.0"), use_packs():
        add_pack(pack, INFO)

        assert re.search(expected, reason(lambda x: scaled(x + 1, 2.0), [rows(1, 4, 64, 8)]))


def test_a_launch_that_fits_some_sizes_is_an_error_of_the_others(
    versions: ConverterPack,
) -> None:
    """CUDA refuses it there: 1,025 threads, and an empty grid."""
    pack = ConverterPack("threads")
    pack.plugin(scaled, aot=kernel(block=lambda x: (x.shape[0],)), priority=ConverterPriority.HIGH)
    add_pack(pack, replace(INFO, name="threads"))
    model, engine = compiled(lambda x: scaled(x, 2.0) + 1, [rows(1, 4, 2000, 2)])

    assert_same(engine, model, torch.rand(1024, 2))
    with pytest.raises(EngineError, match="block_x is 1025, and can be 1 to 1024"):
        engine(torch.rand(1025, 2))


@pytest.mark.parametrize("version", ["reference@8.6.0", "rtx"])
def test_a_tensorrt_without_such_plugins_leaves_the_op_to_pytorch(
    pack: ConverterPack, version: str
) -> None:
    """The reason names the version that has them; requiring a whole engine is an error with it."""
    if version == "rtx":
        pytest.importorskip("tensorrt_rtx_bindings")
    with torchtrt.use_tensorrt(version):
        message = reason(lambda x: scaled(x + 1, 2.0), [torch.rand(3, 4)])
        with pytest.raises(FullCompilationError, match=r"TensorRT has from version 10\.9 on"):
            compiled(lambda x: scaled(x + 1, 2.0), [torch.rand(3, 4)])

    assert "plugins whose compiled kernels are in the plan" in message
    assert "TensorRT has from version 10.9 on" in message


def test_a_kernel_of_triton_has_its_block_and_its_shared_memory() -> None:
    """What Triton 3.6 returns: four warps, and 64 bytes."""
    metadata = SimpleNamespace(
        name="k", num_warps=4, shared=64, target=SimpleNamespace(warp_size=32)
    )
    made = CompiledKernel.of_triton(
        SimpleNamespace(metadata=metadata, asm={"ptx": "text"}), (2, 3), (7,)
    )

    assert made == CompiledKernel("k", "text", (2, 3), (128,), (7,), 64)
    metadata.num_ctas = 2
    with pytest.raises(ValueError, match="no kernel of Triton with num_ctas=2"):
        CompiledKernel.of_triton(SimpleNamespace(metadata=metadata, asm={}), (1,))


def test_a_wrong_function_is_refused_at_once() -> None:
    """With what is meant."""
    with pytest.raises(PackError, match="aot is a function that returns a CompiledKernel, not 'k'"):
        ConverterPack("compiled").plugin(scaled, aot="k")


def test_a_saved_model_needs_the_pack_only_where_there_is_no_gpu(
    versions: ConverterPack, tmp_path: Path
) -> None:
    """The plan has the kernel: it loads, and a call on the CPU names what stands in for it."""
    model, engine = compiled(lambda x: scaled(x, 2.0) + 1, [rows(1, 4, 8, 8)])
    torchtrt.save(engine, tmp_path / "model.pt2")
    assert_same(torchtrt.load(tmp_path / "model.pt2"), model, torch.rand(5, 8))

    with use_packs(without_pack()):
        loaded = torchtrt.load(tmp_path / "model.pt2")
        assert [key.kernel for key in engines_of(loaded)[0].plugins] == ["scaled_float32"]
    code = (
        "import sys, torch, torchtrt\n"
        "model = torchtrt.load(sys.argv[1])\n"
        "try: model(torch.rand(5, 8))\n"
        "except torchtrt.errors.EngineError as error: print(error)"
    )
    done = run_python("-c", code, str(tmp_path / "model.pt2"), check=True)
    assert "the kernel scaled_float32 of the plugin compiled_kernels_scaled runs on GPUs" in (
        done.stdout
    )


def test_a_plan_says_that_it_needs_no_python(versions: ConverterPack, tmp_path: Path) -> None:
    """In its description; it runs with and without it. A damaged one is refused."""
    model, engine = compiled(lambda x: scaled(x, 2.0) + 1, [rows(1, 4, 8, 8)])
    path = tmp_path / "model.plan"
    torchtrt.export_engine(engine, path)

    (plugin,) = json.loads((tmp_path / "model.plan.json").read_text())["plugins"]
    assert plugin["kernel"] == "scaled_float32"
    x = torch.rand(3, 8)
    for description in (True, False):
        loaded = torchtrt.engine_module(path, description=description)
        torch.testing.assert_close(loaded(x)[0], model(x))

    plan = path.read_bytes()
    path.write_bytes(plan[: len(plan) // 2])
    with pytest.raises(UnreadableFileError):
        torchtrt.engine_module(path)
    with pytest.raises(EngineError):
        torchtrt.engine_module(path, description=False)


@pytest.mark.parametrize("form", ["torchscript", "aot_inductor"])
def test_programs_without_python_take_compiled_kernels_alone(
    versions: ConverterPack, tmp_path: Path, form: str
) -> None:
    """A kernel that Python calls is refused, with the op and the argument that helps."""
    called = ConverterPack("called")
    called.plugin(scaled)
    path = tmp_path / "model.pt2"
    _, engine = compiled(lambda x: scaled(x, 2.0) + 1, [rows(1, 4, 8, 8)])
    if form == "torchscript":
        torchtrt.save(engine, path, format=form)
        assert path.exists()
    with use_packs(without_pack()):
        add_pack(called, replace(INFO, name="called"))
        _, engine = compiled(lambda x: scaled(x, 2.0) + 1, [rows(1, 4, 8, 8)])
        with pytest.raises(
            UnsupportedProgramError,
            match=r"runs the kernel of compiled_kernels::scaled, which needs Python.*pack called "
            r"compile the kernel ahead of time: pack\.plugin\(\.\.\., aot=",
        ):
            torchtrt.save(engine, tmp_path / "called.pt2", format=form)


def test_another_kernel_is_another_engine_of_the_cache(pack: ConverterPack, tmp_path: Path) -> None:
    """The text of a kernel may come from a compiler or a file that no version names."""
    hits = []
    for code in (ptx("k"), ptx("k"), ptx("k") + "// changed"):
        made = ConverterPack("compiled")
        made.plugin(scaled, aot=kernel(code=code))
        with torchtrt.use_tensorrt("reference@11.4.0"), use_packs(without_pack()):
            add_pack(made, INFO)
            inputs = [torch.rand(3, 4)]
            _, engine = compiled(lambda x: scaled(x, 2.0) + 1, inputs, engine_cache=tmp_path)
            hits += [block.cached for block in engine.report.blocks]

    assert [False, True, False] == hits


@torch.library.custom_op("compiled_kernels::joined", mutates_args=())
def joined(parts: list[Tensor], count: int, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Returns a part of a concatenation, and where it is positive."""
    whole = torch.cat(parts)[:count] + (0 if bias is None else bias)
    return whole, whole > 0


@joined.register_fake
def _(parts: list[Tensor], count: int, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
    made = parts[0].new_empty(count, *parts[0].shape[1:])
    return made, torch.empty_like(made, dtype=torch.bool)


class Joining(torch.nn.Module):
    """A list of tensors, a weight, and a size among the arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = torch.nn.Parameter(torch.rand(4))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Joins and cuts."""
        whole, positive = joined([x + 1, y, x], x.shape[0] + 1, self.bias)
        return whole * 2, positive


def test_lists_weights_and_sizes_are_arguments(
    versions: ConverterPack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inputs are addresses in the order of the arguments; a size is an expression; there are two outputs."""

    def aot(parts: list[Tensor], count: int, bias: Tensor | None = None) -> CompiledKernel:
        assert [len(parts), bias is not None] == [3, True]
        return CompiledKernel(
            "j",
            ptx("j", 2, 4).replace(") {", ", .param .u64 last) {"),
            (count, 4),
            (1,),
            (count, 4),
        )

    pack = ConverterPack("joining")
    pack.plugin(joined, aot=aot)
    add_pack(pack, replace(INFO, name="joining"))
    taken = launches(monkeypatch)
    model = Joining().eval()
    made = torchtrt.compile(
        model, [rows(1, 3, 9, 4), rows(1, 3, 9, 4)], require_full_compilation=True
    )

    for count in (1, 9):
        assert_same(made, model, torch.rand(count, 4), torch.rand(5, 4))
    assert taken[0].grid[0] == taken[0].scalars[0] != 1
    assert taken[0].scalars[1] == 4
