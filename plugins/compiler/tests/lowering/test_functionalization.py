"""In-place ops give what eager PyTorch gives, whichever way they are rewritten."""

import pytest
import torch
from torch import nn
from torch.export import exported_program

from torchtrt.errors import UnsupportedProgramError
from torchtrt.graphs.nodes import writes
from torchtrt_compiler.lowering import open_program
from torchtrt_compiler.lowering.functionalization import functionalize
from torchtrt_compiler.lowering.retracing import retrace


def exported(function, *inputs, **options):
    """Returns a function exported as a model."""

    class Model(nn.Module):
        def forward(self, *values):
            return function(*values)

    return torch.export.export(Model().eval(), inputs, strict=False, **options)


def fresh(x):
    """A write on a result that nothing else sees."""
    return (x + 1).relu_() * 2


def read_before(x):
    """A reader from before the write keeps the value it read."""
    y = x * 2
    before = y - 1
    y.add_(10)
    return before + y


def on_a_view(x):
    """A write through a view reaches the base."""
    y = x * 2
    y[0].mul_(5)
    return y


def base_of_a_view(x):
    """A write on the base reaches a view taken before."""
    y = x * 2
    view = y.view(-1)
    y.add_(1)
    return view + 0


def promoting(x):
    """In-place arithmetic keeps the dtype where the functional form would promote."""
    y = x.to(torch.float16)
    y.add_(x)
    return y


def on_the_input(x):
    """A write on the caller's tensor."""
    y = x.view(-1)
    y.add_(1)
    return x * 2


def through_moved_axes(x):
    """A composite op that is a view whatever the strides."""
    y = x * 1
    y.moveaxis(0, 1)[0].add_(10)
    return y


def with_other_strides(x):
    """``masked_fill`` is contiguous where the tensor that is filled is not: ``reshape`` copies a part of that."""
    y = x.t() * 1
    y.masked_fill_(y > 0, 2.0)
    y[0:2].reshape(-1).mul_(10)
    return y + 0


def copied_with_other_strides(x):
    """``copy_`` keeps the strides of its destination: ``reshape`` is a view."""
    y = x * 1
    y.copy_(x.t())
    y.reshape(-1).mul_(10)
    return y + 0


def in_a_branch(x):
    """The graphs of branches are rewritten by the same rules."""
    return torch.cond(x.sum() > 0, lambda x: x.t() * 1, with_other_strides, (x,))


def twice(x):
    """Two writes in a row."""
    y = torch.sin(x)
    y.mul_(2).add_(1)
    return y


def maybe_alias(x):
    """type_as returns its argument when the dtypes agree."""
    y = x * 2
    z = y.type_as(x)
    z.add_(1)
    return y


def undeclared_view(x):
    """What ``reshape`` becomes of a copy is an undeclared view, of an op without a composite kernel."""
    y = x * 2
    z = torch.ops.aten._unsafe_view(y, [4])
    z.add_(1)
    return z + y.view(-1)


def undeclared_parts(x):
    """Parts that PyTorch calls unsafe to write to, written to."""
    y = x * 2
    first, second = torch.ops.aten.unsafe_split_with_sizes(y, [1, 1])
    first.add_(second)
    return y


def with_constants_in_branches(x):
    """Exporting adds a write to each tensor that a branch makes from numbers."""
    return torch.cond(
        x.sum() > 0,
        lambda x: x + torch.tensor([1.0, 2.0]),
        lambda x: (x - torch.tensor(3.0)).relu_(),
        (x,),
    )


def with_numbers_written_in_branches(x):
    """PyTorch makes a constant of the branch of each number that is written to a part of a tensor."""

    def first(x):
        y = x * 1
        y[0] = 3
        return y + torch.tensor([1.0, 2.0])

    return torch.cond(x.sum() > 9, torch.sin, first, (x,))


FUNCTIONS = [
    fresh,
    read_before,
    on_a_view,
    base_of_a_view,
    promoting,
    on_the_input,
    through_moved_axes,
    with_other_strides,
    copied_with_other_strides,
    in_a_branch,
    twice,
    maybe_alias,
    undeclared_parts,
    undeclared_view,
    with_constants_in_branches,
    with_numbers_written_in_branches,
]


def every_node(module):
    """Yields the nodes of a graph, and those of its branches."""
    for part in module.modules():
        if isinstance(part, torch.fx.GraphModule):
            yield from part.graph.nodes


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_writes_mean_what_they_mean_in_eager(function):
    """The rewritten program computes, and changes, the same as eager PyTorch."""
    x = torch.tensor([[1.0, -2.0], [3.0, -4.0]])
    program = open_program(exported(function, x.clone()))
    ours, theirs = x.clone(), x.clone()

    (result,) = program.graph_module(ours)

    torch.testing.assert_close(result, function(theirs))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    "function",
    [fresh, read_before, twice, with_constants_in_branches],
    ids=lambda function: function.__name__,
)
def test_writes_on_fresh_results_need_no_retracing(function):
    """The simple kind is rewritten where it stands: the program object stays the one given."""
    program = exported(function, torch.ones(2, 2))

    same, graph_module = functionalize(program)

    assert same is program
    assert not any(writes(node) for node in every_node(graph_module))
    assert any(writes(node) for node in every_node(program.graph_module))


def test_running_statistics_are_updated_in_training_mode():
    """Batch normalization writes its statistics although its schema does not declare it."""
    model, eager = (nn.Sequential(nn.BatchNorm1d(3)).train() for _ in range(2))
    x = torch.rand(4, 3)
    with torch.no_grad():
        program = open_program(torch.export.export(model, (x,), strict=False))
        program.graph_module(x)
        eager(x)

    torch.testing.assert_close(model[0].running_mean, eager[0].running_mean)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.t_() + 1,
        lambda x: x.resize_(2, 1) * 2,
        lambda x: x.mul_(2).t_() + 1,
        lambda x: x.cpu().t_() + 1,
    ],
    ids=["turned", "made smaller", "turned after a write", "turned by another name"],
)
def test_an_input_that_gets_another_shape_or_strides_is_refused(function):
    """A compiled model writes values: the caller's tensor would keep its shape and its strides."""
    with pytest.raises(UnsupportedProgramError, match="itself other sizes or strides"):
        open_program(exported(function, torch.rand(2, 2)))


def with_composites(x):
    """Composite ops beside a write through a view: some stay whole, others call views."""
    y = torch.nn.functional.linear(x.reshape(2, 2).to(torch.float32), x) * 2
    y[0].mul_(torch.nn.functional.gelu(x[1]))
    return torch.nn.functional.layer_norm(torch.matmul(y, x), (2,)).flatten()


def with_a_composite_of_composites(x):
    """A loss calls other composites."""
    y = x * 2
    y[0].mul_(5)
    return torch.nn.functional.binary_cross_entropy_with_logits(y, x, pos_weight=x.abs()) + (
        torch.nn.functional.cosine_embedding_loss(y, x, torch.ones(2))
    )


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # PyTorch's copying itself
@pytest.mark.parametrize("function", [with_composites, with_a_composite_of_composites, on_a_view])
def test_the_same_ops_stay_whole_as_where_pytorch_asks_about_all(function):
    """PyTorch checks only the program's own composites, which takes a tenth of the time."""
    program = exported(function, torch.rand(2, 2))

    ours, theirs = (
        [node.target for node in graph_module.graph.nodes if node.op == "call_function"]
        for graph_module in (retrace(program), program.run_decompositions({}))
    )

    assert ours == theirs


def test_no_other_composites_are_asked_about(monkeypatch):
    """Unless the program calls one that PyTorch takes apart."""
    asked = []
    collect = exported_program._collect_all_valid_cia_ops
    monkeypatch.setattr(
        exported_program, "_collect_all_valid_cia_ops", lambda: asked.append(1) or collect()
    )

    retrace(exported(with_composites, torch.rand(2, 2)))
    assert not asked

    def apart(x):
        return on_a_view(x).movedim(0, 1)

    retrace(exported(apart, torch.rand(2, 2)))
    assert asked


class Cache:
    """Keeps rows in a tensor; no module, as the caches of libraries."""

    def __init__(self):
        self.rows = torch.zeros(4, 2)

    def update(self, row, position):
        """Writes a row, and returns all of them."""
        return self.rows.index_copy_(0, position, row)


class Step(nn.Module):
    """Writes to a buffer that it reaches through an object of its own."""

    def __init__(self):
        super().__init__()
        self.cache = Cache()
        self.register_buffer("rows", self.cache.rows)

    def forward(self, row, position):
        """Returns the sum of all rows up to now."""
        return self.cache.update(row * 2, position).sum(0)


def test_a_buffer_that_is_reached_through_a_plain_object_is_refused_with_how_to_export_it():
    """Plain exporting makes a constant of it; exported as the error says it is written as in eager PyTorch."""
    inputs = torch.rand(1, 2), torch.tensor([1])
    model, eager = Step().eval(), Step().eval()
    with pytest.raises(UnsupportedProgramError, match=r"object that is no module.*strict=True"):
        open_program(torch.export.export(model, inputs, strict=False))

    program = open_program(torch.export.export(model, inputs, strict=True))

    for _ in range(2):
        (result,) = program.graph_module(*inputs)
        torch.testing.assert_close(result, eager(*inputs))
        torch.testing.assert_close(model.rows, eager.rows)
