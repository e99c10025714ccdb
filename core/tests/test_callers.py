"""A warning names the innermost line of the program, however it came to torchtrt."""

from __future__ import annotations

import _thread
import contextlib
import functools
import threading
import types
import warnings
from collections.abc import Callable

import pytest

from torchtrt.callers import calling_frame, skip_callers, warn_caller


def in_package(name: str | None, inner: Callable[[], object]) -> Callable[[], object]:
    """Returns a function of a package, or of generated code, that calls another one."""
    module = {"inner": inner, **({} if name is None else {"__name__": name})}
    exec(compile("def outer():\n    return inner()", f"<{name}>", "exec"), module)
    return module["outer"]


def warned_files(call: Callable[[], object]) -> list[str]:
    """Returns the file that each warning of a call names."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [warning.filename for warning in caught]


def warn() -> None:
    warn_caller("of this line")


@pytest.mark.parametrize(
    "package",
    ["torchtrt", "torchtrt_compiler.api", "torchtrt_converters_vision", "torch._dynamo", "pluggy._callers", None],
)  # fmt: skip
def test_lines_between_are_left_out(package: str | None) -> None:
    """Of torchtrt and all packs, of PyTorch, of pluggy, and of code that PyTorch generates."""
    inner = in_package("torchtrt.somewhere", warn)

    assert [__file__] == warned_files(in_package(package, inner))


@pytest.mark.parametrize("package", ["torchtrtx", "torchvision.models", "__main__"])
def test_the_innermost_line_outside_is_named(package: str) -> None:
    """A name that only begins like one of ours is another package."""
    inner = in_package("torchtrt.somewhere", in_package("torch.nn", warn_caller_of_ours))

    assert [f"<{package}>"] == warned_files(in_package(package, inner))


warn_caller_of_ours = in_package("torchtrt_runtime", functools.partial(warn_caller, "of the line"))


def test_a_library_that_calls_torchtrt_for_a_program_is_left_out() -> None:
    """The pack for the library declares it."""
    call = in_package("some_library.loops", warn_caller_of_ours)
    assert ["<some_library.loops>"] == warned_files(call)

    skip_callers("some_library")

    assert [__file__] == warned_files(call)


def test_lines_of_the_standard_library_between_are_left_out() -> None:
    """A context manager that warns at the start of its block, and a function with one name for several types."""

    @contextlib.contextmanager
    def block():
        warn_caller_of_ours()
        yield

    def enter() -> None:
        with in_package("torchtrt_runtime", block)():
            pass

    assert [__file__] == warned_files(enter)
    assert [__file__] == warned_files(functools.singledispatch(lambda _: warn_caller_of_ours()).__get__(0))  # fmt: skip


def test_a_thread_without_a_line_of_the_program_names_its_outermost_line() -> None:
    """As one that PyTorch starts, below which there is no Python."""
    done, frames = threading.Event(), []
    look = in_package("torch.autograd", in_package("torchtrt_runtime", calling_frame))

    def note() -> None:
        frames.append(look())
        done.set()

    started = types.FunctionType(note.__code__, {"__name__": "torch"}, closure=note.__closure__)
    _thread.start_new_thread(started, ())

    assert done.wait(10)
    assert ["note"] == [frame.f_code.co_name for frame in frames]


def test_a_warning_is_shown_once_for_a_line_and_may_be_an_error() -> None:
    """As one of ``warnings.warn``: by its category, and by the module that it names."""

    def twice() -> None:
        for _ in range(2):
            warn_caller_of_ours()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        twice()
    assert 1 == len(caught)
    assert (UserWarning, "of the line") == (caught[0].category, str(caught[0].message))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", module=__name__)
        with pytest.raises(UserWarning, match="of the line"):
            twice()
