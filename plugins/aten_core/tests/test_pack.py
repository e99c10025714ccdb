"""The pack as a whole: it registers, its ops exist, each has a case, and what it cannot do it rejects with a reason."""

import operator

import pytest
import torch

import torchtrt
from docs.op_tables import op_tables
from tests.support.modules import Function
from torchtrt.errors import FullCompilationError
from torchtrt.targets import qualified_name
from torchtrt.testing import PackConformance, cases_of, check_case, op_case, run_compiled
from torchtrt_converters_aten_core import pack
from torchtrt_testing.checking import is_expected_rejection
from torchtrt_testing.conformance_checks import faults_of_validators, validators_of
from torchtrt_testing.nodes import nodes_of

WITHOUT_OWN_CASE = {
    **{
        f"aten._scaled_dot_product_{kind}.default": "PyTorch runs it on a GPU only: test_attention_kernels_of_the_gpu"
        for kind in (
            "cudnn_attention",
            "efficient_attention",
            "flash_attention",
            "fused_attention_overrideable",
        )
    },
    "aten.sym_numel.default": "torch.export spells it as a product of sizes: test_numel_of_sizes",
}
"""Ops that no exported program can hold by themselves, and why."""


def compile_everything(model, *inputs):
    """Returns a model compiled with nothing left in PyTorch."""
    return torchtrt.compile(model, inputs, require_full_compilation=True)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
class TestAtenCore(PackConformance):
    """Every op of the pack, with sizes that vary where they can."""

    pack = "aten_core"
    cases = cases_of("aten_core")
    sizes = ("varying sizes",)
    without_case = WITHOUT_OWN_CASE
    exported_since = "2.13"

    def is_expected_rejection(self, error):
        """TensorRT 8.6 lacks exact integers and bfloat16."""
        return is_expected_rejection(error)

    @pytest.mark.slow  # 2,700 nodes; the test of each case checks the case's own nodes
    def test_validators_answer_and_change_nothing(self):
        """Of every op."""
        super().test_validators_answer_and_change_nothing()

    def test_validators_of_some_ops_answer_and_change_nothing(self):
        """Of one op in ten, with the same dtypes, ranks and sizes."""
        validators = validators_of(self.loaded)
        ops = sorted(
            (target for target in validators if isinstance(target, torch._ops.OpOverload)), key=str
        )

        asked = [node for op in ops[::10] for node in nodes_of(op)]

        assert len(asked) > 200
        assert [] == faults_of_validators(validators, asked)

    def test_the_readme_lists_every_op(self, tmp_path, monkeypatch):
        """The page is the site's, which is made from the registry."""
        page = tmp_path / "ops.md"
        page.write_text("\n".join(op_tables()), encoding="utf-8")
        monkeypatch.setattr(TestAtenCore, "readme", page)
        super().test_the_readme_lists_every_op()


def test_no_op_has_two_converters_in_this_pack():
    """Within the pack one converter handles an op, beside those that need more of TensorRT than others."""
    targets = [entry.target for entry in pack.converters if not entry.support.requires]
    repeated = {qualified_name(target) for target in targets if targets.count(target) > 1}
    assert repeated == set()


def test_every_converter_supports_dynamic_shapes():
    """No converter of this pack keeps a model from having dynamic sizes."""
    assert all(entry.support.supports_dynamic_shapes for entry in pack.converters)


REJECTED = [
    ("int8 arithmetic", lambda x: x.to(torch.int8) + 1, "does not compute this op with int8"),
    (
        "byte movement",
        lambda x: x.to(torch.uint8).reshape(-1),
        "does not compute this op with uint8",
    ),
    (
        "large integer matmul",
        lambda x: x.to(torch.int64).repeat(64, 64) @ x.to(torch.int64).repeat(64, 64),
        "floating-point",
    ),
    (
        "too many to rank",
        lambda x: torch.sort(x.reshape(-1).repeat(1000))[0],
        "comparing each with each",
    ),
]


@pytest.mark.parametrize(
    ("function", "reason"), [row[1:] for row in REJECTED], ids=[row[0] for row in REJECTED]
)
def test_what_tensorrt_cannot_do_is_rejected_with_the_rule(function, reason):
    """An op without a faithful layer stays in PyTorch, and the report says why in words."""
    with pytest.raises(FullCompilationError, match=reason):
        compile_everything(Function(function).eval(), torch.randn(4, 4))


def test_product_of_whole_numbers_is_exact_or_rejected(version):
    """TensorRT 8.6 multiplies integers in float32: there an unknown number of them stays in PyTorch."""
    model, numbers = Function(lambda x: x.prod(1)), torch.tensor([[4097, 4099], [-3, 5]])
    assert torch.equal(
        run_compiled(compile_everything(model.eval(), numbers), numbers), model(numbers)
    )
    dynamic = {"inputs": ({1: torch.export.Dim("n", min=1, max=4)},)}
    exported = torch.export.export(model, (numbers,), dynamic_shapes=dynamic, strict=False)
    if version == "reference@8.6.0":
        with pytest.raises(FullCompilationError, match="in float32"):
            compile_everything(exported)
    else:
        assert torch.equal(run_compiled(compile_everything(exported), numbers), model(numbers))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.where(x > 0, x, torch.iinfo(torch.int64).min),
        lambda x: x + torch.tensor([2**40, -(2**40), 1]),
        lambda x: torch.nn.functional.pad(x, (1, 1), value=2.0**40),
        lambda x: x.scatter(0, torch.tensor([0, 2]), 2**40),
    ],
    ids=["number", "weight", "padding", "scattered"],
)
def test_whole_numbers_beyond_32_bits_are_exact_or_rejected(version, function):
    """TensorRT 8.6 has no 64-bit numbers: there an op with such a constant stays in PyTorch."""
    model, numbers = Function(function), torch.tensor([4, -5, 6])
    if version == "reference@8.6.0":
        with pytest.raises(FullCompilationError, match="32 bits"):
            compile_everything(model.eval(), numbers)
    else:
        assert torch.equal(
            run_compiled(compile_everything(model.eval(), numbers), numbers), model(numbers)
        )


def test_numel_of_sizes(version):
    """The number of elements of a tensor can be one op."""

    def function(x):
        return x.reshape(x.shape[0] * x.shape[1])

    exported = torch.export.export(
        Function(function),
        (torch.randn(3, 5),),
        dynamic_shapes={
            "inputs": (
                {0: torch.export.Dim("b", min=1, max=5), 1: torch.export.Dim("s", min=1, max=8)},
            )
        },
        strict=False,
    )
    (product,) = exported.graph.find_nodes(op="call_function", target=operator.mul)
    (placeholder,) = exported.graph.find_nodes(op="placeholder")
    product.target, product.args = torch.ops.aten.sym_numel.default, (placeholder,)
    compiled = torchtrt.compile(exported, require_full_compilation=True, min_block_size=1)
    inputs = torch.randn(4, 7)
    torch.testing.assert_close(run_compiled(compiled, inputs), inputs.reshape(-1))


GPU_ATTENTION = [
    ("cudnn_attention", (None, False), {"is_causal": True}),
    ("cudnn_attention", ("mask", False), {"scale": 0.3}),
    ("efficient_attention", (None, False), {"is_causal": True}),
    ("efficient_attention", ("mask", False), {"scale": 0.3}),
    ("flash_attention", (), {"is_causal": True}),
    ("flash_attention", (), {"scale": 0.3}),
    ("fused_attention_overrideable", (), {"is_causal": True}),
    ("fused_attention_overrideable", ("mask",), {"scale": 0.3}),
]


@pytest.mark.parametrize(("kind", "args", "options"), GPU_ATTENTION)
def test_attention_kernels_of_the_gpu(kind, args, options, version):
    """What exporting on a GPU makes of attention is the attention that it was."""
    query, mask = torch.randn(2, 3, 5, 4), torch.randn(2, 1, 5, 5)
    masked = "mask" in args
    inputs = (query, mask) if masked else (query,)

    def function(query, mask=None):
        return torch.ops.aten.scaled_dot_product_attention(query, query, query, mask, **options)

    exported = torch.export.export(Function(function), inputs, strict=False)
    whole = torch.ops.aten.scaled_dot_product_attention.default
    (node,) = exported.graph.find_nodes(op="call_function", target=whole)
    rest = [node.args[3] if arg == "mask" else arg for arg in args]
    target = getattr(torch.ops.aten, f"_scaled_dot_product_{kind}").default
    with exported.graph.inserting_before(node):
        kernel = exported.graph.call_function(target, (*node.args[:3], *rest), options)
        more = len(target._schema.returns) - 1
        kernel.meta["val"] = (node.meta["val"], *[node.meta["val"].new_empty(2, 3, 0)] * more)
        first = exported.graph.call_function(operator.getitem, (kernel, 0))
        first.meta["val"] = node.meta["val"]
    node.replace_all_uses_with(first)
    exported.graph.erase_node(node)
    compiled = torchtrt.compile(exported, require_full_compilation=True, min_block_size=1)
    torch.testing.assert_close(
        run_compiled(compiled, *inputs), function(*inputs), rtol=1e-5, atol=1e-5
    )


def layers(function, *inputs, dynamic=None):
    """Returns how many TensorRT layers a function becomes."""
    compiled = torchtrt.compile(
        torch.export.export(Function(function), inputs, dynamic_shapes=dynamic, strict=False),
        require_full_compilation=True,
        min_block_size=1,
    )
    return sum(block.layers for block in compiled.report.blocks)


BATCH_AND_LENGTH = {
    "inputs": ({0: torch.export.Dim("b", min=1, max=5), 1: torch.export.Dim("s", min=1, max=8)},)
}


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (lambda x: x.unsqueeze(0), 1),
        (lambda x: x.unsqueeze(2).squeeze(2), 2),
        (lambda x: x.unflatten(2, (2, 3)), 1),
        (lambda x: x.flatten(1), 1),
        (lambda x: torch.relu(x.expand(-1, -1, 6)), 1),
        (lambda x: torch.relu(x.transpose(1, 1)), 1),
        (lambda x: torch.relu(x.to(torch.float32)), 1),
        (lambda x: x[:, :, 0], 2),
    ],
)
def test_known_sizes_cost_no_layers(function, count):
    """A change of shape is one layer even with two dynamic sizes, and one that changes nothing is none."""
    assert layers(function, torch.randn(3, 4, 6), dynamic=BATCH_AND_LENGTH) == count


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (lambda x: x.roll(1, 2), 3),
        (lambda x: x.roll((2, -1), (2, -1)), 3),
        (lambda x: torch.relu(x.roll(-6, 2)), 1),
        (lambda x: x.roll((1, 1), (2, 1)), 6),
        (lambda x: x.roll(1), 5),
    ],
)
def test_a_roll_is_two_pieces_that_change_places(function, count):
    """A slice that wraps around is for sizes that vary: TensorRT 8.6 fuses it with nothing."""
    assert layers(function, torch.randn(3, 4, 6)) == count


@pytest.mark.parametrize("version", ["8.6.0", "11.4.0"])
def test_a_roll_by_more_than_there_is(version):
    """A shift counts modulo the size, and TensorRT 8.6 has 32 bits for it."""
    x = torch.randn(3, 4, 6)
    model = Function(lambda x: x.roll((2**40 + 1, -(2**33) - 5), (2, 2)) + 1)
    for dynamic in (None, BATCH_AND_LENGTH):
        exported = torch.export.export(model, (x,), dynamic_shapes=dynamic, strict=False)
        with torchtrt.use_tensorrt(f"reference@{version}"):
            compiled = torchtrt.compile(exported, require_full_compilation=True)
            torch.testing.assert_close(compiled(x), model(x))


def test_a_case_that_disagrees_fails():
    """The harness finds a wrong result: a case whose engine computes something else does not pass."""
    calls = iter(range(100))
    wrong = op_case("aten.add.Tensor", "3", function=lambda x: x + (1 if next(calls) == 0 else 2))
    with pytest.raises(AssertionError):
        check_case(wrong)
