"""The operator of saved models is registered once PyTorch is there, and torchtrt itself does not import it."""

import pytest

from tests.support.processes import run_python

HAS_OPERATOR = "import torch; assert hasattr(torch.ops.torchtrt, 'execute_engine')"


def run(program: str) -> None:
    """Runs a program in a process that has imported nothing."""
    done = run_python("-c", program, libraries=())
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("imports", ["import torch, torchtrt", "import torchtrt, torch"])
def test_the_operator_is_there_whichever_is_imported_first(imports: str) -> None:
    """``torch.export.load`` needs nothing else of torchtrt."""
    run(f"{imports}; {HAS_OPERATOR}")


def test_importing_torchtrt_does_not_import_pytorch() -> None:
    """Commands that help where PyTorch is broken are part of it, and each program that needs PyTorch imports it."""
    run("import sys, torchtrt; assert 'torch' not in sys.modules")


def test_packs_are_an_attribute_of_the_package() -> None:
    """Programs write ``torchtrt.packs.load_packs()`` after ``import torchtrt``."""
    run("import torchtrt; assert torchtrt.packs.load_packs and torchtrt.errors.TorchTRTError")


def test_an_import_that_failed_may_be_repeated(tmp_path) -> None:
    """The operator follows the import that succeeds, and the module keeps its own loader."""
    (tmp_path / "slow.py").write_text("import sys\nif not sys.argv: raise ImportError('broken')\n")
    (tmp_path / "after.py").write_text("import slow\nslow.followed = True\n")

    run(f"""
import inspect, sys
sys.path.insert(0, {str(tmp_path)!r})
from torchtrt.lazy import import_after
import_after("slow", "after")
arguments, sys.argv = sys.argv, []
try:
    import slow
except ImportError as error:
    assert str(error) == "broken"
assert "after" not in sys.modules
sys.argv = arguments
import slow
assert slow.followed
assert "raise ImportError" in inspect.getsource(slow)
""")


def test_a_finder_of_another_program_is_asked(tmp_path) -> None:
    """Editable installations and frozen programs have finders of their own."""
    (tmp_path / "elsewhere.py").write_text("value = 1\n")
    (tmp_path / "after.py").write_text("import slow\nslow.followed = True\n")

    run(f"""
import importlib.util, sys
sys.path.insert(0, {str(tmp_path)!r})
from torchtrt.lazy import import_after

class Editable:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "slow":
            return importlib.util.spec_from_file_location(name, {str(tmp_path / "elsewhere.py")!r})

sys.meta_path.append(Editable)
import_after("slow", "after")
import slow
assert slow.value == 1 and slow.followed
""")
