"""Results are memory of their own, or share only what they share in eager PyTorch."""

import pytest
import torch
from torch import nn

import torchtrt
from tests.support.in_pytorch import left_in_pytorch
from torchtrt_runtime import EngineModule

# What stays in PyTorch, all of it if need be, keeps the same law.
pytestmark = [
    pytest.mark.filterwarnings("ignore::torchtrt.errors.NoEngineWarning"),
    pytest.mark.filterwarnings("ignore::torchtrt.errors.SettingsWarning"),
]

COPIES = {
    "clone": lambda x: x[:2].clone(),
    "view and clone": lambda x: x.view(-1).clone(),
    "contiguous": lambda x: x.t().contiguous(),
    "expand and clone": lambda x: x.unsqueeze(0).expand(2, 2, 3).clone(),
    "flatten and clone": lambda x: x.flatten().clone(),
    "to(copy=True)": lambda x: x[:1].to(x.dtype, copy=True),
    "clone and view": lambda x: x.clone().view(-1),
    "two clones": lambda x: x.clone().clone(),
    "clone and detach": lambda x: x[0].clone().detach(),
}


class Stateful(nn.Module):
    """Runs a function of itself and its inputs."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.register_buffer("h", torch.arange(6.0).reshape(2, 3))
        self.w = nn.Parameter(torch.full((2, 3), 0.5), requires_grad=False)

    def forward(self, *inputs):
        return self.function(self, *inputs)


@pytest.fixture(params=[False, True], ids=["in engines", "in PyTorch"])
def compiled(request):
    """Compiles a function of a module and its inputs, and returns both modules: eager's and the compiled one's."""

    def compile_function(function, *inputs, **options):
        eager, source = Stateful(function).eval(), Stateful(function).eval()
        settings = left_in_pytorch(source, *inputs, **options) if request.param else {}
        module = torchtrt.compile(source, inputs, min_block_size=1, **{**options, **settings})
        return eager, source, module

    return compile_function


def x():
    """Returns an input, the same every time."""
    return torch.arange(1.0, 7.0).reshape(2, 3)


@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES.keys())
def test_a_copy_of_a_buffer_is_from_before_the_write(compiled, copy):
    """The state that is returned is the one that was read."""

    def function(self, x):
        before = copy(self.h)
        self.h.add_(x)
        return before

    eager, source, module = compiled(function, x())

    for _ in range(3):
        torch.testing.assert_close(module(x()), eager(x()), rtol=0, atol=0)
        torch.testing.assert_close(source.h, eager.h, rtol=0, atol=0)


@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES.keys())
def test_a_copy_of_an_input_is_from_before_the_write(compiled, copy):
    """So is what was read of an input that the model writes to."""

    def function(self, x):
        before = copy(x)
        x.mul_(2)
        return before

    eager, _, module = compiled(function, x())
    ours, theirs = x(), x()

    torch.testing.assert_close(module(ours), eager(theirs), rtol=0, atol=0)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES.keys())
def test_writing_into_a_copy_of_an_input_leaves_the_input_alone(compiled, copy):
    """A copy that the model makes is a copy."""
    _, _, module = compiled(lambda self, x: copy(x), x())
    ours = x()

    module(ours).zero_()

    assert torch.equal(x(), ours)


@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES.keys())
def test_a_result_and_its_copy_are_two(compiled, copy):
    """Writing into one leaves the other alone."""

    def function(self, x):
        y = x + 1
        return y, copy(y)

    _, _, module = compiled(function, x())

    first, second = module(x())
    expected = second.clone()
    first.zero_()

    assert torch.equal(expected, second)


CONSTANT_RESULTS = {
    "zeros": lambda self: torch.zeros(4),
    "tensor": lambda self: torch.tensor([1.0, 2.0]),
    "computed from a weight": lambda self: self.w * 2,
    "view of a weight": lambda self: self.w.t(),
    "copy of a weight": lambda self: self.w[:1].clone(),
    "weight": lambda self: self.w,
    "buffer": lambda self: self.h,
    "copy of a buffer": lambda self: self.h.clone(),
    "expanded": lambda self: torch.zeros(1).expand(4).clone(),
}


@pytest.mark.parametrize("constant", CONSTANT_RESULTS.values(), ids=CONSTANT_RESULTS.keys())
def test_a_constant_result_is_new_on_every_call(compiled, constant):
    """Writing into it changes neither the model nor later calls."""
    _, source, module = compiled(lambda self, x: (x + 1, constant(self)), x())
    state = {name: value.clone() for name, value in source.state_dict().items()}

    first = module(x())[1]
    expected = first.clone()
    first.add_(1)

    assert torch.equal(expected, module(x())[1])
    assert torch.equal(expected + 1, first)
    for name, value in source.state_dict().items():
        assert torch.equal(state[name], value)


def test_equal_constants_are_two_results(compiled):
    """What the graph merges, the caller still has twice."""
    _, _, module = compiled(lambda self, x: (x + 1, torch.arange(3.0), torch.arange(3.0)), x())

    _, first, second = module(x())
    first.add_(1)

    assert [0.0, 1.0, 2.0] == second.tolist()


def test_one_result_twice_is_one_tensor(compiled):
    """A tensor that the model returns twice is the same both times."""

    def function(self, x):
        y = x + 1
        return y, y

    first, second = compiled(function, x())[2](x())

    assert first is second


def test_a_view_of_an_input_that_pytorch_takes_is_the_inputs_memory():
    """Outside engines, an input's view is one: writing into it reaches the input, as in eager PyTorch."""
    module = torchtrt.compile(Stateful(lambda self, x: (x[0], x)).eval(), (x(),))
    ours = x()

    first, second = module(ours)
    first.zero_()

    assert [0.0, 0.0, 0.0] == ours[0].tolist()
    assert second is ours


def test_an_input_that_is_laid_out_otherwise_is_not_shared():
    """A contiguous example leaves no trace of ``contiguous()``, which copies any other input."""
    module = torchtrt.compile(Stateful(lambda self, x: x.contiguous()).eval(), (x(),))
    ours = x().t().contiguous().t()

    module(ours).zero_()

    assert torch.equal(x(), ours)


def test_an_engine_hands_out_no_shared_memory():
    """Views that an engine computes are memory of their own."""
    module = torchtrt.compile(
        Stateful(lambda self, x: (x.view(-1), x[:1])).eval(), (x(),), min_block_size=1
    )
    ours = x()

    first, second = module(ours)
    first.zero_()

    assert any(isinstance(part, EngineModule) for part in module.modules())
    assert torch.equal(x(), ours)
    assert torch.equal(x()[:1], second)


def test_a_copy_of_an_expanded_tensor_has_a_place_for_each_element(compiled):
    """Writing one element changes one."""
    _, _, module = compiled(
        lambda self, x: torch.igamma(x, x)[:1].expand(2, 3).clone(),
        x(),
        torch_executed_ops={"aten.expand", "aten.slice"},
    )

    result = module(x())
    result[0] = 7

    assert [7.0, 7.0, 7.0] == result[0].tolist()
    assert 7.0 not in result[1].tolist()


def test_a_result_that_was_written_to_is_not_what_was_written(compiled):
    """``h.copy_(x)`` returns the buffer, not the input, though their values are equal."""
    _, _, module = compiled(lambda self, x: (self.h.copy_(x), x + 1)[0], x())
    ours = x()

    module(ours).zero_()

    assert torch.equal(x(), ours)


def test_a_dry_run_keeps_results_apart_too():
    """What runs in PyTorch in place of the engines follows the same rule."""
    module = torchtrt.compile(
        Stateful(lambda self, x: (x[:, :2].clone(), x + 1)).eval(),
        (x(),),
        min_block_size=1,
        dryrun=True,
    )
    ours = x()

    module(ours)[0].zero_()

    assert torch.equal(x(), ours)


@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES.keys())
def test_torch_compile_returns_what_was_read(copy):
    """The backend's graphs are compiled by the same rule."""

    def function(self, x):
        before = copy(x)
        x.mul_(2)
        return before

    torch._dynamo.reset()
    eager = Stateful(function).eval()
    module = torch.compile(
        Stateful(function).eval(), backend="torchtrt", options={"min_block_size": 1}
    )
    with torch.no_grad():
        for _ in range(2):
            ours, theirs = x(), x()
            result = module(ours)
            torch.testing.assert_close(result, eager(theirs), rtol=0, atol=0)
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
            result.zero_()
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
