"""Any module of a first-party pack may be the first import of a process: the packs are then whole, and in order."""

import json
import pkgutil
import zlib
from importlib.util import find_spec

import pytest

from tests.support.processes import ONLY_TORCH, run_python
from torchtrt.packs import PACKS
from torchtrt.packs.info import FIRST_PARTY_TIER
from torchtrt.packs.scan import scan

PROGRAM = """
import importlib, json, sys

try:
    importlib.import_module(sys.argv[1])
except ModuleNotFoundError as error:
    if error.name.startswith("torchtrt"):
        raise
    sys.exit(f"not installed: {error.name}")

from torchtrt import packs
from torchtrt.contract import qualified_function
from torchtrt.targets import qualified_name

print(json.dumps({
    "problems": list(map(str, packs.problems())),
    "contents": {
        loaded.info.name: [
            *(
                f"{qualified_name(each.target)} {qualified_function(each.support.converter_implementation)}"
                for each in loaded.pack.converters
            ),
            *(
                f"{qualified_name(each.target)} {qualified_function(each.function)}"
                for each in loaded.pack.decompositions
            ),
            *(each.name for each in loaded.pack.lowering_passes),
        ]
        for loaded in packs.loaded_packs()
    },
}))
"""


QUICK = 16
"""``make test`` imports each package, and one of so many other modules. ``make test-all`` does so in new processes."""


def modules_of_packs():
    """Returns the names of all modules of the first-party packs, as parameters."""
    names = []
    packs = [pack.info for pack in scan().packs if pack.info.tier <= FIRST_PARTY_TIER]
    for package in (PACKS.package_name(info.name) for info in packs):
        folder = find_spec(package).submodule_search_locations
        inner = pkgutil.walk_packages(folder, f"{package}.")
        names += [package, *(module.name for module in inner)]
    return [pytest.param(name, marks=() if is_quick(name) else pytest.mark.slow) for name in names]


def is_quick(name):
    """Returns whether ``make test`` imports a module first."""
    return "." not in name or zlib.crc32(name.encode()) % QUICK == 0


def packs_after(first_import):
    """Returns the problems and the contents of the packs of a process with this first import.

    The process may have imported PyTorch, which nearly all modules import before anything else.
    """
    done = run_python(
        *("-W", "error", "-c", PROGRAM, first_import),
        libraries=ONLY_TORCH,
        may_be_fresh=is_quick(first_import),
    )
    if done.returncode and "not installed: " in done.stderr:
        pytest.skip(done.stderr.strip())
    assert 0 == done.returncode, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def expected():
    """The packs of a process that imports torchtrt first."""
    packs = packs_after("torchtrt")
    assert not packs["problems"]
    return packs


@pytest.mark.parametrize("module", modules_of_packs())
def test_any_module_of_a_pack_may_be_the_first_import(module, expected):
    """A test of a pack imports its validators, and nothing else of torchtrt before them."""
    packs = packs_after(module)

    assert packs["problems"] == []
    assert packs["contents"] == expected["contents"]


SAVE = """
import sys, torch, torchtrt

class Model(torch.nn.Module):
    def forward(self, query, mask):
        op = torch.ops.torchtrt_transformers.cached_attention
        return op(query, query, query, mask, None, None, None, 1.0, None).relu()


inputs = torch.rand(1, 2, 3, 4), torch.ones(1, 1, 3, 3, dtype=torch.bool)
name = "torchtrt_transformers::cached_attention"
compiled = torchtrt.compile(Model().eval(), inputs, min_block_size=1, torch_executed_ops={name})
torchtrt.save(compiled, sys.argv[1])
"""
LOAD = """
import sys, torchtrt
compiled = torchtrt.load(sys.argv[1])
print("cached_attention" in str(compiled.graph_module.graph))
"""


def test_a_saved_model_finds_the_operators_that_packs_define(tmp_path):
    """The process that loads it may have loaded no pack yet."""
    pytest.importorskip("torchtrt_converters_transformers")

    run_python("-c", SAVE, tmp_path / "model.pt2", check=True)
    done = run_python("-c", LOAD, tmp_path / "model.pt2", check=True)

    assert "True" == done.stdout.strip()
