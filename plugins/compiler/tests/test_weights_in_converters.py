"""Weights that a converter computes with: right after a refit, or refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import torchtrt
from plugins.compiler.tests.refitted import agree, compiled
from torchtrt.errors import RefitError

# PyTorch's own, where what it calls a tree is copied.
pytestmark = pytest.mark.filterwarnings("ignore:`isinstance.treespec:FutureWarning")


class Power(nn.Module):
    """A weight that a converter reads as a number."""

    def __init__(self, exponent):
        super().__init__()
        self.exponent = nn.Buffer(torch.tensor(exponent))
        self.w = nn.Parameter(torch.rand(4))

    def forward(self, x):
        return torch.pow(x + 1, self.exponent) * self.w


def test_what_a_converter_reads_as_a_number_is_right_or_refused():
    """Other weights may change; the model never computes with the old number."""
    model = compiled(Power(2.0).eval())
    agree(same := Power(2.0).eval(), torchtrt.refit_module_weights(model, same))
    other = Power(3.0).eval()
    try:
        refitted = torchtrt.refit_module_weights(model, other)
    except RefitError as error:
        message = str(error)
        assert "Values that follow from 'exponent' are compiled into" in message
        assert "Compile the model with the new weights" in message
    else:
        agree(other, refitted)


def test_every_number_that_leaves_a_weight_is_checked(fresh):
    """item, tolist, numpy, bool and repr in a converter or a pass of a pack."""
    code = (
        "import torch, torchtrt\n"
        "from torchtrt.registry import ConverterPriority\n"
        "READ = None\n"
        "@torchtrt.dynamo_tensorrt_converter(\n"
        "    torch.ops.aten.mul.Tensor, priority=ConverterPriority.HIGH)\n"
        "def mul(ctx, self, other: torch.Tensor):\n"
        "    number = READ(other)\n"
        "    constant = ctx.tensor(torch.full(other.shape, number))\n"
        "    return ctx.net.add_elementwise(self, constant, torchtrt.trt.ElementWiseOperation.PROD).get_output(0)\n"
        "class Model(torch.nn.Module):\n"
        "    def __init__(self, value):\n"
        "        super().__init__(); self.w = torch.nn.Buffer(torch.full((1, 1), value))\n"
        "    def forward(self, x): return x * self.w\n"
        "reads = [lambda w: w.item(), lambda w: w.tolist()[0][0], lambda w: float(w.numpy()[0, 0]),\n"
        "    lambda w: 2.0 if w > 1 else 1.0, lambda w: float(repr(w.squeeze()).split('(')[1].split(')')[0]),\n"
        "    lambda w: float(w.double().sum()), lambda w: 2.0 if torch.equal(w, torch.full((1, 1), 2.0)) else 9.0,\n"
        "    lambda w: float(w.t().contiguous().numpy().max())]\n"
        "x = torch.ones(1, 3)\n"
        "for READ in reads:\n"
        "    compiled = torchtrt.compile(Model(2.0).eval(), [x], min_block_size=1, immutable_weights=False)\n"
        "    assert compiled(x)[0, 0] == 2\n"
        "    torchtrt.refit_module_weights(compiled, Model(2.0))\n"
        "    try: torchtrt.refit_module_weights(compiled, Model(0.5)); print('wrong')\n"
        "    except torchtrt.errors.RefitError: print('refused')\n"
    )

    assert ["refused"] * 8 == fresh(code).splitlines()


def test_a_converter_may_compute_with_weights_in_any_way(fresh):
    """Views, writes in place, memory of its own: what was done is done again."""
    code = (
        "import torch, torchtrt\n"
        "from torchtrt.registry import ConverterPriority\n"
        "@torchtrt.dynamo_tensorrt_converter(\n"
        "    torch.ops.aten.mul.Tensor, priority=ConverterPriority.HIGH)\n"
        "def mul(ctx, self, other: torch.Tensor):\n"
        "    made = torch.zeros(3, 3)\n"
        "    made[0] = other[0] * 0.5\n"
        "    row = made[1:]\n"
        "    row.copy_(other[1:]); row.mul_(0.5)\n"
        "    made += made.clone()\n"
        "    table = torch.tensor([1.0, 1.0, 1.0])\n"
        "    table[1] = 1.0\n"
        "    made = torch.where(other > 0.5, made, made * table)\n"
        "    return ctx.net.add_elementwise(\n"
        "        self, ctx.tensor(made), torchtrt.trt.ElementWiseOperation.PROD).get_output(0)\n"
        "class Model(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__(); self.w = torch.nn.Parameter(torch.rand(3, 3))\n"
        "    def forward(self, x): return x * self.w\n"
        "x, old, new = torch.rand(3, 3), Model().eval(), Model().eval()\n"
        "compiled = torchtrt.compile(old, [x], min_block_size=1, immutable_weights=False)\n"
        "torch.testing.assert_close(compiled(x), old(x))\n"
        "before = new.w.clone()\n"
        "torch.testing.assert_close(torchtrt.refit_module_weights(compiled, new)(x), new(x))\n"
        "assert torch.equal(before, new.w); print('right')\n"
    )

    assert "right" == fresh(code)


def test_what_a_converter_computes_in_another_thread_is_right_or_refused(fresh):
    """Nothing observes that thread: the weight must stay as it is, and others need not."""
    code = (
        "import torch, torchtrt\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from torchtrt.conversion import add\n"
        "from torchtrt.errors import RefitError\n"
        "from torchtrt.registry import ConverterPriority\n"
        "pool = ThreadPoolExecutor(1)\n"
        "@torchtrt.dynamo_tensorrt_converter(\n"
        "    torch.ops.aten.mul.Tensor, priority=ConverterPriority.HIGH)\n"
        "def mul(ctx, self, other: torch.Tensor):\n"
        "    doubled = pool.submit(lambda: other * 2).result()\n"
        "    kind = torchtrt.trt.ElementWiseOperation.PROD\n"
        "    return add(ctx, 'elementwise', self, ctx.tensor(doubled), kind)\n"
        "class Model(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.scale = torch.nn.Parameter(torch.rand(1, 4))\n"
        "        self.linear = torch.nn.Linear(4, 4)\n"
        "    def forward(self, x):\n"
        "        return self.linear(x) * self.scale\n"
        "old, new, x = Model().eval(), Model().eval(), torch.rand(2, 4)\n"
        "model = torchtrt.compile(old, [x], min_block_size=1, immutable_weights=False)\n"
        "try: torchtrt.refit_module_weights(model, new)\n"
        "except RefitError as error: print(error)\n"
        "new.scale.data.copy_(old.scale)\n"
        "refitted = torchtrt.refit_module_weights(model, new)\n"
        "torch.testing.assert_close(refitted(x), 2 * new(x))\n"
    )

    assert fresh(code).startswith("Values that follow from 'scale' are compiled into the engine of")
