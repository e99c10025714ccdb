"""``python -m torchtrt``: the same as the ``torchtrt`` command, which is a distribution of its own."""

import sys
from importlib.metadata import PackageNotFoundError, distribution

# Other distributions' metadata, which may be broken, is not read: this command helps to find that.
try:
    _entry_points = distribution("torchtrt-cli").entry_points
except PackageNotFoundError:
    sys.exit("torchtrt: The command is not installed: `pip install torchtrt-cli` brings it.")
(_command,) = _entry_points.select(group="console_scripts", name="torchtrt")
sys.exit(_command.load()())
