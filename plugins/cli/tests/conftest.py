"""The command is tested on sites of its own, as the core is."""

from core.tests.conftest import session_site, site, source_of_pack

__all__ = ["session_site", "site", "source_of_pack"]
