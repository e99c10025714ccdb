"""Which tensors may share memory: the facts, the sets, and what follows."""

import pytest
import torch
from torch import nn

from torchtrt.graphs.memory import overlap
from torchtrt_compiler.lowering import clone_aliased_outputs, open_program
from torchtrt_compiler.lowering.aliasing import Origin, origins_of, written_inputs
from torchtrt_compiler.memory_of_calls import (
    ALWAYS_VIEWS,
    UNDECLARED,
    certain_source,
    copies_by_strides,
    may_share,
)

aten = torch.ops.aten


def exported(function, *inputs, **options):
    """Returns a function exported as a model with a buffer ``h``."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("h", torch.zeros(2, 3))

        def forward(self, *values):
            return function(self, *values)

    return torch.export.export(Model().eval(), inputs, strict=False, **options)


def call(program, target):
    """Returns the program's only call of an op."""
    (node,) = program.graph.find_nodes(op="call_function", target=target)
    return node


# Facts


SHARING = [
    (lambda x: x[:1], aten.slice.Tensor, True, True),
    (lambda x: x.t(), aten.t.default, True, True),
    (lambda x: x.chunk(2), aten.chunk.default, True, True),
    (lambda x: x.reshape(-1), aten.reshape.default, True, False),
    (lambda x: x.t().contiguous(), aten.contiguous.default, True, False),
    (lambda x: x.to(torch.float32), aten.to.dtype, True, True),
    (lambda x: x.to(torch.float64), aten.to.dtype, True, False),
    (lambda x: x.to(torch.float32, copy=True), aten.to.dtype, True, False),
    (lambda x: nn.functional.dropout(x, 0.5, False), aten.dropout.default, True, True),
    (lambda x: nn.functional.dropout(x, 0.5, True), aten.dropout.default, False, False),
    (lambda x: torch.einsum("ij->ji", x), aten.einsum.default, True, False),
    (lambda x: torch.einsum("ij->i", x), aten.einsum.default, False, False),
    (lambda x: x.clone(), aten.clone.default, False, False),
    (lambda x: x + 1, aten.add.Tensor, False, False),
]


@pytest.mark.parametrize(("function", "target", "may", "certain"), SHARING)
def test_whose_memory_a_result_may_be_and_surely_is(function, target, may, certain):
    """Schemas declare it, or the op is known; what depends on strides is not certain."""
    node = call(exported(lambda self, x: function(x), torch.ones(2, 3)), target)

    assert may == bool(may_share(node))
    assert certain == (certain_source(node) is not None)


@pytest.mark.parametrize(
    ("function", "copies", "certain"),
    [
        (lambda x: x.float(memory_format=torch.contiguous_format), True, False),
        (lambda x: x.to(x.dtype, memory_format=torch.preserve_format), False, True),
        (lambda x: x.half(memory_format=torch.contiguous_format), False, False),
        (lambda x: x.float(), False, True),
    ],
    ids=["format", "the same format", "another dtype", "no format"],
)
def test_a_conversion_copies_by_strides_where_it_has_a_memory_format(function, copies, certain):
    """PyTorch records the format by its place: a conversion to another dtype always copies."""
    node = call(exported(lambda self, x: function(x) + 1, torch.ones(2, 3)), aten.to.dtype)

    assert copies == copies_by_strides(node)
    assert certain == (certain_source(node) is not None)


SAMPLES = {
    aten._unsafe_view.default: (torch.ones(2, 3), [6]),
    aten.alpha_dropout.default: (torch.ones(2), 0.5, False),
    aten.atleast_1d.default: (torch.ones(2),),
    aten.atleast_1d.Sequence: ([torch.ones(2)],),
    aten.atleast_2d.default: (torch.ones(2),),
    aten.atleast_2d.Sequence: ([torch.ones(2)],),
    aten.atleast_3d.default: (torch.ones(2),),
    aten.atleast_3d.Sequence: ([torch.ones(2)],),
    aten.broadcast_tensors.default: ([torch.ones(2), torch.ones(3, 2)],),
    aten.cartesian_prod.default: ([torch.ones(2)],),
    aten.conj_physical.default: (torch.ones(2),),
    aten.dropout.default: (torch.ones(2), 0.5, False),
    aten.einsum.default: ("ij->ji", [torch.ones(2, 3)]),
    aten.feature_alpha_dropout.default: (torch.ones(2, 2), 0.5, False),
    aten.feature_dropout.default: (torch.ones(2, 2), 0.5, False),
    aten.histogramdd.TensorList_bins: (torch.rand(3, 1), [torch.tensor([0.0, 1.0])]),
    aten.lift.default: (torch.ones(2),),
    aten.meshgrid.default: ([torch.ones(2), torch.ones(3)],),
    aten.meshgrid.indexing: ([torch.ones(2), torch.ones(3)],),
    aten.sum_to_size.default: (torch.ones(2), [2]),
    aten.type_as.default: (torch.ones(2), torch.ones(2)),
    aten.unsafe_chunk.default: (torch.ones(2), 2),
    aten.unsafe_split.Tensor: (torch.ones(2), 1),
    aten.unsafe_split_with_sizes.default: (torch.ones(2), [1, 1]),
}


@pytest.mark.filterwarnings("ignore:torch.meshgrid")  # of PyTorch 2.15
@pytest.mark.parametrize("target", sorted(UNDECLARED, key=str), ids=str)
def test_undeclared_views_are_views_without_saying_so(target):
    """Each of them returns an argument's memory, and its schema does not declare it."""
    arguments = SAMPLES[target]
    options = {"indexing": "ij"} if target is aten.meshgrid.indexing else {}
    results = target(*arguments, **options)
    tensors = torch.utils._pytree.tree_leaves(arguments)
    memory = {
        value.untyped_storage().data_ptr() for value in tensors if isinstance(value, torch.Tensor)
    }
    returned = {
        result.untyped_storage().data_ptr() for result in torch.utils._pytree.tree_leaves(results)
    }

    assert memory & returned
    assert not any(value.alias_info is not None for value in target._schema.returns)


VIEWS = {
    aten.adjoint.default: (),
    aten.broadcast_to.default: ([2, 4, 4, 4],),
    aten.chunk.default: (2,),
    aten.conj.default: (),
    aten.dsplit.array: ([1],),
    aten.dsplit.int: (2,),
    aten.expand_as.default: (torch.ones(2, 4, 4, 4),),
    aten.hsplit.array: ([1],),
    aten.hsplit.int: (2,),
    aten.imag.default: (),
    aten.linalg_diagonal.default: (),
    aten.mH.default: (),
    aten.mT.default: (),
    aten.matrix_H.default: (),
    aten.moveaxis.int: (0, 2),
    aten.moveaxis.intlist: ([0, 1], [2, 0]),
    aten.movedim.int: (0, 2),
    aten.movedim.intlist: ([0, 1], [2, 0]),
    aten.narrow.Tensor: (1, torch.tensor(1), 2),
    aten.narrow.default: (1, 1, 2),
    aten.numpy_T.default: (),
    aten.positive.default: (),
    aten.real.default: (),
    aten.split.sizes: ([1, 3],),
    aten.swapaxes.default: (0, 2),
    aten.swapdims.default: (0, 2),
    aten.tensor_split.indices: ([1],),
    aten.tensor_split.sections: (2,),
    aten.tensor_split.tensor_indices_or_sections: (torch.tensor(2),),
    aten.unflatten.int: (0, [2, 2]),
    aten.view_as.default: (torch.ones(4, 4, 4),),
    aten.vsplit.array: ([1],),
    aten.vsplit.int: (2,),
}


@pytest.mark.filterwarnings("ignore:The use of `x.T`")  # of PyTorch 2.15
@pytest.mark.parametrize("target", sorted(ALWAYS_VIEWS, key=str), ids=str)
def test_composite_views_are_views_whatever_the_strides(target):
    """Of real and of complex tensors; ``reshape`` would copy some of them."""
    base = torch.randn(4, 4, 8, dtype=torch.complex64)
    of_complex = [base[..., :4], base[..., ::2].transpose(0, 2), base[..., :4].permute(1, 2, 0)]
    of_real = [torch.view_as_real(tensor)[..., 0] for tensor in of_complex]
    inputs = of_complex if target is aten.imag.default else of_real + of_complex
    if target is aten.matrix_H.default:
        inputs = [input_[0] for input_ in inputs]
    for tensor in inputs:
        results = torch.utils._pytree.tree_leaves(target(tensor, *VIEWS[target]))
        positions = {result.untyped_storage().data_ptr() for result in results}
        assert {tensor.untyped_storage().data_ptr()} == positions


# Sets


def test_the_origin_of_a_result_is_an_input_or_a_call():
    """Views lead back to what they are views of; two pieces of one tensor have one origin."""

    def function(self, x):
        y = x + 1
        first, second = y.chunk(2)
        return x, x[:1], x.reshape(-1), first, second, y.expand(2, 2, 3), 3

    of_input, of_view, of_reshape, first, second, expanded, number = origins_of(
        exported(function, torch.ones(2, 3))
    )

    assert Origin(0, False) == of_input == of_view
    assert "reshape" == of_reshape.memory
    assert "add" == first.memory == second.memory == expanded.memory
    assert expanded.repeats
    assert Origin(None, False) == number


def test_an_input_whose_example_was_not_contiguous_is_no_origin():
    """Whether the model copied it depends on its strides."""
    (origin,) = origins_of(exported(lambda self, x: x[:1], torch.ones(3, 2).t()))

    assert Origin("inputs_0", False) != origin
    assert not isinstance(origin.memory, int)


def test_what_is_written_to_is_found_through_its_views():
    """A write on a row of a view is a write to the buffer."""

    def function(self, x):
        self.h.view(-1)[0].add_(1)
        return x + self.h

    program = exported(function, torch.ones(2, 3))

    assert ["b_h"] == [node.name for node in written_inputs(program.graph_module)]


# Conclusions


def copies(function, *inputs):
    """Returns how many copies keep the results of an opened program apart, and the inputs that results may share."""
    program = open_program(exported(function, *inputs))
    for node in program.graph_module.graph.find_nodes(
        op="call_function", target=aten.clone.default
    ):
        node.replace_all_uses_with(node.args[0])
        program.graph_module.graph.erase_node(node)
    shared = clone_aliased_outputs(program.graph_module, program.origins)
    program.graph_module.graph.lint()
    nodes = program.graph_module.graph.find_nodes(op="call_function", target=aten.clone.default)
    return len(nodes), shared


RESULTS = {
    "new": (lambda self, x: x + 1, 0, set()),
    "an input": (lambda self, x: x, 0, {0}),
    "a view of an input": (lambda self, x: (x[0], x.t()), 0, {0}),
    "a copy of an input": (lambda self, x: x.clone(), 1, set()),
    "a copy of a view of an input": (lambda self, x: x[0].clone(), 1, set()),
    "perhaps a view of an input": (lambda self, x: x.t().reshape(-1), 1, set()),
    "a buffer": (lambda self, x: (x + 1, self.h), 1, set()),
    "two views of a buffer": (lambda self, x: (self.h[0], self.h[1]), 2, set()),
    "one tensor twice": (lambda self, x: (lambda y: (y, y))(x + 1), 0, set()),
    "a tensor and a view of it": (lambda self, x: (lambda y: (y, y[0]))(x + 1), 0, set()),
    "a tensor and its copy": (lambda self, x: (lambda y: (y, y.clone()))(x + 1), 1, set()),
    "the same copy twice": (
        lambda self, x: (lambda y: (x, y, y))(x.clone()),
        1,
        {0},
    ),
    "pieces": (lambda self, x: (x + 1).chunk(2), 0, set()),
    "expanded": (lambda self, x: (x + 1).expand(2, 2, 3), 0, set()),
    "a copy of what was expanded": (lambda self, x: (x + 1).expand(2, 2, 3).clone(), 1, set()),
    "the state from before": (lambda self, x: (self.h[0].clone(), self.h.add_(x)), 1, set()),
    "the input from before": (lambda self, x: (x[0].clone(), x.add_(1)), 1, set()),
}


@pytest.mark.parametrize(("function", "count", "shared"), RESULTS.values(), ids=RESULTS.keys())
def test_results_are_copied_where_they_could_be_changed_from_outside(function, count, shared):
    """One copy for each result that shares what it does not share in eager PyTorch, and none elsewhere."""
    assert (count, shared) == copies(function, torch.ones(2, 3))


def test_what_is_written_last_is_read_first():
    """Two buffers that change places need a copy of one of them."""

    def function(self, x):
        before = x.clone()
        x.copy_(self.h)
        self.h.copy_(before)
        return x + 1

    program = open_program(exported(function, torch.ones(2, 3)))
    clone_aliased_outputs(program.graph_module, program.origins)
    x = torch.ones(2, 3)

    program.graph_module(x)

    assert torch.equal(torch.zeros(2, 3), x)
    assert torch.equal(torch.ones(2, 3), program.graph_module.h)


# Overlap


MEMORY = torch.zeros(4, 6)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (MEMORY[:2], MEMORY[2:], False),
        (MEMORY[:2], MEMORY[1:], True),
        (MEMORY[:, ::2], MEMORY[:, 1::2], False),
        (MEMORY[:, ::2], MEMORY[:, ::3], True),
        (MEMORY[:, :3], MEMORY[:, 3:], False),
        (MEMORY[:1], MEMORY[:1].view(torch.int16), True),
        (MEMORY[:0], MEMORY, False),
        (MEMORY, MEMORY.clone(), False),
        (MEMORY[0, 0], MEMORY.expand(2, 4, 6), True),
    ],
)
def test_tensors_overlap_where_they_have_an_element_in_common(first, second, expected):
    """Rows and columns of one tensor that lie between each other do not."""
    assert expected == overlap(first, second) == overlap(second, first)
