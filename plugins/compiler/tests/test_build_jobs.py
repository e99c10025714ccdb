"""``build_jobs`` builds several engines at the same time."""

from __future__ import annotations

import copy
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchtrt
import torchtrt_compiler.building as building
import torchtrt_compiler.engines as engines
from torchtrt.errors import BuildError, ConversionError, SettingsError
from torchtrt.tensorrt import Capability
from torchtrt.tensorrt.selection import use_tensorrt
from torchtrt_compiler.progress import Stages

WIDTH, LAYERS = 8, 4
ROWS = torch.rand(3, WIDTH)
SETTINGS: dict[str, Any] = {"min_block_size": 1, "max_engine_bytes": 4 * (WIDTH + 1) * WIDTH}
"""The weights and the bias of one layer fit into an engine."""


def _model() -> nn.Module:
    torch.manual_seed(0)
    layers = (nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(LAYERS))
    return nn.Sequential(*layers).eval()


def _compiled(model: nn.Module, **settings: Any) -> Any:
    compiled = torchtrt.compile(model, [ROWS], **SETTINGS, **settings)
    torch.testing.assert_close(compiled(ROWS), model(ROWS))
    return compiled


def _around_builds(monkeypatch: pytest.MonkeyPatch, first: Any) -> None:
    """Calls ``first`` with the block's name before each build."""
    build = building.build_plan

    def observed(builder: Any, interpreted: Any, *rest: Any) -> Any:
        first(interpreted)
        return build(builder, interpreted, *rest)

    monkeypatch.setattr(building, "build_plan", observed)


@pytest.mark.parametrize("jobs", [1, 2, 3, 100])
def test_engines_are_those_of_one_job(jobs: int) -> None:
    model = _model()
    report = _compiled(model, build_jobs=jobs).report
    expected = _compiled(model).report
    rows = [(row.name, row.nodes, row.layers) for row in report.blocks]
    assert rows == [(row.name, row.nodes, row.layers) for row in expected.blocks]
    assert len(rows) == LAYERS


def test_builds_run_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(2)
    _around_builds(monkeypatch, lambda _: together.wait(timeout=60))
    _compiled(_model(), build_jobs=2)


def test_conversions_run_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    running = threading.Semaphore(1)
    overlaps = []
    run = building.TRTInterpreter.run

    def observed(self: Any) -> Any:
        overlaps.append(not running.acquire(blocking=False))
        threading.Event().wait(0.02)
        try:
            return run(self)
        finally:
            running.release()

    monkeypatch.setattr(building.TRTInterpreter, "run", observed)
    _compiled(_model(), build_jobs=4)
    assert overlaps == [False] * LAYERS


def test_threads_have_the_state_of_the_calling_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def look(_: Any) -> None:
        version = torchtrt.tensorrt.trt.__version__
        disabled = torchtrt.tensorrt.supports(Capability.ATTENTION)
        seen.append((version, disabled, torch.is_grad_enabled()))

    _around_builds(monkeypatch, look)
    with use_tensorrt("reference@11.4.0"):
        assert torchtrt.tensorrt.supports(Capability.ATTENTION)
        _compiled(_model(), build_jobs=2, disabled_capabilities={"ATTENTION"})
    assert seen == [("11.4.0", False, False)] * LAYERS


def test_a_block_that_fails_is_divided_and_no_other_is_built_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    builds: Counter[tuple[str, ...]] = Counter()

    def fail_with_two_products(interpreted: Any) -> None:
        network = interpreted.network.raw
        kinds = [network.get_layer(place).type.name for place in range(network.num_layers)]
        builds[tuple(kinds)] += 1
        if kinds.count("MATRIX_MULTIPLY") > 1:
            raise BuildError("two products")

    _around_builds(monkeypatch, fail_with_two_products)
    model = _model()
    settings = {**SETTINGS, "max_engine_bytes": 2 * SETTINGS["max_engine_bytes"]}
    compiled = torchtrt.compile(model, [ROWS], **settings, build_jobs=2)
    torch.testing.assert_close(compiled(ROWS), model(ROWS))
    names = [row.name for row in compiled.report.blocks]
    assert names == [f"block_{place}" for place in range(LAYERS)]
    assert [name for name, _ in compiled.graph_module.named_children()] == names
    assert len(compiled.report.splits) == 2
    once = [count for kinds, count in builds.items() if kinds.count("MATRIX_MULTIPLY") == 1]
    assert sum(once) == LAYERS
    assert sum(builds.values()) == LAYERS + 2


def test_an_engine_built_before_the_division_of_another_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    builds = []

    def fail_once(_: Any) -> None:
        builds.append(1)
        if len(builds) == 2:
            raise BuildError("the second one")

    _around_builds(monkeypatch, fail_once)
    compiled = _compiled(_model())
    assert len(compiled.report.splits) == 1
    assert len(builds) == len(compiled.report.blocks) + 1


def test_a_converter_that_fails_leaves_its_op_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    build = engines.build_engine

    def failing(name: str, block: Any, *rest: Any) -> Any:
        tanh = block.graph.find_nodes(op="call_function", target=torch.ops.aten.tanh.default)
        if name == "block_2" and tanh:
            resolution = engines.resolution_of(tanh[0])
            raise ConversionError("no tanh today", resolution=resolution)
        return build(name, block, *rest)

    monkeypatch.setattr(engines, "build_engine", failing)
    with pytest.warns(torchtrt.errors.ConversionWarning, match="no tanh today"):
        compiled = _compiled(_model(), build_jobs=2, torch_executed_on_failure=True)
    assert ["tanh" in entry.op for entry in compiled.report.in_torch] == [True]


def test_an_unexpected_error_ends_the_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> None:
        raise KeyError("unexpected")

    _around_builds(monkeypatch, fail)
    with pytest.raises(KeyError, match="unexpected"):
        _compiled(_model(), build_jobs=3)


def test_equal_blocks_are_built_once_into_one_cache(tmp_path: Path) -> None:
    layer = _model()[:1].eval()
    model = nn.Sequential(*(copy.deepcopy(layer) for _ in range(LAYERS))).eval()
    compiled = _compiled(model, build_jobs=LAYERS, engine_cache=tmp_path)
    assert sorted(row.cached for row in compiled.report.blocks) == [False, True, True, True]


def test_the_seconds_of_a_stage_pass_once_for_all_threads() -> None:
    seconds: dict[str, float] = {}
    stages = Stages(seconds, show=False)
    inside, leave = threading.Barrier(3), threading.Event()

    def build() -> None:
        with stages.stage("building"):
            inside.wait(60)
            leave.wait(60)

    threads = [threading.Thread(target=build) for _ in range(2)]
    for thread in threads:
        thread.start()
    inside.wait(60)
    assert seconds == {}
    leave.set()
    for thread in threads:
        thread.join()
    with stages.stage("building"):
        pass
    assert list(seconds) == ["building"]


@pytest.mark.parametrize("value", [0, -1, 1.5, True, None, "2"])
def test_numbers_that_are_no_count_are_refused(value: Any) -> None:
    with pytest.raises(SettingsError, match="build_jobs"):
        torchtrt.compile(nn.ReLU(), [torch.rand(1)], build_jobs=value)
