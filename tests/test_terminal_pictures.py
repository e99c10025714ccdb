"""The pictures of the terminal in the documentation."""

import re

import pytest

from tools.terminal_pictures import FOLDER, ROOT, compared, pictures


@pytest.mark.parametrize("picture", pictures(), ids=lambda picture: picture.name)
def test_a_picture_shows_what_its_command_prints(picture):
    """Apart from times, counts and widths. ``python -m tools.terminal_pictures`` writes it anew."""
    assert compared(picture.printed().plain) == compared(picture.shown())


def test_each_picture_is_on_a_page_and_loads_nothing():
    """Of the README, or of the documentation."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    shown = {
        (page.parent / path).resolve()
        for page in pages
        for path in re.findall(r"!\[.*?\]\(([^)]*pictures/[^)]*)\)", page.read_text("utf-8"))
    }

    assert shown == set(FOLDER.glob("*.svg")) == {picture.path for picture in pictures()}
    assert [] == [path for path in shown if re.search(r"url\((?!#)|@import|href", path.read_text())]
