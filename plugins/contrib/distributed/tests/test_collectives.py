"""Collectives as layers: which ones, and the reasons against others. ``tests/test_two_ranks.py`` runs them."""

import ctypes

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

import torchtrt
import torchtrt_rtx
from tests.support.modules import Function
from torchtrt.conversion import add_layer
from torchtrt.errors import (
    ProcessGroupError,
    SettingsError,
    SettingsWarning,
    UnsupportedProgramError,
)
from torchtrt.tensorrt import Capability
from torchtrt.tensorrt.probes import disabling
from torchtrt_runtime.processes import groups as process_groups
from torchtrt_testing.building import BUILT, build

ops = torch.ops._c10d_functional
NEWER = ["reference@10.16.1", "reference@11.4.0"]
NEEDS_RTX = pytest.mark.skipif(
    not torchtrt_rtx.VERSIONS, reason="the wheels of TensorRT for RTX are not installed"
)
X = torch.rand(4, 3)
VARYING = torchtrt.Input(min_shape=(8, 3), opt_shape=(12, 3), max_shape=(16, 3))


@pytest.fixture(scope="module", autouse=True)
def world():
    """Rank 0 of four processes, of which this is the only one: PyTorch's stand-in exchanges nothing."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    yield
    dist.destroy_process_group()


def waits(function):
    """A model that waits for a collective, between other ops."""
    return Function(lambda x: ops.wait_tensor(function(x * 2)) + 1).eval()


def name_of(*ranks):
    """The name of a group of these ranks."""
    return dist.new_group(list(ranks)).group_name


EXCHANGES = {
    "all_reduce": lambda x: ops.all_reduce(x, "sum", "0"),
    "product": lambda x: ops.all_reduce(x, "product", "0"),
    "minimum": lambda x: ops.all_reduce(x, "min", "0"),
    "maximum": lambda x: ops.all_reduce(x, "MAX", "0"),
    "average": lambda x: ops.all_reduce(x, "avg", "0"),
    "scalar": lambda x: ops.all_reduce(x.sum(), "sum", "0"),
    "all_gather": lambda x: ops.all_gather_into_tensor(x, 4, "0"),
    "reduce_scatter": lambda x: ops.reduce_scatter_tensor(x, "sum", 4, "0"),
    "broadcast": lambda x: ops.broadcast(x, 3, "0"),
}
TYPES = [torch.float16, torch.bfloat16, torch.int32, torch.int64]
OTHERS = {
    "all_to_all": waits(lambda x: ops.all_to_all_single(x, [1] * 4, [1] * 4, "0")),
    **{
        str(type_): waits(lambda x, to=type_: ops.all_reduce(x.to(to), "sum", "0"))
        for type_ in TYPES
    },
}


def network(exported, tensorrt):
    """The layers of the only engine, each with its dtypes and shapes."""
    with torchtrt.use_tensorrt(tensorrt):
        built = build(exported, nccl_in_engines=tensorrt == "rtx")
    assert BUILT == built.outcome
    ((layers, _),) = built.networks
    return layers


@NEEDS_RTX
@pytest.mark.parametrize("name", [*EXCHANGES, *OTHERS])
def test_rtx_builds_what_the_reference_does(name):
    """Fixed sizes: each layer has the dtypes and shapes that it has in the reference."""
    model = waits(EXCHANGES[name]) if name in EXCHANGES else OTHERS[name]
    exported = torch.export.export(model, (X,))

    layers = network(exported, "rtx")

    assert "dist_collective" in [kind for kind, _ in layers]
    assert network(exported, "reference@11.4.0") == layers


@NEEDS_RTX
@pytest.mark.parametrize("name", EXCHANGES)
def test_rtx_builds_engines_for_sizes_that_vary(name):
    """One engine holds the model."""
    with torchtrt.use_tensorrt("rtx"):
        compiled = torchtrt.compile(
            waits(EXCHANGES[name]), [VARYING], nccl_in_engines=True, require_full_compilation=True
        )

    assert 1 == len(compiled.report.blocks)


# PyTorch's kernels refuse the spelling of the maximum.
@pytest.mark.parametrize("name", sorted(EXCHANGES.keys() - {"maximum"}))
def test_a_group_that_exchanges_nothing_gives_results_of_the_right_shape(name):
    """One process with PyTorch's fake group tries a program of several: the others have the tensors of this one."""
    model = waits(EXCHANGES[name])
    with torchtrt.use_tensorrt("reference@11.4.0"):
        compiled = torchtrt.compile(model, [X], require_full_compilation=True)

    actual, expected = compiled(X), model(X)

    assert actual.shape == expected.shape
    torch.testing.assert_close(actual, compiled(X), rtol=0, atol=0)


def reason(model, *inputs, **settings):
    """Why PyTorch runs the collective of a model."""
    report = torchtrt.explain(model, list(inputs) or [X], min_block_size=1, **settings)
    first, second = [entry for entry in report.in_torch if "c10d" in entry.op]
    assert "wait_tensor" in second.op
    assert "bool" in first.reason or f"PyTorch runs {first.node}" in second.reason
    return first.reason


@pytest.mark.parametrize("version", NEWER)
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: ops.all_reduce(x.int(), "band", "0"), "no reduction 'band' of collectives"),
        (lambda x: ops.all_reduce(x.int(), "avg", "0"), "documents no average of integers"),
        (lambda x: ops.all_reduce(x > 1, "max", "0"), "bool"),
        (lambda x: ops.all_to_all_single(x, [1, 1, 2, 0], [1] * 4, "0"), "exchanges equal parts"),
        (lambda x: ops.broadcast(x, 1, name_of(0, 2)), "does not document the root of a group"),
    ],
)
def test_pytorch_runs_what_the_layer_does_not_compute(version, function, words):
    """The report has the reason, and the wait stays with its collective."""
    if "all_to_all" in str(function.__code__.co_names) and version == NEWER[0]:
        words = "which TensorRT has from version 11.0 on"
    with torchtrt.use_tensorrt(version):
        assert words in reason(waits(function))


def test_a_tensorrt_without_the_layer_leaves_it_to_pytorch():
    """The reason names the version that has it, or the setting."""
    model = waits(EXCHANGES["all_reduce"])
    with torchtrt.use_tensorrt("reference@8.6.0"):
        assert "which TensorRT has from version 10.16 on" in reason(model)
    with torchtrt.use_tensorrt(NEWER[-1]):
        off = ["DISTRIBUTED_COLLECTIVES"]
        assert "disabled_capabilities turns it off" in reason(model, disabled_capabilities=off)


def test_nvidias_tensorrt_exchanges_tensors_only_if_it_is_told_to(monkeypatch):
    """It does so over NCCL alone."""
    model = waits(EXCHANGES["all_reduce"])
    with torchtrt.use_tensorrt(NEWER[-1]), disabling(frozenset({Capability.PROCESS_GROUPS})):
        assert "unless nccl_in_engines=True leaves them to TensorRT" in reason(model)
        compiled = torchtrt.explain(model, [X], nccl_in_engines=True, min_block_size=1)
        assert not compiled.in_torch
        monkeypatch.setattr(dist, "get_backend_config", lambda: "cpu:gloo")
        words = "over NCCL, and torch.distributed over cpu:gloo"
        assert words in reason(model, nccl_in_engines=True)


def test_ranks_in_another_order_stay_in_pytorch(monkeypatch):
    """TensorRT documents no order of what it gathers from a group."""
    where = "torchtrt_converters_distributed.process_groups.ranks_of"
    monkeypatch.setattr(where, lambda group: [1, 0, 2, 3])
    with torchtrt.use_tensorrt(NEWER[-1]):
        assert "not in ascending order" in reason(waits(EXCHANGES["all_gather"]))


def test_a_setting_for_nccl_that_changes_nothing_is_told():
    """A TensorRT without the layer is an error, before the model is exported."""
    model = waits(EXCHANGES["all_reduce"])
    with torchtrt.use_tensorrt("reference@8.6.0"), pytest.raises(SettingsError, match=r"10\.16"):
        torchtrt.explain(model, [X], nccl_in_engines=True)
    with torchtrt.use_tensorrt(NEWER[-1]):
        with pytest.warns(SettingsWarning, match="exchange tensors without it"):
            torchtrt.explain(model, [X], nccl_in_engines=True, min_block_size=1)
        with pytest.warns(SettingsWarning, match="the program exchanges no tensors"):
            torchtrt.explain(Function(torch.relu).eval(), [X], nccl_in_engines=True)


def test_nvidias_tensorrt_gets_nccls_communicator_in_a_capsule(monkeypatch):
    """The name of the capsule and the address in it are those that NVIDIA's bindings read."""
    monkeypatch.setattr(process_groups, "nccl_communicator", lambda group, device: 4096)
    with torchtrt.use_tensorrt(NEWER[-1]), disabling(frozenset({Capability.PROCESS_GROUPS})):
        capsule = process_groups.communicator_of(None, torch.device("cuda", 0))
    read = ctypes.pythonapi.PyCapsule_GetPointer
    read.restype, read.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    assert 4096 == read(capsule, b"ncclComm_t")


def test_a_group_that_does_not_exist_is_an_error_with_advice():
    """A program of another process may name one."""
    exported = torch.export.export(waits(EXCHANGES["all_reduce"]), (X,))
    for node in exported.graph.nodes:
        if node.target is ops.all_reduce.default:
            node.args = (*node.args[:-1], "nobody")
    with pytest.raises(ProcessGroupError, match=r"'nobody', which does not exist\. Make"):
        torchtrt.compile(exported, min_block_size=1)


def test_a_group_of_some_ranks_is_named_by_its_ranks():
    """The layer has those of the world, whose communicator the engine gets."""
    added = []
    model = waits(lambda x: ops.all_gather_into_tensor(x, 2, name_of(0, 2)))

    def spied(ctx, kind, *args):
        layer = add_layer(ctx, kind, *args)
        added.append((args[-1], layer))
        return layer

    where = "torchtrt_converters_distributed.converters.collectives.add_layer"
    with pytest.MonkeyPatch.context() as patch, torchtrt.use_tensorrt(NEWER[-1]):
        patch.setattr(where, spied)
        compiled = torchtrt.compile(model, [X], require_full_compilation=True, min_block_size=1)

    ((groups, layer),) = added
    assert ([0, 2], 2) == (groups, layer.num_ranks)
    assert (8, 3) == tuple(layer.get_output(0).shape)
    with pytest.raises(UnsupportedProgramError, match="exchanges tensors with other processes"):
        torchtrt.export_engine(compiled, "unused")


@pytest.mark.parametrize("version", NEWER)
def test_a_process_alone_in_its_group_exchanges_nothing(version):
    """The engine has no such layer: TensorRT takes none of one rank."""
    alone = name_of(0)
    exported = torch.export.export(waits(lambda x: ops.all_reduce(x, "sum", alone)), (X,))

    assert "dist_collective" not in [kind for kind, _ in network(exported, version)]


def test_processes_are_not_calibrated_each_on_its_own():
    """One could exchange float16, and another float32."""
    model = waits(EXCHANGES["all_reduce"])
    with pytest.raises(SettingsError, match="exchanges tensors with others"):
        torchtrt.compile(model, [X], autocast=torch.float16, autocast_calibration_dataloader=[X])
