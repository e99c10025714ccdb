"""Ops whose own kernels run in engines, as plugins that packs register: compiled, saved, loaded, and refused."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import torchtrt
from tests.support.compiled import assert_same, engines_of
from tests.support.modules import Function
from tests.support.processes import run_python
from torchtrt.errors import BuildError, EngineError, EngineMismatchError, UnreadableFileError
from torchtrt.packs import ConverterPack, PackInfo, state
from torchtrt.packs.problem import Problem
from torchtrt.packs.state import add_pack
from torchtrt.plugins.operators import PluginKey, PluginOp
from torchtrt.tensorrt.plugins import provide, take_kernel_error
from torchtrt_cli import main
from torchtrt_runtime.serialization.engine_metadata import describe_engine, load_engine

INFO = PackInfo("kernels", "their-kernels", "1.2", "/packs")
Tensor = torch.Tensor


@torch.library.custom_op("engine_kernels::windows", mutates_args=())
def windows(x: Tensor, size: int, step: int = 1) -> Tensor:
    """Returns the windows over the last dimension, behind the others."""
    return x.unfold(-1, size, step).contiguous()


@windows.register_fake
def _(x: Tensor, size: int, step: int = 1) -> Tensor:
    return x.new_empty(*x.shape[:-1], (x.shape[-1] - size) // step + 1, size)


@torch.library.custom_op("engine_kernels::rank", mutates_args=())
def rank(
    x: Tensor, descending: bool, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns sorted values, their places, and whether they are positive."""
    values, places = x.sort(-1, descending=descending)
    return values.to(dtype or x.dtype), places, values > 0


@rank.register_fake
def _(
    x: Tensor, descending: bool, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.empty_like(x, dtype=dtype or x.dtype),
        torch.empty_like(x, dtype=torch.int64),
        torch.empty_like(x, dtype=torch.bool),
    )


@torch.library.custom_op("engine_kernels::blend", mutates_args=())
def blend(
    parts: list[Tensor],
    weights: list[float],
    mode: str,
    clip: float | None = None,
    dims: list[int] | None = None,
) -> Tensor:
    """Returns a weighted sum, or a concatenation."""
    scaled = [part * weight for part, weight in zip(parts, weights, strict=True)]
    total = (
        torch.cat(scaled, dims[0] if dims else 0) if mode == "cat" else torch.stack(scaled).sum(0)
    )
    return total if clip is None else total.clamp(max=clip)


@blend.register_fake
def _(
    parts: list[Tensor],
    weights: list[float],
    mode: str,
    clip: float | None = None,
    dims: list[int] | None = None,
) -> Tensor:
    return torch.cat(parts, dims[0] if dims else 0) if mode == "cat" else torch.empty_like(parts[0])


@torch.library.custom_op("engine_kernels::above", mutates_args=())
def above(x: Tensor) -> Tensor:
    """Returns the positive elements."""
    return x[x > 0]


@above.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


@torch.library.custom_op(
    "engine_kernels::noise", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,)
)
def noise(x: Tensor) -> Tensor:
    """Returns random numbers."""
    return torch.rand_like(x)


@noise.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("engine_kernels::wrong", mutates_args=())
def wrong(x: Tensor) -> Tensor:
    """Returns one row less than its fake implementation says."""
    return x[1:].clone()


@wrong.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("engine_kernels::failing", mutates_args=())
def failing(x: Tensor) -> Tensor:
    """Raises."""
    raise ValueError("the kernel gave up")


@failing.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("engine_kernels::sparse", mutates_args=())
def sparse(x: Tensor) -> Tensor:
    """Returns a tensor without strides."""
    return x.to_sparse()


@sparse.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("engine_kernels::on_gpu", mutates_args=(), device_types="cuda")
def on_gpu(x: Tensor) -> Tensor:
    """Has an implementation for GPUs alone."""
    return x.clone()


@on_gpu.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


OPS = (windows, rank, blend, above, noise, wrong, failing, sparse, on_gpu)


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> ConverterPack:
    """A third party's pack with plugins, gone after the test."""
    monkeypatch.setattr(state._state, "packs", state.current_packs())
    pack = ConverterPack("kernels")
    for op in OPS:
        pack.plugin(op)
    add_pack(pack, INFO)
    return pack


@pytest.fixture(params=["reference@10.16.1", "reference@11.4.0"])
def plugins(request: pytest.FixtureRequest, kernels: ConverterPack) -> Iterator[ConverterPack]:
    """The pack, with each TensorRT that has plugins."""
    with torchtrt.use_tensorrt(request.param):
        yield kernels


def compiled(function: Any, inputs: list[Any], **settings: Any) -> tuple[Any, Any]:
    """Returns a function as a model, and what becomes of it; all of it is in engines."""
    model = Function(function).eval()
    settings = {"require_full_compilation": True, **settings}
    return model, torchtrt.compile(model, inputs, **settings)


def rows(low: int, usual: int, high: int, *rest: int, **more: Any) -> torchtrt.Input:
    """Returns an input whose first dimension varies."""
    return torchtrt.Input(
        min_shape=(low, *rest), opt_shape=(usual, *rest), max_shape=(high, *rest), **more
    )


DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64)


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_op_computes_in_an_engine_what_it_does_in_pytorch(
    plugins: ConverterPack, dtype: torch.dtype
) -> None:
    """In each dtype, between layers of TensorRT."""
    x = torch.arange(24).reshape(3, 8).to(dtype)
    model, engine = compiled(lambda x: windows(x + 1, 3, 2) * 2, [x])

    assert_same(engine, model, x)
    assert_same(engine, model, x.flip(1))
    assert_same(engine, model, x.t().contiguous().t())


def test_sizes_vary_and_the_results_sizes_follow(plugins: ConverterPack) -> None:
    """By the expressions of the fake implementation, with several results of several dtypes."""

    def function(x: Tensor) -> Any:
        values, places, positive = rank(windows(x, 4, 3).flatten(1) - 0.5, True, torch.float16)
        return values, places + 1, positive

    model, engine = compiled(function, [rows(1, 5, 9, 12)])

    for count in (1, 2, 5, 9):
        assert_same(engine, model, torch.rand(count, 12))


def test_the_last_dimension_varies(plugins: ConverterPack) -> None:
    """A division of sizes is rounded down as in Python."""
    sizes = torchtrt.Input(min_shape=(2, 6), opt_shape=(2, 9), max_shape=(2, 20))
    model, engine = compiled(lambda x: windows(x, 3, 2).sum(-1), [sizes])

    for length in (6, 7, 8, 13, 20):
        assert_same(engine, model, torch.rand(2, length))


@pytest.mark.parametrize("mode", ["cat", "sum"])
def test_lists_texts_and_nothing_arrive_at_the_op(plugins: ConverterPack, mode: str) -> None:
    """Tensors in a list, of which one is there twice; infinite numbers too."""

    def function(x: Tensor, y: Tensor) -> Tensor:
        parts = blend([x, y, x], [1.0, -0.5, 0.0], mode, None, [1])
        return blend([parts], [1.0], "sum", float("inf"))

    model, engine = compiled(function, [rows(1, 2, 4, 3), rows(1, 2, 4, 3)])

    for count in (1, 4):
        assert_same(engine, model, torch.rand(count, 3), torch.rand(count, 3))


def test_a_size_of_an_input_can_be_an_argument(plugins: ConverterPack) -> None:
    """The plugin computes it from the sizes of the call."""
    sizes = torchtrt.Input(min_shape=(2, 8), opt_shape=(3, 8), max_shape=(5, 8))
    model, engine = compiled(lambda x: windows(x, x.shape[0], 1).sum(1), [sizes])

    for count in (2, 3, 5):
        assert_same(engine, model, torch.rand(count, 8))


class Blending(torch.nn.Module):
    """A weight that only a plugin reads."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(3))

    def forward(self, x: Tensor) -> Tensor:
        """Blends the input with the weight."""
        return blend([x, self.weight], [1.0, 2.0], "sum") + 1


def test_weights_are_inputs_of_the_op(plugins: ConverterPack) -> None:
    """A refit reaches them."""
    model = Blending().eval()
    engine = torchtrt.compile(model, [torch.rand(3)], min_block_size=1, immutable_weights=False)
    assert_same(engine, model, torch.rand(3))

    other = Blending().eval()
    torchtrt.refit_module_weights(engine, other, in_place=True)

    assert_same(engine, other, torch.rand(3))


def test_an_op_with_random_results_is_computed_in_each_call(plugins: ConverterPack) -> None:
    """Of weights too, by PyTorch's tag for such ops."""

    class Noisy(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.rand(4))

        def forward(self, x: Tensor) -> Tensor:
            return x + noise(self.scale)

    engine = torchtrt.compile(Noisy().eval(), [torch.rand(3, 4)], require_full_compilation=True)

    x = torch.zeros(3, 4)
    assert not torch.equal(engine(x), engine(x))


def test_threads_run_an_engine_side_by_side(plugins: ConverterPack) -> None:
    """With different sizes."""
    model, engine = compiled(lambda x: windows(x, 3, 2) + 1, [rows(1, 4, 8, 64)])
    problems: list[BaseException] = []

    def call(count: int) -> None:
        try:
            for _ in range(10):
                assert_same(engine, model, torch.rand(count, 64))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=call, args=(count,)) for count in (1, 3, 5, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [] == problems


def saved(folder: Path) -> tuple[Any, Path]:
    """Returns a model with a plugin, and the file that it is saved in."""
    model, engine = compiled(lambda x: windows(x, 3, 2) + 1, [rows(1, 4, 8, 8)])
    path = folder / "model.pt2"
    torchtrt.save(engine, path)
    return model, path


def test_a_saved_model_runs_by_the_pack(plugins: ConverterPack, tmp_path: Path) -> None:
    """Its engine names the pack, the op and the version; PyTorch's own loader runs it too."""
    model, path = saved(tmp_path)

    loaded = torchtrt.load(path)

    (engine,) = engines_of(loaded)
    assert engine.plugins == (PluginKey("kernels", "engine_kernels::windows", "1"),)
    assert_same(loaded, model, torch.rand(5, 8))
    assert_same(torch.export.load(path).module(), model, torch.rand(5, 8))


def test_a_saved_model_without_the_pack_names_the_distribution(
    plugins: ConverterPack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it is loaded, not when it is called."""
    _, path = saved(tmp_path)
    packs = state.current_packs()
    without = tuple(loaded for loaded in packs.loaded if loaded.info.name != "kernels")
    monkeypatch.setattr(state._state, "packs", replace(packs, loaded=without))

    with pytest.raises(
        EngineMismatchError,
        match=r"block_0 runs the op engine_kernels::windows by version 1 .* pack kernels, which is not installed.*"
        r"pip install their-kernels",
    ):
        torchtrt.load(path)
    key = PluginKey("kernels", "engine_kernels::windows", "1")  # of an earlier torchtrt
    with pytest.raises(EngineMismatchError, match="Install the distribution of this pack"):
        provide([key], "The engine")
    broken = Problem("ImportError: libfoo.so.2", "Repair their-kernels.", pack="kernels")
    monkeypatch.setattr(state._state, "problems", [broken])
    with pytest.raises(
        EngineMismatchError,
        match=r"not in use here: ImportError: libfoo\.so\.2\. Repair their-kernels\.$",
    ):
        provide([key], "The engine")


def test_a_saved_model_wants_the_version_that_it_was_built_with(
    plugins: ConverterPack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pack whose op has changed raises it."""
    _, path = saved(tmp_path)
    packs = state.current_packs()
    newer = ConverterPack("kernels")
    newer.plugin(windows, version="2")
    changed = tuple(
        replace(loaded, pack=newer) if loaded.info.name == "kernels" else loaded
        for loaded in packs.loaded
    )
    monkeypatch.setattr(state._state, "packs", replace(packs, loaded=changed))

    with pytest.raises(EngineMismatchError, match=r"kernels 1\.2 has version 2 of it\. Install"):
        torchtrt.load(path)


def test_a_pack_may_keep_earlier_versions(
    plugins: ConverterPack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New engines ask for the version that is registered first."""
    model, path = saved(tmp_path)
    packs = state.current_packs()
    without = tuple(loaded for loaded in packs.loaded if loaded.info.name != "kernels")
    monkeypatch.setattr(state._state, "packs", replace(packs, loaded=without))
    newer = ConverterPack("kernels")
    newer.plugin(windows, version="2")
    newer.plugin(windows, version="1")
    add_pack(newer, INFO)

    _, engine = compiled(lambda x: windows(x, 3, 2) + 1, [torch.rand(2, 8)])

    assert [key.version for key in engines_of(engine)[0].plugins] == ["2"]
    assert_same(torchtrt.load(path), model, torch.rand(5, 8))


def test_a_process_without_the_pack_names_it(plugins: ConverterPack, tmp_path: Path) -> None:
    """A plan alone tells its namespace, which is the pack."""
    _, path = saved(tmp_path)
    engine = engines_of(torchtrt.load(path))[0]
    (tmp_path / "model.plan").write_bytes(bytes(engine.plan))
    code = (
        "import sys, torchtrt\n"
        "for load, path in zip((torchtrt.load, torchtrt.engine_module), sys.argv[1:]):\n"
        "    try:\n"
        "        with torchtrt.use_tensorrt(sys.argv[3]): load(path)\n"
        "    except torchtrt.errors.EngineError as error: print(error)"
    )
    files = path, tmp_path / "model.plan"

    done = run_python("-c", code, *map(str, files), engine.tensorrt, check=True)

    of_model, of_plan = done.stdout.splitlines()
    assert "pip install their-kernels" in of_model
    assert "Cannot find plugin: engine_kernels::windows, version: 1, namespace: kernels" in of_plan


@pytest.mark.parametrize("description", [True, False])
def test_a_plan_runs_by_the_pack(plugins: ConverterPack, tmp_path: Path, description: bool) -> None:
    """With its description, and without: then the plugins of all packs are there."""
    model, engine = compiled(lambda x: windows(x, 3, 2) + 1, [rows(1, 4, 8, 8)])
    torchtrt.export_engine(engine, tmp_path / "model.plan")

    loaded = torchtrt.engine_module(tmp_path / "model.plan", description=description)

    x = torch.rand(3, 8)
    torch.testing.assert_close(loaded(x)[0], model(x))


@pytest.mark.parametrize(
    "malformed",
    [7, "x", [1], [{}], [{"pack": "kernels"}], [{"pack": [], "name": {}, "version": 1}]],
)
def test_malformed_names_of_plugins_are_an_unreadable_file(
    plugins: ConverterPack, tmp_path: Path, malformed: Any
) -> None:
    """In a description, and beside a plan."""
    _, engine = compiled(lambda x: windows(x, 3, 2) + 1, [torch.rand(2, 8)])
    torchtrt.export_engine(engine, tmp_path / "model.plan")
    beside = tmp_path / "model.plan.json"
    beside.write_text(json.dumps({**json.loads(beside.read_text()), "plugins": malformed}))
    (module,) = engines_of(engine)
    description = {**json.loads(json.dumps(describe_engine(module))), "plugins": malformed}

    with pytest.raises(UnreadableFileError):
        torchtrt.engine_module(tmp_path / "model.plan")
    with pytest.raises(UnreadableFileError):
        load_engine(description, module.plan)


def test_a_plan_of_an_earlier_torchtrt_has_no_plugins(
    plugins: ConverterPack, tmp_path: Path
) -> None:
    """Its description lacks the entry."""
    model, engine = compiled(lambda x: x + 1, [torch.rand(2, 8)])
    torchtrt.export_engine(engine, tmp_path / "model.plan")
    beside = tmp_path / "model.plan.json"
    data = json.loads(beside.read_text())
    del data["plugins"]
    beside.write_text(json.dumps(data))

    loaded = torchtrt.engine_module(tmp_path / "model.plan")

    x = torch.rand(2, 8)
    torch.testing.assert_close(loaded(x)[0], model(x))


def reason(function: Any, inputs: list[Any]) -> str:
    """Returns why the one op of a function stays in PyTorch."""
    report = torchtrt.explain(Function(function).eval(), inputs, min_block_size=1)
    (row,) = [row for row in report.in_torch if row.op.startswith("engine_kernels")]
    return row.reason


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: above(x + 1), "a plugin cannot compute the size .* is no size of its inputs"),
        (lambda x: on_gpu(x + 1), "no implementation for CPU tensors"),
        (lambda x: windows((x + 1).double(), 3), "float64"),
        (lambda x: windows((x + 1).to(torch.uint8), 3), "uint8"),
        (lambda x: windows(x[(None,) * 7], 3), "its input has 9 dimensions, .* at most 8"),
        (lambda x: windows(x[(None,) * 6], 3), "its result has 9 dimensions"),
    ],
)
def test_what_no_plugin_can_do_stays_in_pytorch(
    plugins: ConverterPack, function: Any, expected: str
) -> None:
    """With the reason."""
    assert re.search(expected, reason(function, [torch.rand(3, 4)]))


def test_a_tensorrt_without_plugins_leaves_the_op_to_pytorch(kernels: ConverterPack) -> None:
    """The reason names the version that has them."""
    with torchtrt.use_tensorrt("reference@8.6.0"):
        found = reason(lambda x: windows(x + 1, 3), [torch.rand(3, 4)])

    assert "plugins of the interface IPluginV3" in found
    assert "TensorRT has from version 10.0 on" in found


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (wrong, r"float32 \(2, 4\), and its fake implementation says torch\.float32 \(3, 4\)"),
        (failing, "ValueError: the kernel gave up"),
        (sparse, r"The result 0 of .*sparse is torch\.sparse_coo\. Return a tensor with strides"),
    ],
)
def test_a_kernel_that_fails_or_lies_is_an_error_of_the_call(
    plugins: ConverterPack, op: Any, expected: str
) -> None:
    """The op's own error is in the message, and nothing is broadcast."""
    _, engine = compiled(lambda x: op(x + 1), [torch.rand(3, 4)])

    with pytest.raises(EngineError, match=expected):
        engine(torch.rand(3, 4))


def test_the_error_of_a_kernel_is_the_cause(plugins: ConverterPack) -> None:
    """With its traceback; what fails for another reason afterwards has no such cause."""
    _, engine = compiled(lambda x: failing(x + 1), [torch.rand(3, 4)])

    with pytest.raises(EngineError) as caught:
        engine(torch.rand(3, 4))

    assert isinstance(caught.value.__cause__, ValueError)
    frames = []
    trace = caught.value.__cause__.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert "failing" in frames
    assert take_kernel_error() is None


def test_a_changed_schema_under_the_same_version_is_refused(
    plugins: ConverterPack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The saved arguments would mean something else; a plan without its description says so too."""
    _, path = saved(tmp_path)
    _, engine = compiled(lambda x: windows(x, 3, 2) + 1, [rows(1, 4, 8, 8)])
    torchtrt.export_engine(engine, tmp_path / "model.plan")
    schema = "engine_kernels::windows(Tensor x, SymInt step, SymInt size=1) -> Tensor"
    monkeypatch.setattr(PluginOp, "schema", schema)

    said = r"had the schema .*size, SymInt step=1.* and has .*step, SymInt size=1"
    with pytest.raises(EngineMismatchError, match=said):
        torchtrt.load(path)
    for description, error in ((True, EngineMismatchError), (False, EngineError)):
        with pytest.raises(error, match=said):
            torchtrt.engine_module(tmp_path / "model.plan", description=description)


def test_a_weight_that_tensorrt_cannot_replace_is_no_surprise_of_a_refit(
    plugins: ConverterPack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is not built, and the error names the weight and the op."""
    monkeypatch.setattr(torchtrt.trt.Refitter, "get_all_weights", lambda self: [])
    model, x = Blending().eval(), torch.rand(3)
    settings = {"immutable_weights": False, "min_block_size": 1}
    said = r"cannot replace the weights 'weight' of block_0, which has plugins \(engine_kernels::blend\)"
    with pytest.raises(BuildError, match=said):
        torchtrt.compile(model, [x], require_full_compilation=True, **settings)
    assert_same(
        torchtrt.compile(model, [x], torch_executed_ops=blend._opoverload, **settings), model, x
    )


def test_an_error_is_reported_once(plugins: ConverterPack) -> None:
    """The next engine that fails reports its own error alone."""
    for op, mine, other in ((failing, "gave up", "fake"), (wrong, "fake", "gave up")):
        _, engine = compiled(lambda x, op=op: op(x + 1), [torch.rand(3, 4)])
        with pytest.raises(EngineError, match=mine) as caught:
            engine(torch.rand(3, 4))
        assert other not in str(caught.value)


def test_a_plugin_takes_part_in_the_cache(plugins: ConverterPack, tmp_path: Path) -> None:
    """The engine is kept, and its plugins with it."""
    function = lambda x: windows(x, 3, 2) + 1  # noqa: E731
    settings = {"engine_cache": tmp_path / "cache"}

    model, first = compiled(function, [torch.rand(3, 8)], **settings)
    _, second = compiled(function, [torch.rand(3, 8)], **settings)

    assert [block.cached for block in first.report.blocks] == [False]
    assert [block.cached for block in second.report.blocks] == [True]
    assert_same(second, model, torch.rand(3, 8))
    assert engines_of(second)[0].plugins == engines_of(first)[0].plugins


@torch.library.custom_op("engine_kernels::on_cpu", mutates_args=(), device_types="cpu")
def on_cpu(x: Tensor) -> Tensor:
    """Has an implementation for CPUs alone."""
    return x + 1


on_cpu.register_fake(torch.empty_like)


def test_the_doctor_names_a_plugin_that_no_gpu_can_run(
    kernels: ConverterPack, capsys: pytest.CaptureFixture[str]
) -> None:
    """A laptop runs it, and the server would not."""
    kernels.plugin(on_cpu)

    assert main(["doctor", "--json"]) == 1

    answer = json.loads(capsys.readouterr().out)
    (problem,) = [each for each in answer["problems"] if each["code"] == "no-kernel"]
    assert problem["pack"] == "kernels"
    assert (
        "its plugin of engine_kernels::on_cpu: it has no implementation for CUDA" in problem["what"]
    )
    assert 'register_kernel("engine_kernels::on_cpu", "cuda")' in problem["hint"]
