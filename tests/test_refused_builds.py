"""What TensorRT cannot build becomes several engines, or stays in PyTorch."""

import contextvars
import threading
import time

import pytest
import torch
from torch import nn

import torchtrt
from tests.support.compiled import assert_same, engines_of
from tests.support.small import Small
from torchtrt.errors import BuildError
from torchtrt_compiler.record import layer_information, record_compilation
from torchtrt_testing.faults import watched_tensorrt


class Residual(nn.Module):
    """Layers with a wide middle: the fewest tensors cross between layers."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        """Two branches in each layer, and a split whose pieces belong together."""
        for layer in self.layers:
            first, second = torch.relu(layer(x)).chunk(2, dim=-1)
            x = x + torch.cat([first.sigmoid(), second.tanh()], dim=-1)
        return x


def large(build):
    """Returns why TensorRT refuses a network of more than 20 layers."""
    return "too large" if len(build.layers) > 20 else ""


def test_a_block_that_cannot_be_built_as_one_becomes_several_engines(version):
    """Nothing goes to PyTorch, the result is the same, and the report says what happened."""
    torch.manual_seed(0)
    model, batch = Residual().eval(), torch.export.Dim("batch", min=1, max=5)

    with watched_tensorrt(refuses=large):
        compiled = torchtrt.compile(
            model, (torch.randn(2, 8),), dynamic_shapes=({0: batch},), require_full_compilation=True
        )

    assert len(engines_of(compiled)) > 1
    assert [block.name for block in compiled.report.blocks] == [
        f"block_{index}" for index in range(len(engines_of(compiled)))
    ]
    assert len(engines_of(compiled)) - 1 == len(compiled.report.splits)
    assert "too large" in compiled.report.splits[0]
    for size in (1, 2, 5):
        assert_same(compiled, model, torch.randn(size, 8))


def test_what_is_built_stays_when_another_block_is_divided():
    """Each network is built once, also those after the divided block, whose engines get other names."""
    torch.manual_seed(0)
    model = nn.Sequential(*(Residual() for _ in range(3))).eval()
    x = torch.randn(2, 8)

    def second(build):
        return "not this one" if len(tensorrt.builds) == 2 else ""

    with watched_tensorrt(refuses=second) as tensorrt:
        compiled = torchtrt.compile(model, (x,), max_engine_bytes=4 * 4 * (8 * 8 + 8))

    assert len(compiled.report.splits) == 1
    assert len(tensorrt.builds) == len(compiled.report.blocks) + 1
    names = [block.name for block in compiled.report.blocks]
    assert names == [f"block_{index}" for index in range(4)]
    assert names == [engine.name for engine in engines_of(compiled)]
    assert_same(compiled, model, x)


def test_an_engine_has_one_name_everywhere_after_another_block_is_divided(tmp_path):
    """In the model, the report, a file, a refitted copy, and the record, whose log tells of the new name."""
    torch.manual_seed(0)
    model, other = (nn.Sequential(*(Residual() for _ in range(2))).eval() for _ in range(2))
    x = torch.randn(2, 8)

    def wrong_first(execution):
        if len(tensorrt.executions) == 1:
            next(iter(execution.outputs.values())).add_(1)

    settings = {"max_engine_bytes": 4 * 4 * (8 * 8 + 8), "immutable_weights": False}
    with record_compilation(tmp_path / "record"), watched_tensorrt(changes=wrong_first) as tensorrt:
        compiled = torchtrt.compile(model, (x,), verify="engines", **settings)
    torchtrt.save(compiled, tmp_path / "model.pt2")
    loaded = torchtrt.load(tmp_path / "model.pt2")

    names = ["block_0", "block_1", "block_2"]
    for module in (compiled, loaded, torchtrt.refit_module_weights(loaded, other)):
        assert names == [block.name for block in module.report.blocks]
        engines = dict(module.graph_module.named_children())
        assert {name: name for name in names} == {
            name: engine.name for name, engine in engines.items()
        }
    assert_same(loaded, model, x)
    assert_same(torchtrt.refit_module_weights(loaded, other), other, x)
    for row, engine in zip(compiled.report.blocks, engines_of(compiled), strict=True):
        written = (tmp_path / "record" / "layers" / f"{row.name}.json").read_text()
        assert layer_information(engine) == written
        assert row.plan_bytes == len(engine.plan)
    assert len(list((tmp_path / "record" / "layers").iterdir())) == len(names)
    log = (tmp_path / "record" / "compilation.log").read_text()
    assert "renamed        block_1, which is block_2 from here on" in log


def test_threads_build_one_engine_at_a_time():
    """TensorRT 8.6 lets other builds of the process wait, and 10.16 may crash."""
    running, together, lock = [], [], threading.Lock()

    def observed(build):
        with lock:
            running.append(build)
            together.append(len(running))
        time.sleep(0.05)
        with lock:
            running.remove(build)
        return ""

    models = [nn.Linear(4, 4).eval() for _ in range(4)]
    with watched_tensorrt(refuses=observed):
        threads = [
            threading.Thread(
                target=contextvars.copy_context().run,
                args=(torchtrt.compile, model, [torch.rand(2, 4)]),
                kwargs={"min_block_size": 1},
            )
            for model in models
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert together == [1] * len(models)


def test_blocks_that_are_parted_stay_in_order_with_pytorch_between_them():
    """Levels after the parted block move on, also those of ops in PyTorch."""
    torch.manual_seed(0)
    model = nn.Sequential(Residual(), Small(), Residual()).eval()
    x = torch.randn(2, 8)
    whole = torchtrt.compile(model, (x,))

    with watched_tensorrt(refuses=large):
        parted = torchtrt.compile(model, (x,))

    assert len(engines_of(parted)) > len(engines_of(whole)) > 1
    assert parted.report.in_torch == whole.report.in_torch
    assert_same(parted, model, x)


def test_an_op_that_cannot_be_built_alone_stays_in_pytorch():
    """The rest becomes engines, and the report gives TensorRT's reason."""
    torch.manual_seed(0)
    model, x = Residual().eval(), torch.randn(2, 8)

    def sigmoid(build):
        is_there = any("aten.sigmoid" in name for name in build.layers)
        return "could not find any implementation" if is_there else ""

    with watched_tensorrt(refuses=sigmoid):
        compiled = torchtrt.compile(model, (x,), min_block_size=1)

    assert [op.op for op in compiled.report.in_torch] == ["aten.sigmoid.default"] * 4
    assert "could not find any implementation" in compiled.report.in_torch[0].reason
    assert len(compiled.report.blocks) == len(engines_of(compiled)) > 1
    assert_same(compiled, model, x)
    refused = pytest.raises(BuildError, match="could not find any implementation")
    with watched_tensorrt(refuses=sigmoid), refused:
        torchtrt.compile(model, (x,), require_full_compilation=True)


def test_a_builder_that_refuses_everything_is_an_error():
    """It is not for the ops' sake, be they many or one."""
    for model in (Residual(), nn.Linear(8, 8)):
        refused = pytest.raises(BuildError, match="too large")
        with watched_tensorrt(refuses=lambda build: "too large"), refused:
            torchtrt.compile(model.eval(), (torch.randn(2, 8),), min_block_size=1)
