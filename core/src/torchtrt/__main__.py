"""``python -m torchtrt``: the same as the ``torchtrt`` command."""

import sys

from torchtrt.cli import main

sys.exit(main())
