"""The statements that generated models are made of."""

from __future__ import annotations

# Placeholders: {t} any tensor, {f} floating point, {i} integers, {b} booleans, {d} a dimension, {k} a small number,
# {s} a size, {h} half precision, {y} a dtype. A statement assigns ``v``, or writes to what it names.
ARITHMETIC = (
    "v = {t} + {t}",
    "v = {t} - {t}",
    "v = {t} * {t}",
    "v = {t} * {k}",
    "v = {k} - {t}",
    "v = {t} / {k}",
    "v = {t} // {k}",
    "v = {t} % {k}",
    "v = {t} ** 2",
    "v = {t} > {t}",
    "v = {t} == {t}",
    "v = {t} >= {k}",
    "v = ~{b}",
    "v = {b} & {b}",
    "v = {i} ^ {k}",
    "v = {t}.to({y})",
    "v = {t}.type_as({t})",
    "v = {f}.sin()",
    "v = {f}.exp().clamp(max=50)",
    "v = {f}.sigmoid() * {f}",
    "v = {f}.abs().sqrt()",
    "v = {f}.round()",
    "v = torch.where({b}, {t}, {t})",
    "v = torch.where({b}, {t}, {k})",
    "v = torch.maximum({t}, {t})",
    "v = {t}.clamp(-1, {k})",
    "v = {t}.masked_fill({b}, {k})",
    "v = torch.lerp({f}, {f}, 0.25)",
    "v = F.gelu({f})",
    "v = F.softmax({f}, {d})",
    "v = {f}.log_softmax({d})",
    "v = {t}.sign()",
    "v = torch.addcmul({f}, {f}, {f}, value=2)",
)
REDUCTIONS = (
    "v = {t}.sum({d})",
    "v = {t}.sum()",
    "v = {f}.mean({d}, keepdim=True)",
    "v = {t}.amax({d})",
    "v = {t}.argmax({d})",
    "v = {t}.any({d})",
    "v = {t}.all()",
    "v = {t}.cumsum({d})",
    "v = {f}.var({d}, correction=0)",
    "v = {f}.norm(dim={d})",
    "v = {t}.prod({d})",
    "v = {t}.count_nonzero({d})",
    "v = {t}.max({d}).values",
    "v = {t}.sort({d}, stable=True).values",
    "v = {t}.topk(1, {d}).values",
    "v = torch.logsumexp({f}, {d})",
    "v = {t}.unique().shape[0] * {t}",
)
SHAPES = (
    "v = {t}.reshape(-1)",
    "v = {t}.flatten()",
    "v = {t}.reshape({s}, -1)",
    "v = {t}.transpose(0, -1)",
    "v = {t}.unsqueeze({d})",
    "v = {t}.squeeze({d})",
    "v = {t}.squeeze()",
    "v = {t}.expand(2, *{t}.shape)",
    "v = {t}[..., ::2]",
    "v = {t}[1:]",
    "v = {t}[:-1]",
    "v = {t}[:2]",
    "v = {t}[-2:]",
    "v = {t}[None, 0]",
    "v = {t}[..., -1]",
    "v = {t}[: {s} // 2]",
    "v = {t}[{s} - 1 :]",
    "v = torch.cat([{t}, {t}], {d})",
    "v = torch.stack([{t}, {t}], {d})",
    "v = {t}.chunk(2, {d})[0]",
    "v = {t}.chunk(2, {d})[-1]",
    "v = {t}.split(2, {d})[0]",
    "v = {t}.unbind(-1)[0]",
    "v = {t}.roll({k}, {d})",
    "v = {t}.flip({d})",
    "v = {t}.repeat(2, 1)",
    "v = {t}.repeat_interleave(2, {d})",
    "v = {t}.tile(2)",
    "v = F.pad({t}, (1, 2))",
    "v = F.pad({t}, (0, 0, 1, 0), value={k})",
    "v = {t}.new_zeros({s}, 2)",
    "v = torch.arange({s})",
    "v = torch.full(({s},), {k})",
    "v = torch.ones_like({t})",
    "v = {t} * {s}",
    "v = {t} + {s} / 2",
    "v = torch.linspace(0, 1, {s})",
    "v = torch.eye({s})",
    "v = {t}.tril()",
    "v = {t}.diagonal()",
    "v = {t}.unfold(0, 1, 1)",
    "v = {t}.movedim(0, -1)",
    "v = {t}.narrow(0, 0, 1)",
    "v = {t}.view(-1, {s})",
    "v = {t}.contiguous()",
    "v = {t}.detach().clone()",
    "v = torch.meshgrid({t}.reshape(-1), torch.arange(2), indexing='ij')[0]",
)
INDEXING = (
    "v = {t}[{i}.reshape(-1) % max({s}, 1) % {t}.shape[0]]",
    "v = {t}.index_select(0, torch.arange({s}) % {t}.shape[0])",
    "v = {t}.gather(0, torch.zeros_like({t}, dtype=torch.int64))",
    "v = {t}[torch.arange({s}) % {t}.shape[0]]",
    "v = {t}.take_along_dim({t}.argsort(stable=True, dim={d}), {d})",
    "v = F.one_hot({i}.abs() % 3, 3)",
    "v = self.embedding({i}.abs() % 5)",
    "v = {t}[{t}[:, 0] > 0] if {t}.dim() == 2 else {t}",
    "v = torch.bucketize({f}, torch.tensor([-1.0, 0.0, 1.0]))",
    "v = {t}.index_add(0, torch.tensor([0, 0]), {t}[:1].expand(2, *{t}.shape[1:]))",
    "v = {t}.scatter_add(0, torch.zeros_like({t}, dtype=torch.int64), {t})",
    "v = {t}.index_fill(0, torch.tensor([0]), {k})",
)
MODULES = (
    "v = self.linear({f})",
    "v = self.norm({f})",
    "v = self.blocks['mlp']({f})",
    "v = self.blocks['inner'].linear({f}) + self.scale",
    "v = self.convolution({f}.reshape(1, 1, -1))",
    "v = F.linear({f}, self.linear.weight[:2])",
    "v = {f} @ self.linear.weight",
    "v = {f} @ {f}.transpose(-1, -2)",
    "v = torch.einsum('ij,kj->ik', {f}, {f})",
    "v = F.scaled_dot_product_attention({f}[None], {f}[None], {f}[None])",
    "v = F.interpolate({f}.reshape(1, 1, -1), scale_factor=2)",
    "v = F.avg_pool1d({f}.reshape(1, 1, -1), 2)",
    "v = F.adaptive_avg_pool1d({f}.reshape(1, 1, -1), 2)",
    "v = self.recurrent({f}[None])[0]",
    "v = F.layer_norm({f}, {f}.shape[-1:])",
    "v = F.embedding({i}.abs() % 5, self.embedding.weight)",
    "v = F.embedding_bag({i}.reshape(1, -1).abs() % 5, self.embedding.weight)",
)
CHOICES = (
    "v = {t} * 2 if {s} % 2 == 0 else {t} * 3",
    "v = {t} + 1 if {s} > 3 else {t} - 1",
    "v = {t} if {s} == 1 else {t} * 5",
    "v = {t} * 2 if {s} == {s} else {t} * 7",
    "v = torch.cond({t}.sum() > 0, lambda a: a * 2, lambda a: a - 1, ({t},))",
    "v = torch.cond({b}.any(), lambda a, b: a + b, lambda a, b: a - b, ({f}, {f}))",
    "v = torch.cond(torch.tensor({s} > 2), lambda a: a.sin(), lambda a: a.cos(), ({f},))",
    "v = while_loop(lambda n, a: n < 3, lambda n, a: (n + 1, a * 2), (torch.zeros((), dtype=torch.int64), {t}))[1]",
    "v = while_loop(lambda n, a: n < {s}, lambda n, a: (n + 1, a + 1), (torch.tensor(0), {t}))[1]",
    "v = torch.stack([{t} + each for each in range(3)]).sum(0)",
    "v = {t} * {t}.dim() + len({t}.shape)",
)
TRANSFORMS = (
    "v = torch.vmap(torch.sin)({f})",
    "v = torch.vmap(lambda r: r * 2 + r.sum())({t})",
    "v = torch.vmap(lambda a, b: a * b, in_dims=(0, None))({f}, self.scale)",
    "v = torch.vmap(lambda r: r.cumsum(0), in_dims=-1, out_dims=-1)({f})",
    "v = torch.vmap(torch.vmap(lambda e: e * e))({f})",
    "v = torch.vmap(lambda r: self.linear(r))({f})",
    "v = torch.vmap(lambda r: torch.where(r > 0, r, -r))({f})",
    "v = torch.func.jvp(torch.sin, ({f},), (torch.ones_like({f}),))[1]",
    "v = torch.func.jvp(lambda a: a * a, ({f},), ({f},))[0]",
    "v = torch.func.functional_call(self.linear, {{'weight': self.linear.weight * 2, 'bias': self.scale}}, ({f},))",
    "v = associative_scan(lambda a, b: a + b, {f}, 0, combine_mode='generic')",
    "v = associative_scan(torch.maximum, {f}, 0, combine_mode='generic')",
)
WRITES = (
    "{t}.add_(1)",
    "{f}.relu_()",
    "{t}[0] = {k}",
    "{t}[..., :1] = {k}",
    "{t}[:1] += 1",
    "{f}.mul_({f})",
    "{t}.zero_()",
    "{t}[{b}] = {k}",
    "{f}[{f} > 1] = 0",
    "{t}.copy_({t})",
    "{t}.transpose(0, -1)[0].add_(2)",
    "{t}.reshape(-1)[:1].fill_({k})",
    "self.state.add_(1)",
    "self.state.mul_(0.5).add_({f}.reshape(-1)[:1])",
    "self.count += 1",
    "self.count += {s}",
    "self.table[0] = {f}.reshape(-1)[:1]",
    "self.table[:, 1].add_(1)",
    "v = {t}.clone().resize_(1)",
    "v = self.state * 2",
    "v = self.table[1:] + self.count",
    "v = torch.zeros({s}, 4).index_copy_(0, torch.arange({s}), {f}[:1].expand({s}, 4))",
    "v = {t}.clone().fill_diagonal_({k})",
)
REGIONS = (
    "with torch.autocast('cpu', {h}):",
    "with torch.autocast('cpu', {h}, enabled=False):",
    "with torch.autocast('cpu', enabled=False):",
    "with torch.no_grad():",
    "with torch.enable_grad():",
    "with torch.set_grad_enabled(True):",
)
FAMILIES = {
    "arithmetic": ARITHMETIC,
    "reductions": REDUCTIONS,
    "shapes": SHAPES,
    "indexing": INDEXING,
    "modules": MODULES,
    "choices": CHOICES,
    "transforms": TRANSFORMS,
    "writes": WRITES,
}
RESULTS = (
    "{t}",
    "({t}, {t})",
    "[{t}, ({t}, None)]",
    "{{'a': {t}, 'b': ({t}, None, {t})}}",
    "({t}, {s}, 'text')",
    "({t}, {t}, x0)",
    "{t}, [{t}], {{'c': {t}}}",
)
PRELUDE = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.while_loop import while_loop
import torch._higher_order_ops as hops
import torch.utils.checkpoint
"""
MODEL = """\
class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.embedding = nn.Embedding(5, 4)
        self.convolution = nn.Conv1d(1, 2, 3, padding=1)
        self.recurrent = nn.GRU(4, 4, batch_first=True)
        self.blocks = nn.ModuleDict(
            {{"mlp": nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4)), "inner": Inner()}}
        )
        self.scale = nn.Parameter(torch.linspace(-1, 1, 4))
        self.register_buffer("state", torch.zeros(4))
        self.register_buffer("table", torch.ones(3, 2))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, {parameters}):
{body}
        return {result}
"""
