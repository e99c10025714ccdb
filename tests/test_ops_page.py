"""The page that lists every op is what the registry says."""

from pathlib import Path

from tests.support.processes import run_python

ROOT = Path(__file__).parents[1]


def test_the_page_of_all_ops_is_current():
    """It is generated: after a change of a converter, write it again with ``python -m tools.ops_page``."""
    program = "from tools import ops_page; print(ops_page.page() == ops_page.PAGE.read_text())"

    # In a process of its own: other tests register converters.
    done = run_python("-c", program, cwd=ROOT, check=True)

    assert "True" == done.stdout.strip()
