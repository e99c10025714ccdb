"""What computes nothing goes, and what depends on no input is computed once."""

import torch
from torch import nn

import torchtrt
from torchtrt_compiler.lowering import fold_constants, open_program, remove_no_ops

aten = torch.ops.aten


def lowered(function, *inputs, **options):
    """Returns the cleaned and folded graph of a function."""

    class Model(nn.Module):
        def forward(self, *values):
            return function(*values)

    exported = torch.export.export(Model().eval(), inputs, strict=False, **options)
    program = open_program(exported)
    remove_no_ops(program.graph_module)
    fold_constants(program.graph_module, program.mutated)
    program.graph_module.graph.lint()
    program.graph_module.recompile()
    return program.graph_module


def targets(graph_module):
    """Returns the ops that are left, in order."""
    return [node.target for node in graph_module.graph.nodes if node.op == "call_function"]


def test_copies_and_casts_to_the_same_dtype_go():
    """clone, detach, dropout in eval mode and ``to`` the own dtype compute nothing."""

    def function(x):
        return nn.functional.dropout(x.clone().to(torch.float32), 0.5, False).detach().relu()

    assert [aten.relu.default] == targets(lowered(function, torch.ones(3)))


def test_an_op_that_returns_nothing_stays_and_runs():
    """A model calls one that is not PyTorch's own, to log for example, for its effect, each time."""
    seen = []

    @torch.library.custom_op("torchtrt_tests::note", mutates_args=())
    def note(x: torch.Tensor) -> None:
        seen.append(x.clone())

    @note.register_fake
    def _(x):
        return None

    class Model(nn.Module):
        def forward(self, x):
            y = x.sin()
            torch.ops.torchtrt_tests.note(y)
            torch.ops.torchtrt_tests.note(y)
            return y * 2

    x = torch.rand(3)
    compiled = torchtrt.compile(Model().eval(), [x], min_block_size=1)
    seen.clear()
    compiled(x)
    assert compiled.report.blocks
    torch.testing.assert_close(seen, [x.sin(), x.sin()])


def test_assertions_go():
    """PyTorch's own ops that return nothing."""

    def function(x):
        torch._assert_async(x.sum() > 0)
        return x.relu()

    assert targets(lowered(function, torch.ones(3))) == [aten.relu.default]


def test_a_real_cast_stays():
    """Only casts to the same dtype are no-ops."""
    left = targets(lowered(lambda x: x.to(torch.float16) + 1, torch.ones(3)))

    assert 2 == len(left)


def test_an_output_is_never_the_callers_input():
    """A copy between an input and an output stays: its result must not alias the input."""
    graph_module = lowered(lambda x: x.clone(), torch.ones(3))
    x = torch.ones(3)

    (result,) = graph_module(x)

    assert result.data_ptr() != x.data_ptr()


def test_dropout_in_training_stays():
    """Dropout that drops is not a no-op."""
    left = targets(lowered(lambda x: nn.functional.dropout(x, 0.5, True), torch.ones(3)))

    assert left


def test_what_depends_on_no_input_is_folded():
    """A table computed from literals becomes a constant."""
    graph_module = lowered(lambda x: x + torch.arange(3).pow(2), torch.ones(3))

    assert [aten.add.Tensor] == targets(graph_module)
    assert [1.0, 2.0, 5.0] == graph_module(torch.ones(3))[0].tolist()


def test_what_only_has_the_sizes_or_the_dtype_of_an_input_is_folded():
    """A mask that a model makes anew in each call, by writing to parts of zeros."""

    def function(x):
        mask = x.new_zeros((4, 4))
        mask[:2] = 1
        mask = mask.masked_fill(mask == 0, -100.0)
        return x + mask + torch.full_like(x, 3)

    graph_module = lowered(function, torch.rand(4, 4, dtype=torch.float64))
    x = torch.rand(4, 4, dtype=torch.float64)

    assert [aten.add.Tensor] * 2 == targets(graph_module)
    torch.testing.assert_close(graph_module(x)[0], function(x), rtol=0, atol=0)


def test_the_dtype_of_an_input_is_enough_where_its_sizes_vary():
    """What is as large as the input stays, and so does what is random, or never written."""
    dim = torch.export.Dim("n", min=2, max=9)

    def function(x):
        return x + x.new_ones(3), torch.ones_like(x), torch.rand_like(x[0])

    left = targets(lowered(function, torch.rand(4, 3), dynamic_shapes={"values": ({0: dim},)}))

    assert aten.new_ones.default not in left
    assert {aten.ones_like.default, aten.rand_like.default} <= set(left)


def test_what_is_filled_like_a_turned_tensor_is_turned():
    """Who reads it by its strides finds the same elements."""

    def function(x):
        return torch.zeros_like(x.t()).as_strided((3,), (1,)), torch.empty_like(x).shape[0] + x

    graph_module, x = lowered(function, torch.rand(2, 3)), torch.rand(2, 3)

    torch.testing.assert_close(graph_module(x)[0], function(x)[0])


def test_a_small_constant_is_not_blown_up():
    """Expanding one number to many stays in the graph: folding it would make a large weight of it."""
    left = targets(lowered(lambda x: x + torch.zeros(1).expand(1 << 17), torch.ones(1 << 17)))

    assert aten.expand.default in left


def test_random_numbers_are_not_frozen():
    """What is random at run time in PyTorch is random at run time here."""
    graph_module = lowered(lambda x: x + torch.rand(3), torch.zeros(3))

    assert graph_module(torch.zeros(3))[0].tolist() != graph_module(torch.zeros(3))[0].tolist()


def test_sizes_asked_for_twice_are_asked_for_once():
    """Equal size queries and ranges are merged."""
    dim = torch.export.Dim("n", min=2, max=9)

    def function(x):
        return x + torch.arange(x.shape[0]) + torch.arange(x.shape[0])

    left = targets(lowered(function, torch.ones(4), dynamic_shapes={"values": ({0: dim},)}))

    assert 1 == left.count(aten.arange.default)


def test_a_view_of_a_removed_copy_still_works():
    """Without the copy the view's source is not contiguous; in PyTorch the graph must run all the same."""
    graph_module = lowered(lambda x: x.t().contiguous().view(-1) + 1, torch.rand(2, 3))
    x = torch.rand(2, 3)

    torch.testing.assert_close(graph_module(x)[0], x.t().reshape(-1) + 1)


def test_a_view_of_a_constant_is_folded():
    """A table that was transposed and viewed becomes one constant."""
    table = torch.arange(6.0).view(2, 3)
    graph_module = lowered(lambda x: x + table.t().contiguous().view(-1), torch.rand(6))

    assert [aten.add.Tensor] == targets(graph_module)
    torch.testing.assert_close(graph_module(torch.zeros(6))[0], table.t().reshape(-1))


def test_copies_stay_where_something_reads_by_strides():
    """as_strided sees memory, not values: removing the copy before it would change what it reads."""
    graph_module = lowered(
        lambda x: x.t().contiguous().as_strided((4,), (1,)) + 0, torch.rand(2, 3)
    )
    x = torch.rand(2, 3)

    torch.testing.assert_close(graph_module(x)[0], x.t().contiguous().as_strided((4,), (1,)))


def test_a_tensor_without_elements_is_a_constant():
    """Whatever it depends on, nothing is to be computed for it, nor for what depends on nothing else."""
    left = targets(
        lowered(lambda x, y: (x @ y.relu(), y.sum()), torch.ones(3, 0), torch.ones(0, 4))
    )

    assert [] == left


def test_an_empty_random_tensor_is_a_constant():
    """No number is drawn for it."""
    assert [] == targets(lowered(lambda x: torch.rand_like(x), torch.ones(0, 4)))


def test_a_tensor_that_may_have_no_elements_is_computed():
    """Only sizes that are known to be 0 make a constant."""
    shapes = {"values": ({0: torch.export.Dim("n", min=0, max=8)},)}
    left = targets(lowered(lambda x: x.relu(), torch.ones(4, 2), dynamic_shapes=shapes))

    assert aten.relu.default in left


def test_random_numbers_that_nothing_reads_go():
    """A block of such ops alone would be an engine without outputs."""

    class Unread(nn.Module):
        def forward(self, x):
            torch.rand_like(x).clamp(2, 3)
            return torch.zeros(3) + 2

    x = torch.rand(3)
    compiled = torchtrt.compile(Unread().eval(), (x,), min_block_size=1)

    torch.testing.assert_close(compiled(x), torch.full((3,), 2.0))
