"""Packs under test are installed on sites of their own, as the core's are."""

from core.tests.conftest import session_site, site, source_of_pack

__all__ = ["session_site", "site", "source_of_pack"]
