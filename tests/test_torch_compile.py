"""The backend of torch.compile, from end to end."""

import warnings

import pytest
import torch
from torch import nn

import torchtrt


@pytest.fixture(autouse=True)
def fresh_dynamo():
    """Clears what Dynamo compiled for other tests."""
    yield
    torch._dynamo.reset()


def test_torch_compile_finds_the_backend_by_name(small):
    """The backend is registered through PyTorch's own entry point."""
    assert "torchtrt" in torch._dynamo.list_backends()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(small, backend="torchtrt", options={"min_block_size": 1})
        x = torch.rand(2, 8)
        torch.testing.assert_close(compiled(x), small(x))


def test_torch_compile_serves_other_sizes(small):
    """A size without a bound gets an engine when it is first met; a bounded one shares an engine."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(small, backend="torchtrt", options={"min_block_size": 1})
        for batch in (2, 3, 5, 3):
            x = torch.rand(batch, 8)
            torch.testing.assert_close(compiled(x), small(x))
        bounded = torch.rand(4, 8)
        torch._dynamo.mark_dynamic(bounded, 0, min=2, max=16)
        torch.testing.assert_close(compiled(bounded), small(bounded))


def test_torch_compile_refuses_unknown_options(small):
    """A misspelt option is an error."""
    compiled = torch.compile(small, backend="torchtrt", options={"min_blocksize": 1})
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Exception, match="min_block_size"):
            compiled(torch.rand(2, 8))


@pytest.mark.parametrize("inductor", [False, True])
def test_torch_compile_runs_what_is_compiled_already_as_it_is(small, compilations, inductor):
    """In its first call too, in which engines are loaded: Dynamo traced that. Around it there are two graphs."""

    class Twice(nn.Module):
        def __init__(self, part):
            super().__init__()
            self.part = part

        def forward(self, x):
            return self.part(x * 2) + 1

    x = torch.rand(2, 8)
    kept = {"aten.relu"}
    part = torchtrt.compile(
        small, (x,), min_block_size=1, torch_executed_ops=kept, inductor=inductor
    )
    graphs = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(Twice(part), backend=graphs)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(x), Twice(small)(x))
    assert graphs.frame_count == 2


def test_torch_compile_runs_a_forward_that_was_replaced_once(small):
    """Hooks of other libraries put a wrapper in the place of ``forward``."""
    x = torch.rand(2, 8)
    part = torchtrt.compile(small, (x,), min_block_size=1)
    forward = part.forward
    part.forward = lambda x: forward(x - 1) + 10

    with torch.no_grad():
        expected = small(x - 1) + 10
        torch.testing.assert_close(torch.compile(part, backend="eager")(x), expected)
        with torch.compiler.set_stance("eager_on_recompile"):
            torch.testing.assert_close(torch.compile(part, backend="eager")(x), expected)
