"""The site's page of all ops lists what the registry has."""

from pathlib import Path

from tests.support.processes import run_python

ROOT = Path(__file__).parents[1]
PROGRAM = """
import re

from docs.op_tables import op_tables
from torchtrt.registry import DYNAMO_CONVERTERS
from torchtrt.targets import qualified_name

found = {*DYNAMO_CONVERTERS.unique_targets(), *DYNAMO_CONVERTERS.decompositions()}
lines = list(op_tables())
listed = {line.split("`")[1] for line in lines if line.startswith("| `")}
assert listed == {qualified_name(target) for target in found}
links = {link for line in lines for link in re.findall(r"\\]\\(\\.\\./(.*?)\\)", line)}
print(*links, sep="\\n")
"""


def test_every_op_is_listed_with_a_link_to_its_code():
    """A program of the site's build makes the tables, so that no change of a converter leaves them behind."""
    # In a process of its own: other tests register converters.
    done = run_python("-c", PROGRAM, cwd=ROOT, check=True)

    links = done.stdout.split()
    assert len(links) > 20
    assert all((ROOT / link).is_file() for link in links)
