"""Collectives among ranks: threads of one process here, each with a gloo backend of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import torch

from torchtrt_reference.rules import RULES

NEWER = [version for version, rules in RULES.items() if version != "8.6.0"]
Tensor = torch.Tensor


def backends(count: int) -> list[Any]:
    """One communicator for each rank."""
    store = torch.distributed.HashStore()
    limit = timedelta(seconds=20)
    with ThreadPoolExecutor(count) as pool:
        made = [
            pool.submit(torch.distributed.ProcessGroupGloo, store, rank, count, limit)
            for rank in range(count)
        ]
    return [result.result() for result in made]


def collective(n: Any, x: Any, kind: str, reduction: str = "NONE", **options: Any) -> Any:
    """A layer of this kind."""
    arguments = {"root": -1, "groups": None, "ranks": 1, **options}
    layer = n.net.add_dist_collective(
        x,
        getattr(n.trt.CollectiveOperation, kind),
        getattr(n.trt.ReduceOperation, reduction),
        arguments["root"],
        arguments["groups"],
    )
    if hasattr(n.trt.PreviewFeature, "MULTIDEVICE_RUNTIME_10_16"):
        n.config.set_preview_feature(n.trt.PreviewFeature.MULTIDEVICE_RUNTIME_10_16, True)
    if layer is not None:
        layer.num_ranks = arguments["ranks"]
    return layer


def run_ranks(benches: Sequence[Any], build: Callable[[Any, int], Any]) -> list[Any]:
    """The output of the network of each rank; None where its execution failed."""
    communicators = backends(len(benches))

    def run(rank: int) -> Any:
        n = benches[rank]
        context = n.context(build(n, rank))
        assert context.set_communicator(communicators[rank])
        shape = tuple(context.get_tensor_shape("o0"))
        output = torch.empty(shape, dtype=next(iter(n.values.values())).dtype)
        context.set_tensor_address("o0", output.data_ptr() or 1)
        return output if context.execute_async_v3(0) else None

    with ThreadPoolExecutor(len(benches)) as pool:
        return list(pool.map(run, range(len(benches))))


A, B = torch.tensor([[1.0, -2.0], [3.0, 4.0]]), torch.tensor([[5.0, 6.0], [-7.0, 0.5]])
ZERO = torch.zeros(2, 2)
RESULTS = {
    ("ALL_REDUCE", "SUM", -1): (A + B, A + B),
    ("ALL_REDUCE", "PROD", -1): (A * B, A * B),
    ("ALL_REDUCE", "MAX", -1): (A.maximum(B), A.maximum(B)),
    ("ALL_REDUCE", "MIN", -1): (A.minimum(B), A.minimum(B)),
    ("ALL_REDUCE", "AVG", -1): ((A + B) / 2, (A + B) / 2),
    ("ALL_GATHER", "NONE", -1): (torch.cat([A, B]), torch.cat([A, B])),
    ("REDUCE_SCATTER", "SUM", -1): ((A + B)[:1], (A + B)[1:]),
    ("BROADCAST", "NONE", 1): (B, B),
    ("REDUCE", "SUM", 1): (ZERO, A + B),
    ("GATHER", "NONE", 0): (torch.cat([A, B]), torch.zeros(4, 2)),
    ("SCATTER", "NONE", 0): (A[:1], A[1:]),
    ("ALL_TO_ALL", "NONE", -1): (torch.stack([A[0], B[0]]), torch.stack([A[1], B[1]])),
}
LATER = ("ALL_TO_ALL", "GATHER", "SCATTER")
"""Kinds that TensorRT 10.16 lacks."""


@pytest.mark.parametrize("varies", [False, True])
@pytest.mark.parametrize("new", NEWER)
@pytest.mark.parametrize(("kind", "reduction", "root"), RESULTS)
def test_two_ranks_exchange_tensors(
    new: str, kind: str, reduction: str, root: int, varies: bool, bench: Any
) -> None:
    """Each kind of collective, with rows that vary and that do not."""
    benches = [bench(new), bench(new)]
    if kind in LATER and new.startswith("10."):
        assert not hasattr(benches[0].trt.CollectiveOperation, kind)
        return

    def build(n: Any, rank: int) -> Any:
        x = n.input((A, B)[rank], (-1, 2) if varies else None)
        return collective(n, x, kind, reduction, root=root, ranks=2).get_output(0)

    for actual, expected in zip(
        run_ranks(benches, build), RESULTS[kind, reduction, root], strict=True
    ):
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int32, torch.int64])
def test_ranks_exchange_other_types(dtype: torch.dtype, bench: Any) -> None:
    """The result has the type of the input."""
    values = [torch.tensor([1, 2, 3]).to(dtype), torch.tensor([4, 5, 6]).to(dtype)]

    def build(n: Any, rank: int) -> Any:
        return collective(n, n.input(values[rank]), "ALL_REDUCE", "SUM", ranks=2).get_output(0)

    for result in run_ranks([bench("11.4.0"), bench("11.4.0")], build):
        torch.testing.assert_close(result, values[0] + values[1], rtol=0, atol=0)


@pytest.mark.parametrize("groups", [[0, 2], np.array([0, 2])])
def test_a_group_leaves_the_other_ranks_alone(groups: Any, bench: Any) -> None:
    """Two of three ranks exchange, while the third runs a network of its own."""

    def build(n: Any, rank: int) -> Any:
        x = n.input(torch.tensor([float(rank)]))
        alone = rank == 1
        return collective(
            n, x, "ALL_GATHER", groups=None if alone else groups, ranks=1 if alone else 2
        ).get_output(0)

    results = run_ranks([bench("11.4.0") for _ in range(3)], build)

    assert [[0.0, 2.0], [1.0], [0.0, 2.0]] == [result.tolist() for result in results]


def test_scalars_and_empty_tensors_are_exchanged(bench: Any) -> None:
    """A sum has any rank, and any number of elements."""
    for value in (torch.tensor(2.0), torch.zeros(0, 3)):

        def build(n: Any, rank: int, x: Tensor = value) -> Any:
            return collective(n, n.input(x), "ALL_REDUCE", "SUM", ranks=2).get_output(0)

        for result in run_ranks([bench("11.4.0"), bench("11.4.0")], build):
            torch.testing.assert_close(result, value * 2)


def test_ranks_with_other_sizes_fail(bench: Any) -> None:
    """No process waits for bytes that do not come."""
    benches = [bench("11.4.0"), bench("11.4.0")]

    def build(n: Any, rank: int) -> Any:
        return collective(
            n, n.input(torch.zeros(2 + rank)), "ALL_REDUCE", "SUM", ranks=2
        ).get_output(0)

    assert [None, None] == run_ranks(benches, build)
    assert "rank 1 has 12 bytes, and this one 8: sizes must be equal" in benches[0].errors[-1]


def test_an_engine_of_several_ranks_needs_a_communicator(bench: Any) -> None:
    """None, another kind of object, and one with other ranks are errors, and nothing waits."""
    n = bench("11.4.0")
    layer = collective(n, n.input(torch.zeros(2)), "ALL_REDUCE", "SUM", ranks=2)
    context = n.context(layer.get_output(0))
    output = torch.empty(2)
    context.set_tensor_address("o0", output.data_ptr())

    assert not context.execute_async_v3(0)
    assert "2 ranks exchange tensors, and set_communicator was not called" in n.errors[-1]
    assert not context.set_communicator("gloo")
    assert "the communicator must be a process group of torch.distributed" in n.errors[-1]
    assert context.set_communicator(backends(1)[0])
    assert not context.execute_async_v3(0)
    assert "the communicator has 1 ranks" in n.errors[-1]


@pytest.mark.parametrize("new", NEWER)
@pytest.mark.parametrize(
    ("kind", "reduction", "options", "reason"),
    [
        ("ALL_REDUCE", "NONE", {}, "needs a reduce_op"),
        ("ALL_GATHER", "SUM", {}, "takes no reduce_op"),
        ("BROADCAST", "NONE", {}, "the root of BROADCAST must be a rank, not -1"),
        ("ALL_REDUCE", "SUM", {"root": 0}, "the root of ALL_REDUCE must be -1"),
        ("ALL_REDUCE", "SUM", {"groups": [0, 0]}, "groups must be different ranks"),
        ("ALL_REDUCE", "SUM", {"groups": [-1, 0]}, "groups must be different ranks"),
        ("BROADCAST", "NONE", {"root": 0, "groups": [1, 2]}, "at its own place in them"),
    ],
)
def test_what_no_collective_is_gets_refused_when_it_is_added(
    new: str, kind: str, reduction: str, options: Any, reason: str, bench: Any
) -> None:
    """The method returns None, and the log has the rule."""
    n = bench(new)

    assert collective(n, n.input(torch.zeros(2)), kind, reduction, **options) is None
    assert reason in n.errors[-1]


@pytest.mark.parametrize(
    ("x", "kind", "reduction", "reason"),
    [
        (torch.zeros(3), "REDUCE_SCATTER", "SUM", "must be divisible by num_ranks, 2"),
        (torch.zeros(3), "ALL_TO_ALL", "NONE", "must be divisible by num_ranks, 2"),
        (torch.tensor(1.0), "ALL_GATHER", "NONE", "ALL_GATHER needs a dimension"),
        (torch.zeros(2, dtype=torch.int32), "ALL_REDUCE", "AVG", "AVG of integers"),
        (torch.zeros(2, dtype=torch.bool), "ALL_GATHER", "NONE", "the input of a collective"),
    ],
)
def test_a_network_with_an_impossible_collective_does_not_build(
    x: Tensor, kind: str, reduction: str, reason: str, bench: Any
) -> None:
    """Rules about the input are found when the network builds, as by TensorRT for RTX."""
    n = bench("11.4.0")
    layer = collective(n, n.input(x), kind, reduction, ranks=2)

    assert n.plan(layer.get_output(0)) is None
    assert any(reason in error for error in n.errors)


def test_the_number_of_ranks_is_set_once(bench: Any) -> None:
    """It rises above 1 once, and only for collectives; as TensorRT for RTX has it."""
    n = bench("11.4.0")
    x = n.input(torch.zeros(4, 2))
    layer = collective(n, x, "ALL_GATHER")
    assert (4, 2) == tuple(layer.get_output(0).shape)
    layer.num_ranks = 3
    assert (12, 2) == tuple(layer.get_output(0).shape)

    for wrong in (0, 1, 2):
        with pytest.raises(RuntimeError, match="Failed to set num_ranks"):
            layer.num_ranks = wrong
    other = n.net.add_identity(x)
    with pytest.raises(RuntimeError, match="Only IDistCollectiveLayer supports num_ranks > 1"):
        other.num_ranks = 2
    assert (3, 1) == (layer.num_ranks, other.num_ranks)


def test_version_10_16_builds_collectives_as_a_preview(bench: Any) -> None:
    """The preview feature has to be turned on there; later versions have none."""
    n = bench("10.16.1")
    layer = collective(n, n.input(torch.zeros(2)), "ALL_REDUCE", "SUM", ranks=2)
    n.config.set_preview_feature(n.trt.PreviewFeature.MULTIDEVICE_RUNTIME_10_16, False)

    assert n.plan(layer.get_output(0)) is None
    assert "needs the preview feature MULTIDEVICE_RUNTIME_10_16" in n.errors[-1]
    assert not hasattr(bench("11.4.0").trt.PreviewFeature, "MULTIDEVICE_RUNTIME_10_16")
