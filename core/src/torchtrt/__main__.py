"""``python -m torchtrt``: the same as the ``torchtrt`` command, which is a distribution of its own."""

import sys
from importlib.metadata import entry_points

_commands = tuple(entry_points(group="console_scripts", name="torchtrt"))
if not _commands:
    sys.exit("torchtrt: The command is not installed: `pip install torchtrt-cli` brings it.")
sys.exit(_commands[0].load()())
