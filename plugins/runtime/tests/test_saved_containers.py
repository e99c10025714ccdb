"""What a saved model takes and returns: containers, named tuples, and what no file can keep."""

from __future__ import annotations

import dataclasses
import enum
from collections import OrderedDict, defaultdict, deque, namedtuple
from typing import NamedTuple

import pytest
import torch
from torch.utils import _pytree as pytree

import torchtrt
from plugins.runtime.tests.saved_models import function, saved
from torchtrt.errors import (
    UnsupportedProgramError,
)


class Pair(NamedTuple):
    """A named tuple that is not registered with PyTorch."""

    first: torch.Tensor
    second: torch.Tensor


class Level(enum.Enum):
    """Keys of a dictionary."""

    LOW = 0
    HIGH = 1


@pytest.mark.parametrize(
    "nest",
    [
        lambda m, x: Pair(x + 1, x),
        lambda m, x: {"a": [Pair(x + 1, (x, Pair(x, x * 2)))]},
        lambda m, x: torch.max(x, 0),
        lambda m, x: (x.sort(), {"top": x.topk(2)}),
        lambda m, x: OrderedDict(b=x, a=x + 1),
        lambda m, x: defaultdict(list, {1: x, 2.5: [x]}),
        lambda m, x: deque([x, x + 1], maxlen=5),
        lambda m, x: {Level.LOW: x, Level.HIGH: x + 1},
        lambda m, x: {None: x, True: x + 1, "1": x, 3: x},
        lambda m, x: (x, 3, 2.5, True, None, x.shape[0]),
    ],
)
def test_a_loaded_model_returns_the_containers_that_the_model_does(nest, tmp_path):
    """Named tuples by their fields; for PyTorch they are tuples."""
    model, x = function(nest), torch.rand(3)
    path = saved(model, [x], tmp_path)
    expected, actual = model(x), torchtrt.load(path)(x)

    assert pytree.tree_structure(expected) == pytree.tree_structure(actual)
    torch.testing.assert_close(pytree.tree_leaves(actual), pytree.tree_leaves(expected))
    assert type(expected) is type(actual)
    assert len(pytree.tree_leaves(expected)) == len(
        pytree.tree_leaves(torch.export.load(path).module()(x))
    )


def test_a_model_takes_named_tuples(tmp_path):
    """As arguments, too."""
    model = function(lambda m, pair: pair.first + pair.second)
    pair = Pair(torch.rand(3), torch.rand(3))
    path = saved(model, [pair], tmp_path)

    torch.testing.assert_close(torchtrt.load(path)(pair), model(pair))


def test_a_container_of_a_library_that_is_not_imported_is_an_error_that_names_it(tmp_path, fresh):
    """As the outputs of transformers are."""
    pytest.importorskip("transformers")
    from transformers.modeling_outputs import BaseModelOutput

    model = function(lambda m, x: BaseModelOutput(last_hidden_state=x + 1))
    path = saved(model, [torch.rand(3)], tmp_path)
    code = (
        "import sys, torchtrt\n"
        "try: torchtrt.load(sys.argv[1])\n"
        "except torchtrt.errors.UnreadableFileError as error: print(error)"
    )

    assert "transformers.modeling_outputs.BaseModelOutput" in fresh(code, path)


def test_a_named_tuple_of_a_module_that_is_not_imported_is_an_error_that_names_it(tmp_path, fresh):
    """Loading imports nothing."""
    path = saved(function(lambda m, x: Pair(x + 1, x)), [torch.rand(3)], tmp_path)
    code = (
        "import sys, torchtrt\n"
        "try: torchtrt.load(sys.argv[1])\n"
        "except torchtrt.errors.UnreadableFileError as error: print(error)"
    )

    assert fresh(code, path).startswith(
        f"The model takes or returns the named tuple '{__name__}:Pair', which is not known here."
    )


class Local:
    """Where the name of a named tuple does not lead to it."""

    Pair = namedtuple("Hidden", ["first", "second"])


@pytest.mark.parametrize(
    ("nest", "message"),
    [
        (lambda m, x: Local.Pair(x, x), "named tuple '.*Hidden', which cannot be found"),
        (lambda m, x: (x, "text"), "returns the text 'text', .* Return tensors and numbers"),
        (lambda m, x: {"a": {(1, 2): x}}, r"\(1, 2\).* Use tuples, lists, dictionaries whose keys"),
        (
            lambda m, x: {torch.float32: x},
            r"torch\.float32.* Use tuples, lists, dictionaries whose",
        ),
        (lambda m, x: defaultdict(OrderedDict, {1: x}), "defaultdict.* would import a module"),
    ],
)
def test_what_could_not_be_loaded_is_not_saved(nest, message, tmp_path):
    """The error says what to return instead."""
    with pytest.raises(UnsupportedProgramError, match=message):
        saved(function(nest), [torch.rand(3)], tmp_path)
    assert [] == list(tmp_path.iterdir())


@dataclasses.dataclass
class Nameless:
    """A dataclass that files have no name for."""

    first: torch.Tensor
    second: torch.Tensor


torch.export.register_dataclass(Nameless)


@pytest.mark.parametrize(
    "nest", [lambda m, x: Nameless(x, x + 1), lambda m, x: {"a": [Nameless(x, x * 2)]}]
)
def test_a_registered_class_without_a_name_for_files_is_told_the_argument(nest, tmp_path):
    """It is registered already: only the name is missing."""
    message = (
        "a container of the class Nameless, which is registered with PyTorch without a name for files. Give the "
        "registration the argument serialized_type_name="
    )
    with pytest.raises(UnsupportedProgramError, match=message):
        saved(function(nest), [torch.rand(3)], tmp_path)
    assert not list(tmp_path.iterdir())
