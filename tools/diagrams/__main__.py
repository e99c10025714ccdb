"""Draws the Mermaid diagrams of the pages as SVG: ``python -m tools.diagrams``.

The pages keep the source, which GitHub draws. The site shows the SVG, so it loads no program from elsewhere, and
readers without a network see the diagrams. Drawing needs npm and Chromium, whose path ``CHROMIUM`` may name.
"""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from docs.drawings import FENCE, FOLDER, drawing_path
from tools.prose import installed_packages

SETTINGS = """{
    startOnLoad: false, htmlLabels: false, flowchart: {htmlLabels: false}, theme: "base",
    fontFamily: "sans-serif", deterministicIds: true,
    themeVariables: {fontSize: "14px"},
}"""
STYLE = """
#ID text { fill: var(--md-default-fg-color, #000); text-anchor: middle; }
#ID .node :is(rect, polygon, path) {
    fill: var(--md-code-bg-color, #f5f5f5); stroke: var(--md-primary-fg-color, #00796b);
}
#ID .cluster rect { fill: none; stroke: var(--md-default-fg-color--light, #888); }
#ID .cluster-label text { text-anchor: start; }
#ID .flowchart-link { fill: none; stroke: var(--md-default-fg-color--light, #888); }
#ID .edge-pattern-dotted { stroke-dasharray: 3; }
#ID .marker { fill: var(--md-default-fg-color--light, #888); }
#ID .edgeLabel rect { fill: var(--md-default-bg-color, #fff); }
"""


def draw(source: str, name: str) -> str:
    """Returns a diagram as an SVG whose colors follow the theme of the page.

    Args:
        source: The diagram in Mermaid's language.
        name: The ID of the SVG, unique on its page.
    """
    script = installed_packages(Path(__file__).parent) / "mermaid/dist/mermaid.min.js"
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "page.html")
        page.write_text(
            f"""<meta charset="utf-8"><pre id="source">{html.escape(source)}</pre><div id="drawing"></div>
            <script src="{script.as_uri()}"></script><script>
            mermaid.initialize({SETTINGS});
            mermaid.render("{name}", document.getElementById("source").textContent).then(
                ({{svg}}) => document.getElementById("drawing").innerHTML = svg);
            </script>""",
            encoding="utf-8",
        )
        dump = subprocess.run(
            [*chromium(Path(folder, "profile")), "--dump-dom", page.as_uri()],
            check=True,
            capture_output=True,
            text=True,
        )
    drawing = re.search(r'<div id="drawing">(<svg.*?</svg>)</div>', dump.stdout, re.DOTALL)
    assert drawing, f"Chromium drew no diagram: {dump.stderr}"
    own_style = f"<style>{STYLE.replace('ID', name)}</style>"
    svg = re.sub(r"<style>.*?</style>", own_style, drawing[1], count=1, flags=re.DOTALL)
    return re.sub(r"\s*\n\s*", "\n", svg) + "\n"


def chromium(profile: Path) -> list[str]:
    """Returns the command of a Chromium without a window, which asks no other machine.

    Args:
        profile: A new folder for its settings.
    """
    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or "chromium-browser"
    still = ("background-networking", "component-update", "sync", "gpu", "quic")
    return [
        *(program, "--headless", "--no-sandbox", "--no-first-run", f"--user-data-dir={profile}"),
        *("--virtual-time-budget=5000", *(f"--disable-{part}" for part in still)),
    ]


def main() -> None:
    """Draws the diagrams of all pages, and removes drawings that no page shows."""
    wanted = {
        drawing_path(page.stem, source): source
        for page in FOLDER.parent.glob("*.md")
        for source in FENCE.findall(page.read_text(encoding="utf-8"))
    }
    FOLDER.mkdir(exist_ok=True)
    for path in {*FOLDER.glob("*.svg")} - set(wanted):
        path.unlink()
    for path, source in wanted.items():
        path.write_text(draw(source, path.stem), encoding="utf-8")


if __name__ == "__main__":
    main()
