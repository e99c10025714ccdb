"""The programs in int8 that the benchmark writes have the structure that torchao writes."""

import warnings

import pytest
import torch

from tests.benchmarks._int8 import quantize, without_batch_norms
from tests.benchmarks.quantized import TINY

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("torchao")
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    from torchtrt_converters_quantization.pt2e import TensorRTQuantizer

pytestmark = pytest.mark.filterwarnings("ignore")


def structure(program):
    """Returns what the results of a program are computed by: ops, arguments, and the kinds of weights."""
    names = dict(zip(program.graph.find_nodes(op="placeholder"), range(1000), strict=False))
    weights = program.state_dict | program.constants
    targets = program.graph_signature.inputs_to_parameters
    targets = targets | program.graph_signature.inputs_to_buffers
    targets = targets | program.graph_signature.inputs_to_lifted_tensor_constants
    numbers = {}

    def of(value):
        if isinstance(value, torch.fx.Node):
            return numbers[value]
        if isinstance(value, (list, tuple)):
            return tuple(map(of, value))
        return f"{value:.2g}" if isinstance(value, float) else str(value)

    for node in program.graph.nodes:
        if node.op == "placeholder":
            weight = weights.get(targets.get(node.name))
            is_input = weight is None
            numbers[node] = "input" if is_input else (str(weight.dtype), tuple(weight.shape))
        elif node.op == "call_function" and "_assert" not in str(node.target):
            kwargs = tuple((name, of(value)) for name, value in sorted(node.kwargs.items()))
            numbers[node] = hash((str(node.target), of(node.args), kwargs))
    assert names
    return of(program.graph.output_node().args)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "float16"])
@pytest.mark.parametrize("name", TINY)
def test_a_program_is_quantized_as_torchao_quantizes_it(name, dtype):
    """The same ops on the same values, with the same scales to two digits; weights are int8."""
    make, inputs = TINY[name]
    torch.manual_seed(0)
    model = without_batch_norms(make().eval()).eval().to(dtype)
    operands = tuple(
        input_.to(dtype) if input_.is_floating_point() else input_ for input_ in inputs(2)
    )
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad():
            program = torch.export.export(model, operands, strict=False)
            prepared = prepare_pt2e(program.module(), TensorRTQuantizer(matrix_products=False))
            prepared(*operands)
            theirs = torch.export.export(convert_pt2e(prepared), operands, strict=False)
            ours = quantize(program, operands)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)

    assert structure(theirs) == structure(ours)
    assert torch.int8 in {value.dtype for value in ours.state_dict.values()}
    expected = theirs.module()(*operands)
    assert (ours.module()(*operands) - expected).norm() <= 0.01 * expected.norm()
