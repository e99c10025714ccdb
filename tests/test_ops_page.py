"""The page that lists every op is what the registry says."""

from tests import ops_page


def test_the_page_of_all_ops_is_current():
    """It is generated: after a change of a converter, write it again with ``python -m tests.ops_page``."""
    assert ops_page.page() == ops_page.PAGE.read_text()
