"""Cases read as they are written, and a case that is wrong does not pass."""

import pytest
import torch

import torchtrt
from tests.support.processes import run_python
from torchtrt.errors import FullCompilationError
from torchtrt.testing import (
    DIMENSIONS,
    TensorSpec,
    assert_close,
    check_case,
    decomposition_case,
    first_party_cases,
    op_case,
    run_compiled,
    tensorrts,
)


def test_a_string_that_reads_as_a_shape_is_a_tensor():
    """Numbers and names of dimensions; any other string is an argument of the op."""
    case = op_case("aten.gelu.default", "batch 4", approximate="tanh")

    assert case.args == (TensorSpec("batch 4"),)
    assert case.kwargs == {"approximate": "tanh"}
    assert [tuple(case.inputs(point)[0].shape) for point in range(3)] == [(1, 4), (3, 4), (5, 4)]


def test_a_case_may_have_dimensions_of_its_own():
    """Beside those that every case has."""
    case = op_case("aten.relu.default", "batch height", dimensions={"height": (8, 16, 32)})

    assert case.varies
    assert tuple(case.inputs(2)[0].shape) == (5, 32)
    check_case(case)


@pytest.mark.parametrize(
    ("spec", "dtype", "shape"),
    [
        (TensorSpec("2 3", torch.int64, 0, 1), torch.int64, (2, 3)),
        (TensorSpec(""), torch.float16, ()),
        (TensorSpec("2", torch.bool), torch.bool, (2,)),
        (TensorSpec("2", torch.complex64), torch.complex64, (2,)),
        (TensorSpec(values=[[1, 2]]), torch.float16, (1, 2)),
        (TensorSpec(values=torch.ones(2, 3).t()), torch.float32, (3, 2)),
    ],
)
def test_a_tensor_is_made_as_it_is_described(spec, dtype, shape):
    """Its own dtype or that of the case; the same each time."""
    made, again = (spec.make(torch.float16, DIMENSIONS, 1, 0) for _ in range(2))

    assert (dtype, shape) == (made.dtype, tuple(made.shape))
    assert torch.equal(made, again)


def test_a_case_is_tried_with_each_of_its_dtypes():
    """What names a dtype keeps it."""
    case = op_case(
        "aten.add.Tensor", "3", TensorSpec("3", torch.int32), dtypes=(torch.float32, torch.float16)
    )

    names = [str(variant) for variant in case.each_dtype()]
    dtypes = [[tensor.dtype for tensor in variant.inputs(1)] for variant in case.each_dtype()]
    assert names == ["aten.add.Tensor-float32", "aten.add.Tensor-float16"]
    assert dtypes == [[torch.float32, torch.int32], [torch.float16, torch.int32]]


def test_a_case_that_disagrees_fails():
    """A wrong value at one of the sizes is enough."""
    calls = iter(range(100))
    wrong = op_case("aten.add.Tensor", "3", function=lambda x: x + (1 if next(calls) == 0 else 2))

    with pytest.raises(AssertionError, match="Mismatched"):
        check_case(wrong)


def test_a_case_whose_op_is_not_converted_fails():
    """Though all is in engines, and right."""
    words = r"no engine has aten.tanh.default\. The engines have aten.relu.default\. .*decomposition_case"
    with pytest.raises(AssertionError, match=words):
        check_case(op_case("aten.tanh.default", "3", function=torch.relu))


def test_an_op_that_stays_in_pytorch_fails_unless_it_is_said_to():
    """With its reason; another reason, or none, fails too."""
    check_case(op_case("aten.igamma.default", "3", "3", rejected="no pack has a converter"))
    with pytest.raises(FullCompilationError):
        check_case(op_case("aten.igamma.default", "3", "3"))
    with pytest.raises(AssertionError, match="no pack has a converter"):
        check_case(op_case("aten.igamma.default", "3", "3", rejected="too large"))
    with pytest.raises(AssertionError, match="nothing stayed in PyTorch"):
        check_case(op_case("aten.relu.default", "3", rejected="too large"))


def test_a_decomposed_op_need_not_be_in_the_engine():
    """Its parts are."""
    check_case(decomposition_case("aten.log2.default", TensorSpec("batch", low=1)))


def test_tolerance_is_that_of_the_dtype():
    """A half has fewer digits; NaN equals NaN; dtypes are the same."""
    one = torch.tensor([1.0, torch.nan])
    assert_close(one, one * (1 + 5e-6))
    assert_close(one.half(), (one * 1.0009).half())
    for other in (one * 1.001, one.double(), one[:1]):
        with pytest.raises(AssertionError):
            assert_close(one, other)


@pytest.mark.parametrize("tensorrt", tensorrts())
def test_the_parameters_are_what_use_tensorrt_takes(tensorrt):
    """A compiled model's results come back to the CPU."""
    with torchtrt.use_tensorrt(tensorrt):
        compiled = torchtrt.compile(torch.nn.Tanh().eval(), [torch.ones(3)], min_block_size=1)
        assert_close(run_compiled(compiled, torch.ones(3)), torch.ones(3).tanh())


def test_where_the_real_tensorrt_is_in_use_tests_run_on_it_under_a_mark(machine):
    """So that ``pytest -m tensorrt`` chooses them."""
    machine.has_tensorrt("10.9.0")

    with torchtrt.use_tensorrt("real"):
        (parameter,) = tensorrts()

    assert (("real",), ["tensorrt"]) == (parameter.values, [mark.name for mark in parameter.marks])


def test_first_party_cases_are_found_by_op():
    """In any spelling; a packet stands for its overloads; decompositions too."""
    assert len(first_party_cases()) > 900
    assert {case.ops for case in first_party_cases("aten::softmax.int")} == {("aten.softmax.int",)}
    assert {"aten.add.Tensor", "aten.add.Scalar"} <= {
        op for case in first_party_cases("aten.add") for op in case.ops
    }
    assert first_party_cases("aten.log2.default")


def test_pytest_starts_without_pytorch():
    """The entry point that pytest imports registers one mark, in every environment that has it."""
    program = (
        "import sys, importlib.metadata as metadata; "
        "(entry,) = metadata.entry_points(group='pytest11', name='torchtrt'); entry.load(); "
        "print([name for name in ('torch', 'torchtrt') if name in sys.modules])"
    )

    done = run_python("-c", program, libraries=(), check=True)

    assert "[]" == done.stdout.strip()


def test_without_the_kit_the_core_says_what_to_install():
    """And an import that fails inside it is not hidden."""
    program = "import sys; sys.modules['torchtrt_testing'] = None; import torchtrt.testing"

    done = run_python("-c", program)

    assert (
        "ModuleNotFoundError: torchtrt.testing is not installed: `pip install torchtrt-testing`"
        in done.stderr
    )
