"""Loops, conditionals, assertions, and sizes that are known when a network runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from plugins.reference.tests.layers import only, rand


def test_what_follows_a_data_dependent_shape_is_computed_at_run_time(
    version: str, bench: Any
) -> None:
    """Transposed, gathered and counted: every layer after a NonZero sees its real shape."""
    n = bench(version)
    x = torch.tensor([[1.0, 0, 2], [0, 3, 0]])
    positions = only(n.net.add_non_zero(n.input(x)))
    assert positions.shape == (2, -1)
    shuffle = n.net.add_shuffle(positions)
    shuffle.first_transpose = (1, 0)
    taken = n.net.add_gather_v2(n.input(x), only(shuffle), n.trt.GatherMode.ND)
    total = n.net.add_reduce(only(taken), n.trt.ReduceOperation.SUM, 1, False)
    values, result = n.run(only(taken), only(total))
    assert values.tolist() == [1, 2, 3]
    assert result == 6


def test_the_shape_of_a_result_of_data_is_no_shape_for_8_6(version: str, bench: Any) -> None:
    """The Shape layer takes what NonZero makes from TensorRT 10 on."""
    n = bench(version)
    result = only(n.net.add_non_zero(n.input(torch.tensor([[1.0, 0, 2], [0, 3, 0]]))))
    shape = only(n.net.add_shape(result))
    if version == "8.6.0":
        assert n.plan(shape) is None
        assert "depend on data" in n.errors[-1]
    else:
        assert n.run(shape)[0].tolist() == [2, 3]


def test_shapes_are_known_as_far_as_they_can_be(version: str, bench: Any) -> None:
    """Shape arithmetic keeps the known elements: a reshape by it has known dimensions."""
    n = bench(version)
    x = n.input(rand(2, 6, 4), (-1, 6, 4))
    shape = only(n.net.add_shape(x))
    index = only(n.net.add_constant((2,), np.array([0, 2], np.int32)))
    kept = only(n.net.add_gather(shape, index, 0))
    doubled = only(n.net.add_elementwise(kept, kept, n.trt.ElementWiseOperation.SUM))
    fill = n.net.add_slice(x, (0, 0, 0), (0, 0, 0), (1, 1, 1))
    fill.mode = n.trt.SampleMode.WRAP
    one = only(n.net.add_slice(shape, (1,), (1,), (1,)))
    joined = n.net.add_concatenation([doubled, one])
    joined.axis = 0
    fill.set_input(2, only(joined))
    assert only(fill).shape == (-1, 8, 6)
    (result,) = n.run(only(fill))
    assert result.shape == (4, 8, 6)


def test_a_loop_ends_when_its_condition_is_false(version: str, bench: Any) -> None:
    """A WHILE limit is tested before each iteration."""
    n = bench(version)
    loop = n.net.add_loop()
    carried = loop.add_recurrence(n.input(torch.tensor(1.0)))
    value = only(carried)
    going = n.net.add_elementwise(value, n.const(20.0), n.trt.ElementWiseOperation.LESS)
    loop.add_trip_limit(only(going), n.trt.TripLimit.WHILE)
    carried.set_input(1, only(n.net.add_elementwise(value, value, n.trt.ElementWiseOperation.SUM)))
    (result,) = n.run(only(loop.add_loop_output(value, n.trt.LoopOutput.LAST_VALUE)))
    assert result.item() == 32


def test_a_recurrence_may_take_a_value_from_outside_of_the_loop(version: str, bench: Any) -> None:
    """One that is computed by layers which were added after the loop, and which nothing inside reads."""
    n = bench(version)
    loop = n.net.add_loop()
    loop.add_trip_limit(n.const(3, np.int32), n.trt.TripLimit.COUNT)
    start = n.input(torch.tensor(1.0))
    carried = loop.add_recurrence(start)
    output = loop.add_loop_output(only(carried), n.trt.LoopOutput.LAST_VALUE)
    outside = n.net.add_elementwise(start, n.const(5.0), n.trt.ElementWiseOperation.SUM)
    carried.set_input(1, only(outside))
    (result,) = n.run(only(output))
    assert result.item() == 6


def test_loops_nest(version: str, bench: Any) -> None:
    """An inner loop runs in every iteration of the outer one."""
    n = bench(version)
    add, count = n.trt.ElementWiseOperation.SUM, n.trt.TripLimit.COUNT
    outer = n.net.add_loop()
    outer.add_trip_limit(n.const(3, np.int32), count)
    total = outer.add_recurrence(n.input(torch.tensor(0.0)))
    inner = n.net.add_loop()
    inner.add_trip_limit(n.const(4, np.int32), count)
    part = inner.add_recurrence(only(total))
    part.set_input(1, only(n.net.add_elementwise(only(part), n.const(1.0), add)))
    end = only(inner.add_loop_output(only(part), n.trt.LoopOutput.LAST_VALUE))
    total.set_input(1, end)
    (result,) = n.run(only(outer.add_loop_output(only(total), n.trt.LoopOutput.LAST_VALUE)))
    assert result.item() == 12


def test_loops_are_checked(version: str, bench: Any) -> None:
    """A loop needs a limit and closed recurrences, and inner tensors stay inside."""
    n = bench(version)
    loop = n.net.add_loop()
    start = n.input(torch.tensor(0.0))
    carried = loop.add_recurrence(start)
    output = loop.add_loop_output(only(carried), n.trt.LoopOutput.LAST_VALUE)
    assert n.plan(only(output)) is None
    assert "trip limit" in n.errors[-1]
    loop.add_trip_limit(n.const(1, np.int32), n.trt.TripLimit.COUNT)
    assert n.plan() is None
    assert "next value" in n.errors[-1]
    following = only(n.net.add_unary(only(carried), n.trt.UnaryOperation.EXP))
    carried.set_input(1, following)
    n.net.unmark_output(only(output))
    only(output).name = "unmarked"
    assert n.plan(following) is None
    assert "through a loop output" in n.errors[-1]


@pytest.mark.parametrize("mistake", ["another tensor", "two counts"])
def test_a_loop_with_a_mistake_at_its_boundary_does_not_build(
    version: str, bench: Any, mistake: str
) -> None:
    """LAST_VALUE takes a recurrence, and there is one limit of each kind; both are found out by the build."""
    n = bench(version)
    loop = n.net.add_loop()
    start = n.input(torch.tensor(0.0))
    for _ in range(2 if mistake == "two counts" else 1):
        assert loop.add_trip_limit(n.const(1, np.int32), n.trt.TripLimit.COUNT) is not None
    carried = loop.add_recurrence(start)
    carried.set_input(1, only(n.net.add_unary(only(carried), n.trt.UnaryOperation.EXP)))
    last = start if mistake == "another tensor" else only(carried)
    output = loop.add_loop_output(last, n.trt.LoopOutput.LAST_VALUE)
    assert n.plan(only(output)) is None
    wanted = "recurrence of the same loop" if mistake == "another tensor" else "one of each kind"
    assert wanted in n.errors[-1]


def test_an_assertion_about_a_shape_fails_when_the_shape_is_known(version: str, bench: Any) -> None:
    """What a shape decides fails when the shape is known."""
    n = bench(version)
    x = n.input(rand(2, 3), (-1, 3))
    shape = only(n.net.add_shape(x))
    first = only(n.net.add_slice(shape, (0,), (1,), (1,)))
    two = n.net.add_constant((1,), np.array([2], np.int32 if version == "8.6.0" else np.int64))
    equal = only(n.net.add_elementwise(first, only(two), n.trt.ElementWiseOperation.EQUAL))
    n.net.add_assertion(equal, "two rows are wanted")
    n.profile.set_shape("i0", (2, 3), (2, 3), (2, 3))
    assert n.run(only(n.net.add_unary(x, n.trt.UnaryOperation.EXP)))[0].shape == (2, 3)
    n.profile.set_shape("i0", (1, 3), (1, 3), (2, 3))
    context = n.context()
    context.set_input_shape("i0", (1, 3))
    with pytest.raises(RuntimeError, match="two rows are wanted"):
        context.infer_shapes()


def test_what_is_provably_false_does_not_build(version: str, bench: Any) -> None:
    """An assertion of a constant, or of a static size, is checked by the build."""
    n = bench(version)
    n.net.add_assertion(n.const(False, np.bool_), "never")
    output = only(n.net.add_unary(n.input(rand(2)), n.trt.UnaryOperation.EXP))
    assert n.plan(output) is None
    assert "never" in n.errors[-1]


def test_the_ends_of_a_profile_need_not_fit_together(version: str, bench: Any) -> None:
    """The optimum shapes decide about the build; each set of shapes is checked when it is used."""
    n = bench(version)
    output = only(
        n.net.add_elementwise(
            n.input(rand(3), (-1,)), n.input(rand(3), (-1,)), n.trt.ElementWiseOperation.SUM
        )
    )
    n.profile.set_shape("i1", (2,), (3,), (3,))
    context = n.context(output)
    assert context.get_tensor_shape("o0") == (3,)
    context.set_input_shape("i1", (2,))
    with pytest.raises(RuntimeError, match="same dimensions"):
        context.infer_shapes()


def test_what_only_a_branch_needs_is_inside_the_conditional(version: str, bench: Any) -> None:
    """Two outputs, and a conditional in a branch of the other: the engine has no unary layer outside."""
    n = bench(version)
    x, choice = n.input(rand(2, 3)), n.input(torch.tensor(True))
    outer, inner = n.net.add_if_conditional(), n.net.add_if_conditional()
    outer.set_condition(choice)
    inside = only(outer.add_input(x))
    exp = only(n.net.add_unary(inside, n.trt.UnaryOperation.EXP))
    neg = only(n.net.add_unary(inside, n.trt.UnaryOperation.NEG))
    inner.set_condition(n.input(torch.tensor(False)))
    deeper = only(inner.add_input(exp))
    root = only(n.net.add_unary(deeper, n.trt.UnaryOperation.SQRT))
    nested = only(inner.add_output(root, only(n.net.add_unary(deeper, n.trt.UnaryOperation.LOG))))
    first = only(outer.add_output(nested, neg))
    second = only(outer.add_output(exp, only(n.net.add_unary(neg, n.trt.UnaryOperation.ABS))))
    plan = n.plan(first, second)
    assert plan is not None, n.errors
    outside = set(layer_names(n, plan))
    assert not any("Unary" in name for name in outside)
    assert sum("Output" in name for name in outside) == 1


def test_a_conditional_in_a_loop_decides_anew_in_every_iteration(version: str, bench: Any) -> None:
    """Halve what is even, otherwise three times it plus one: 6, 3, 10, 5, 16."""
    n = bench(version)
    trt, kind = n.trt, n.trt.ElementWiseOperation

    def computed(a: Any, op: Any, b: float) -> Any:
        return only(n.net.add_elementwise(a, n.const(b), op))

    loop = n.net.add_loop()
    loop.add_trip_limit(n.const(4, np.int32), trt.TripLimit.COUNT)
    carried = loop.add_recurrence(n.input(torch.tensor(6.0)))
    value = only(carried)
    whole = computed(computed(value, kind.FLOOR_DIV, 2.0), kind.PROD, 2.0)
    made = n.net.add_if_conditional()
    made.set_condition(only(n.net.add_elementwise(value, whole, kind.EQUAL)))
    inside = only(made.add_input(value))
    odd = computed(computed(inside, kind.PROD, 3.0), kind.SUM, 1.0)
    carried.set_input(1, only(made.add_output(computed(inside, kind.DIV, 2.0), odd)))
    (result,) = n.run(only(loop.add_loop_output(value, trt.LoopOutput.LAST_VALUE)))
    assert result == 16


def layer_names(n: Any, plan: bytes) -> list[str]:
    """The names of an engine's layers, without those inside of branches and loops."""
    engine = n.trt.Runtime(n.logger).deserialize_cuda_engine(plan)
    inspector, form = engine.create_engine_inspector(), n.trt.LayerInformationFormat.ONELINE
    return [inspector.get_layer_information(i, form) for i in range(engine.num_layers)]


@pytest.mark.parametrize("taken", [True, False])
def test_both_branches_of_a_conditional_give_their_values(
    version: str, taken: bool, bench: Any
) -> None:
    """What the branches share is computed before; a tensor from outside may be a result."""
    n = bench(version)
    values = rand(2, 3)
    x, made = n.input(values), n.net.add_if_conditional()
    made.set_condition(n.input(torch.tensor(taken)))
    inside = only(made.add_input(x))
    shared = only(n.net.add_unary(inside, n.trt.UnaryOperation.EXP))
    first = only(made.add_output(only(n.net.add_unary(shared, n.trt.UnaryOperation.LOG)), shared))
    second = only(made.add_output(shared, x))
    results = n.run(first, second)
    torch.testing.assert_close(results[0], values if taken else values.exp())
    torch.testing.assert_close(results[1], values.exp() if taken else values)


@pytest.mark.parametrize(
    ("shape", "dims", "expected"),
    [
        ((-1, 6), (0, -1), (-1, 6)),
        ((-1, 6), (0, 2, -1), (-1, 2, 3)),
        ((-1, 6), (-1, 3), (-1, 3)),
        ((-1, 6), (-1,), (-1,)),
        ((-1, -1, 6), (0, 0, 3, -1), (-1, -1, 3, 2)),
        ((-1, -1, 6), (0, -1), (-1, -1)),
    ],
)
def test_a_reshape_knows_what_copied_dimensions_leave(
    version: str, shape: Any, dims: Any, expected: Any, bench: Any
) -> None:
    """Unknown lengths that are copied cancel, so the inferred dimension is known; others stay unknown."""
    n = bench(version)
    shuffle = n.net.add_shuffle(
        n.input(rand(*(2 if size == -1 else size for size in shape)), shape)
    )
    shuffle.reshape_dims = dims
    assert only(shuffle).shape == expected


def test_an_unknown_length_that_is_not_copied_leaves_the_rest_unknown(
    version: str, bench: Any
) -> None:
    """A shape tensor may hold another number than the dimension it stands next to."""
    n = bench(version)
    x, other = n.input(rand(2, 6), (-1, 6)), n.input(rand(4), (-1,))
    length = only(n.net.add_shape(other))
    one = only(n.net.add_slice(only(n.net.add_shape(x)), (1,), (1,), (1,)))
    rest = only(n.net.add_elementwise(one, one, n.trt.ElementWiseOperation.SUB))
    minus = only(
        n.net.add_elementwise(
            rest, only(n.net.add_shape(n.input(rand(1)))), n.trt.ElementWiseOperation.SUB
        )
    )
    dims = n.net.add_concatenation([length, minus])
    dims.axis = 0
    shuffle = n.net.add_shuffle(x)
    shuffle.set_input(1, only(dims))
    assert only(shuffle).shape == (-1, -1)
    (result,) = n.run(only(shuffle))
    assert result.shape == (4, 3)
