"""The page that lists every op is what the registry says."""

import runpy
from pathlib import Path


def test_the_page_of_all_ops_is_current():
    """It is generated: after a change of a converter, write it again with ``python -m tests.ops_page``."""
    generator = runpy.run_path(str(Path(__file__).with_name("ops_page.py")))

    assert generator["page"]() == generator["PAGE"].read_text()
