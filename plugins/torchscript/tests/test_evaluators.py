"""What TorchScript computes without tensors is computed when the model is compiled, and with PyTorch's result."""

import pytest
import torch

import torchtrt_torchscript as torchscript
from torchtrt_torchscript.graph_runner import STRUCTURE
from torchtrt_torchscript.node_evaluators import EVALUATORS, NODE_EVALUATORS

from .ir import T, Typed, function_of, graph_of, tensors_of
from .test_schemas import names_in

X = T("2 3")
CPU = Typed("Device", "cpu")
FILL = (None, None, CPU, None)

NUMBERS = {
    **{
        f"aten::{name}.{kind}": (pair, "bool")
        for name in ("eq", "ne", "lt", "gt", "le", "ge")
        for kind, pair in (
            ("int", (2, 3)),
            ("float", (2.5, 2.5)),
            ("int_float", (2, 2.5)),
            ("float_int", (2.5, 2)),
        )
    },
    "aten::eq.bool": ((True, False), "bool"),
    "aten::ne.bool": ((True, False), "bool"),
    "aten::eq.str": (("a", "a"), "bool"),
    "aten::pow.int": ((2, 3), "float"),
    "aten::pow.float": ((2.5, 3.0), "float"),
    "aten::pow.int_float": ((2, 0.5), "float"),
    "aten::pow.float_int": ((2.5, 2), "float"),
    "aten::__and__.int": ((6, 3), "int"),
    "aten::__and__.bool": ((True, False), "bool"),
    "aten::__or__.int": ((6, 3), "int"),
    "aten::__or__.bool": ((True, False), "bool"),
    "aten::__xor__.int": ((6, 3), "int"),
    "aten::__xor__.bool": ((True, True), "bool"),
    "aten::__round_to_zero_floordiv": ((-7, 2), "int"),
    "aten::neg.int": ((3,), "int"),
    "aten::add.int": ((2, 3), "int"),
    "aten::add.float": ((2.5, 3.0), "float"),
    "aten::add.str": (("a", "b"), "str"),
    "aten::mul.int": ((2, 3), "int"),
    "aten::mul.float": ((2.5, 3.0), "float"),
    "aten::sub.int": ((2, 3), "int"),
    "aten::sub.float": ((2.5, 3.0), "float"),
    "aten::Bool.int": ((2,), "bool"),
    "aten::Bool.float": ((0.0,), "bool"),
    "aten::Float.Scalar": ((3,), "float"),
    "aten::Float.int": ((3,), "float"),
    "aten::Float.bool": ((True,), "float"),
    "aten::Int.Scalar": ((3.7,), "int"),
    "aten::Int.bool": ((True,), "int"),
    "aten::Int.float": ((-3.7,), "int"),
    "aten::__not__": ((True,), "bool"),
    "aten::__is__": ((None, None), "bool"),
    "aten::__isnot__": ((None, None), "bool"),
    "aten::div.int": ((7, 2), "float"),
    "aten::div.float": ((7.0, 2.0), "float"),
    "aten::floordiv.int": ((-7, 2), "int"),
    "aten::floordiv.float": ((-7.0, 2.0), "float"),
    "aten::remainder.int": ((-7, 2), "int"),
    "aten::floor.int": ((7,), "int"),
    "aten::floor.float": ((-7.5,), "int"),
    "aten::ceil.float": ((-7.5,), "int"),
    "aten::sqrt.int": ((9,), "float"),
    "aten::sqrt.float": ((9.0,), "float"),
    "aten::__range_length": ((1, 10, 3), "int"),
    "aten::__derive_index": ((2, 1, 3), "int"),
    "prim::min.int": ((2, 3), "int"),
    "prim::min.float": ((2.5, 3.0), "float"),
    "prim::min.int_float": ((2, 3.5), "float"),
    "prim::min.float_int": ((2.5, 3), "float"),
    "prim::min.self_int": (([3, 1, 2],), "int"),
    "prim::max.int": ((2, 3), "int"),
    "prim::max.float": ((2.5, 3.0), "float"),
    "prim::max.int_float": ((2, 3.5), "float"),
    "prim::max.float_int": ((2.5, 3), "float"),
    "prim::max.self_int": (([3, 1, 2],), "int"),
    "aten::len.t": (([3, 1, 2],), "int"),
    "aten::__getitem__.t": (([3, 1, 2], -1), "int"),
    "aten::slice.t": (([3, 1, 2, 5], 1, None, 2), "int[]"),
    "aten::append.t": (([3, 1], 2), "int[]"),
    "aten::add_.t": (([3, 1], [2]), "int[]"),
    "aten::list.t": (([3, 1],), "int[]"),
    "aten::format": (("{} of {}", 1, 2), "str"),
    "aten::size": ((X,), "int[]"),
    "aten::size.int": ((X, -1), "int"),
    "aten::numel": ((X,), "int"),
    "aten::dim": ((X,), "int"),
    "aten::is_floating_point": ((X,), "bool"),
    "prim::dtype": ((X,), "int"),
}
"""Calls whose result is no tensor: arguments and the type of the result."""
TENSORS = {
    "aten::zeros": ([2, 3], *FILL),
    "aten::ones": ([2, 3], 3, None, CPU, None),
    "aten::new_zeros": (X, [2, 2], *FILL),
    "aten::new_ones": (X, [2, 2], *FILL),
    "aten::zeros_like": (X, *FILL, None),
    "aten::ones_like": (X, *FILL, None),
    "aten::fill_": (X, 2),
    "aten::full": ([2, 3], 1.5, *FILL),
    "aten::full_like": (X, 2, *FILL, None),
    "aten::tensor": ([1, 2, 3], None, CPU, False),
    "aten::arange": (5, *FILL),
    "aten::arange.start": (1, 5, *FILL),
    "aten::arange.start_step": (1.0, 5.0, 0.5, *FILL),
    "aten::clone": (X, None),
    "aten::copy_": (X, T("3"), False),
    "prim::NumToTensor": (3,),
}
"""Calls whose result is a tensor: their arguments."""


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_list_or_string_is_pytorchs(name):
    """The result is the same value of the same type."""
    args, kind = NUMBERS[name]
    graph = graph_of(name, args, kind)
    inputs = tensors_of(args)

    actual = torchscript.open_graph(graph)(*inputs)

    expected = function_of(graph)(*inputs)
    assert (type(expected), expected) == (type(actual), actual)


@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_made_of_numbers_is_pytorchs(name):
    """Values and dtype."""
    graph = graph_of(name, TENSORS[name])
    inputs = tensors_of(TENSORS[name])

    actual = torchscript.open_graph(graph)(*(tensor.clone() for tensor in inputs))

    expected = function_of(graph)(*(tensor.clone() for tensor in inputs))
    torch.testing.assert_close(actual, expected)
    assert expected.dtype is actual.dtype


def test_everything_that_torch_tensorrt_evaluates_is_evaluated():
    """By an evaluator, by the structure of the graph, or because PyTorch has it as an operator."""
    evaluated = EVALUATORS.keys() | NODE_EVALUATORS.keys() | STRUCTURE.keys()
    for name in names_in("torch_tensorrt_evaluators.txt"):
        kind = name.partition(".")[0]
        assert kind in evaluated or torch._C._jit_get_schemas_for_operator(kind), name
