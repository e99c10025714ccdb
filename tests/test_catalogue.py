"""Which pack to install is known without the pack, and the lists of the first-party packs are those of the packs."""

import json

import pytest

from tests.support.environment import Environment
from tools.catalogue import FIRST_PARTY, first_party_packs
from torchtrt_compiler.catalogue import FILE, Catalogue, CataloguedPack
from torchtrt_testing.conformance_checks import catalogue_fault

WITHOUT_LINALG = """
import os
import torch, torchtrt
from torchtrt.errors import FullCompilationError

class Inverse(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.inv(x) + 1

inputs = [torch.eye(3)]
os.environ["COLUMNS"] = "200"  # so that the table breaks no sentence
report = torchtrt.explain(Inverse().eval(), inputs)
print(report.in_torch[0].op, *report.in_torch[0].available)
print("Install torchtrt-converters-linalg." in str(report))
try:
    torchtrt.compile(Inverse().eval(), inputs, require_full_compilation=True)
except FullCompilationError as error:
    print(error)
"""


def test_a_report_names_the_pack_to_install(tmp_path):
    """Of the first-party packs, where one is not installed. The catalogue comes with the compiler."""
    names = (
        "core",
        "kernels",
        "runtime",
        "compiler",
        "reference",
        "blocks",
        "converters-aten-core",
    )
    environment = Environment(tmp_path, [f"torchtrt-{name}" for name in names])

    row, in_table, *error = environment.run(WITHOUT_LINALG).splitlines()

    assert "aten.linalg_inv.default torchtrt-converters-linalg" == row
    assert "True" == in_table
    assert "  aten.linalg_inv.default: install torchtrt-converters-linalg" in error


@pytest.mark.parametrize(
    "folder", first_party_packs(), ids=lambda folder: folder.name.removeprefix("torchtrt_")
)
def test_each_first_party_pack_lists_its_ops(folder):
    """``python -m tools.catalogue`` writes the file."""
    assert not catalogue_fault(first_party_packs()[folder])


def test_the_catalogue_of_first_party_packs_is_all_of_their_lists():
    """``python -m tools.catalogue`` writes it."""
    files = [(folder / FILE).read_text(encoding="utf-8") for folder in first_party_packs()]
    entries = tuple(pack for text in files for pack in Catalogue.from_json(text).packs)

    written = FIRST_PARTY.read_text(encoding="utf-8")
    assert Catalogue().updated(Catalogue(entries)).to_json() == written
    assert {"packs"} == json.loads(written).keys()
    assert 10 < len(entries)
    assert all(isinstance(entry, CataloguedPack) for entry in entries)
