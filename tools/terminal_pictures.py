"""Writes what commands print as SVG into the documentation: ``python -m tools.terminal_pictures``.

Each command runs in a terminal of its own, so a picture has its colors and its width.
"""

from __future__ import annotations

import fcntl
import html
import io
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from dataclasses import dataclass
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from tools.import_graph import ROOT

FOLDER = ROOT / "docs/pictures"
TUTORIAL = ROOT / "docs/tutorial-compile.md"
_RUN_AS_FILE = "from pathlib import Path\nPath('model.py').write_text({0!r})\nexec(compile({0!r}, 'model.py', 'exec'))"
_NOT_COMPARED = re.compile(r"[\d.,#]+|[\s━─]+")


@dataclass(frozen=True)
class Picture:
    """A command whose output the documentation shows.

    Attributes:
        name: The name of its file.
        command: The command, as the title of the picture shows it.
        columns: The width of the terminal.
        program: The Python program that runs in place of a command of the shell.
    """

    name: str
    command: str
    columns: int
    program: str = ""

    @property
    def path(self) -> Path:
        """Returns the file of the picture."""
        return FOLDER / f"{self.name}.svg"

    def printed(self) -> Text:
        """Returns what the command prints in a terminal now.

        Raises:
            subprocess.CalledProcessError: The command fails.
        """
        words = self.command.split()
        command = [str(Path(sys.executable).parent / words[0]), *words[1:]]
        if self.program:
            command = [sys.executable, "-c", _RUN_AS_FILE.format(self.program)]
        return Text.from_ansi(_in_terminal(command, self.columns))

    def svg(self, text: Text) -> str:
        """Returns the picture of a text, with the text as its description."""
        console = Console(record=True, width=self.columns, file=io.StringIO())
        console.print(text, soft_wrap=False)
        # The fonts of rich come from another site.
        layout = re.sub(
            r"<!--.*?-->\n| +@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL
        )
        described = f'role="img"><desc>{html.escape(text.plain)}</desc>'
        svg = console.export_svg(title=self.command, code_format=layout, unique_id=self.name)
        return svg.replace(">", f" {described}", 1)

    def shown(self) -> str:
        """Returns the text that the file shows."""
        drawn = re.search(r"<desc>(.*?)</desc>", self.path.read_text("utf-8"), re.DOTALL)
        return html.unescape(drawn[1]) if drawn else ""


def compared(text: str) -> str:
    """Returns a text without its numbers and widths: times and counts change with each run and each op."""
    return _NOT_COMPARED.sub(" ", text)


def _program(heading: str) -> str:
    """Returns the tutorial's code up to the end of a section. Only its last line prints."""
    before, _, section = TUTORIAL.read_text(encoding="utf-8").partition(f"## {heading}\n")
    blocks = re.findall(
        r"^```python\n(.*?)^```", before + section.partition("\n## ")[0], re.M | re.S
    )
    *lines, last = "".join(blocks).splitlines()
    return "\n".join([*(line for line in lines if not line.startswith("print(")), last])


def pictures() -> list[Picture]:
    """Returns the pictures of the documentation."""
    return [
        Picture("packs", "torchtrt packs", 120),
        Picture("report", "print(partly.report)", 88, _program("4. Leave an op in PyTorch")),
    ]


def _in_terminal(command: list[str], columns: int) -> str:
    """Returns the output of a command in a new terminal, with the codes of its colors."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {key: text for key, text in os.environ.items() if "COLUMNS" not in key}
    environment.update(TERM="xterm-256color", TORCHTRT_TENSORRT="reference")
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=errors, cwd=folder, env=environment
        )
        os.close(theirs)
        output = bytearray()
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # of a terminal that no program has open
                break
            if not part:
                break
            output += part
        os.close(ours)
        if process.wait():
            errors.seek(0)
            raise subprocess.CalledProcessError(
                process.returncode, command, stderr=errors.read().decode()
            )
    return output.decode().replace("\r\n", "\n").strip("\n")


def main() -> None:
    """Writes the pictures."""
    FOLDER.mkdir(exist_ok=True)
    for picture in pictures():
        picture.path.write_text(picture.svg(picture.printed()), encoding="utf-8")


if __name__ == "__main__":
    main()
