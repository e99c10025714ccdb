"""A sample of all converters builds with TensorRT for RTX, and makes the networks that the reference describes.

``make rtx-builds`` does so with every case, dtype and size.
"""

import pytest
import torch
from torch import nn

import torchtrt
import torchtrt_rtx
from tests.support.modules import Function
from torchtrt_testing.building import BUILT, build, differences, export_case, in_dtype
from torchtrt_testing.pack_cases import families_of

pytestmark = [
    pytest.mark.skipif(
        not torchtrt_rtx.VERSIONS, reason="the wheels of TensorRT for RTX are not installed"
    ),
    pytest.mark.filterwarnings("ignore"),  # of PyTorch's, about programs that it exports
]
REFERENCE = f"reference@{torchtrt_rtx.INTERFACE}"
ALWAYS = (
    "aten.batch_norm.default",
    "aten.batch_norm.default-plain",
    "aten.embedding_bag.padding_idx-matrix",
    "aten.group_norm.default",
    "aten.group_norm.default-one-group",
    "aten.index_add.default",
    "aten.index_reduce.default-mean-without-self",
    "aten.scatter_add.default-many",
    "aten.scatter_reduce.two-many-amax",
)
"""What TensorRT for RTX refused once."""
ONE_SEQUENCE = {
    "lstm": (nn.LSTM(4, 6), (5, 1, 4)),
    "gru-both-ways": (nn.GRU(4, 6, 2, bidirectional=True, batch_first=True), (1, 5, 4)),
    "lstm-projected": (nn.LSTM(4, 6, proj_size=3), (5, 1, 4)),
    "rnn-unbatched": (nn.RNN(4, 6), (5, 4)),
}
"""Recurrent modules, and the shape of one sequence."""
PACKS = ("aten_core", "linalg", "special")
"""The packs whose ops need no library, and no layer that TensorRT for RTX lacks."""
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def sample():
    """Returns the first case of each family and one from its middle, and those that were refused once."""
    cases_of = {}
    for family in (family for pack in PACKS for family in families_of(pack).values()):
        cases = [case for case in family if not case.rejected]
        chosen = [cases[0], cases[len(cases) // 2]]
        chosen += [case for case in cases if case.label in ALWAYS]
        cases_of |= {case.label: case for case in chosen}
    return cases_of


def rows():
    """Yields a test for each dtype of each case of the sample; bfloat16 for those that were refused once.

    ``make test`` builds every second of the other cases in each dtype.
    """
    for index, (label, case) in enumerate(sorted(sample().items())):
        for dtype in DTYPES if label in ALWAYS else DTYPES[:2]:
            name = f"{label}-{str(dtype).removeprefix('torch.')}"
            made = case if dtype is torch.float32 else in_dtype(case, dtype)
            is_slow = label not in ALWAYS and (index + DTYPES.index(dtype)) % 2
            if made is not None:
                yield pytest.param(made, id=name, marks=pytest.mark.slow if is_slow else ())


def test_the_sample_has_what_was_refused_once():
    """A case that is renamed is not forgotten."""
    assert set(ALWAYS) <= set(sample())


@pytest.mark.parametrize("case", list(rows()))
def test_a_case_builds_and_its_network_is_the_references(case):
    """Every layer has the dtypes and shapes that it has in the reference."""
    try:
        exported = export_case(case, case.varies)
    except Exception as error:
        pytest.skip(f"PyTorch does not run it in this dtype: {error}")
    with torchtrt.use_tensorrt(REFERENCE):
        expected = build(exported)
    with torchtrt.use_tensorrt("rtx"):
        actual = build(exported)

    assert actual.outcome == expected.outcome == BUILT
    assert [] == list(differences(actual.networks, expected.networks))


def built_and_verified(model, inputs):
    """Returns for each layer of a model's network its kind and outputs; the values are eager's."""
    with torch.no_grad():
        exported = torch.export.export(model.eval(), inputs)
    with torchtrt.use_tensorrt("rtx"):
        built = build(exported, verify="reference")
    assert BUILT == built.outcome
    layers, _ = built.networks[0]  # the other ones are the reference's
    return layers


def rows_multiplied(layers):
    """Returns how many rows each product of matrices has."""
    return [tensors[0][1][-2] for kind, tensors in layers if kind == "matrix_multiply"]


@pytest.mark.parametrize("name", ONE_SEQUENCE)
def test_a_loop_over_one_sequence_multiplies_two_rows(name):
    """With one row, the builder takes up to minutes."""
    torch.manual_seed(0)
    model, shape = ONE_SEQUENCE[name]

    layers = built_and_verified(model, (torch.rand(shape),))

    assert {2} == set(rows_multiplied(layers)) - {5}  # the product before the loop has all steps


def test_a_system_of_equations_has_no_products_of_one_row():
    """With a chain of them, the builder takes minutes."""
    torch.manual_seed(0)
    inputs = torch.rand(4, 4) + 4 * torch.eye(4), torch.rand(4, 2)

    layers = built_and_verified(Function(torch.linalg.solve), inputs)

    assert 1 not in rows_multiplied(layers)
