"""The documentation as a site."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.drawings import FENCE, FOLDER, drawing_path

ROOT = Path(__file__).parents[1]
PAGES = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"README"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Builds the site, which checks links, anchors and the navigation: any warning fails."""
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    command = [
        *(sys.executable, "-m", "mkdocs", "build"),
        *("--strict", "--quiet", "--site-dir", folder),
    ]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    assert 0 == done.returncode, done.stderr
    return folder


def test_the_site_has_every_page_and_no_program(site):
    """The hooks of the site are beside its pages, and stay outside."""
    assert (site / "index.html").is_file()
    assert PAGES <= {path.parent.name for path in site.glob("*/index.html")}
    assert not list(site.rglob("*.py"))


def test_the_first_page_links_every_page():
    """So that a reader finds each page by its task."""
    home = (ROOT / "docs/README.md").read_text(encoding="utf-8")

    assert [] == sorted(page for page in PAGES if f"]({page}.md)" not in home)


def test_the_site_shows_the_drawing_of_each_diagram(site):
    """``python -m tools.diagrams`` draws them: Mermaid's own program would come from elsewhere."""
    drawings = {
        drawing_path(page.stem, source)
        for page in (ROOT / "docs").glob("*.md")
        for source in FENCE.findall(page.read_text(encoding="utf-8"))
    }

    assert drawings == set(FOLDER.glob("*.svg"))
    for drawing in drawings:
        page = (site / drawing.stem.rpartition("-")[0] / "index.html").read_text(encoding="utf-8")
        assert f'<svg id="{drawing.stem}"' in page
        assert "mermaid" not in re.findall(r'class="?([\w-]+)', page)


def test_a_page_loads_nothing_from_elsewhere(site):
    """The site works without internet access, and no other site learns who reads it."""
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe)[^>]*? src=\"?([^\s\">]+)", text)
        loaded += re.findall(r"<link[^>]*? rel=\"?stylesheet\"?[^>]*? href=\"?([^\s\">]+)", text)
        loaded += re.findall(r"<link[^>]*? href=\"?([^\s\">]+)[^>]*? rel=\"?stylesheet", text)

        assert loaded, page
        assert [] == [entry for entry in loaded if entry.startswith(("http", "//"))], page


def test_names_in_tables_break_at_their_joints_only(site):
    """The style sheet forbids breaks in code, and the page allows them between the parts of a name."""
    ops = (site / "ops/index.html").read_text(encoding="utf-8")
    style = (site / "stylesheets/site.css").read_text(encoding="utf-8")

    assert "<td><code>aten.<wbr>gelu.<wbr>default</code></td>" in ops
    narrow = '_<wbr class="narrow">'
    gather = f"_c10d{narrow}functional.<wbr>all_<wbr>gather_<wbr>into_<wbr>tensor"
    assert f"<code>{gather}.<wbr>default</code>" in ops
    assert "<code>fake_<wbr>quantize_<wbr>per_<wbr>channel_<wbr>affine</code>" in ops
    assert "word-break: normal" in style
    assert "stylesheets/site.css" in ops
