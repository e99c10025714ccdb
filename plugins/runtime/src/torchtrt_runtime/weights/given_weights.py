"""Weights that someone gives to a compiled model: their names, checks of them, and what follows from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule
from torch.nn.parameter import is_lazy

from torchtrt.errors import RefitError, kind_of
from torchtrt.graphs.nodes import writes
from torchtrt_runtime.dtype_names import dtype_to_json
from torchtrt_runtime.processes.groups import is_distributed
from torchtrt_runtime.torch_internals import is_fake, is_traceable_wrapper_subclass
from torchtrt_runtime.weights.recipe import Recipe, decode_tensor


def inner_tensors(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns tensors by name, and of a subclass that wraps tensors those inside: ``"weight.scale"``.

    A ``DTensor`` stands for its local part, which has the name of the whole in a program.
    """
    found: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        wrapper: Any = tensor
        if is_distributed(wrapper):
            wrapper = wrapper.to_local()
        is_wrapper: bool = is_traceable_wrapper_subclass(wrapper)
        if is_wrapper and not wrapper.is_nested:
            names = wrapper.__tensor_flatten__()[0]
            found |= inner_tensors({f"{name}.{each}": getattr(wrapper, each) for each in names})
        else:
            found[name] = wrapper
    return found


def named_weights(new_weights: Any, known: Collection[str]) -> dict[str, torch.Tensor]:
    """Returns weights by the model's names for them.

    Args:
        new_weights: What they come as.
        known: The names of the weights that a model was compiled with: other plain attributes are no weights.
    """
    if isinstance(new_weights, torch.nn.Module):
        attributes = {
            f"{path}.{name}" if path else name: value
            for path, module in new_weights.named_modules(remove_duplicate=False)
            for name, value in vars(module).items()
            if isinstance(value, torch.Tensor)
        }
        return {
            **{name: attributes[name] for name in attributes if name in known},
            **dict(new_weights.named_parameters(remove_duplicate=False)),
            **dict(new_weights.named_buffers(remove_duplicate=False)),
        }
    if isinstance(new_weights, ExportedProgram):
        constants = new_weights.constants
        return {
            **{name: constants[name] for name in constants if name in known},
            **new_weights.state_dict,
        }
    if isinstance(new_weights, Mapping):
        return dict(new_weights)
    raise RefitError(
        "New weights come as a model, an exported program or a state dict of tensors, not as a "
        f"{type(new_weights).__name__}."
    )


def with_tied_names(
    given: Mapping[str, torch.Tensor], recipes: Mapping[str, Any]
) -> dict[str, torch.Tensor]:
    """Returns weights under all names of those that a model has under several: one name stands for all."""
    every = dict(given)
    for names in recipes["shared"]:
        tied = [given[name] for name in names if name in given]
        every.update({name: tied[0] for name in names if tied and name not in given})
    return every


class GivenWeights:
    """The weights of a model after a refit: those that are given, and the others as they were.

    Args:
        given: Tensors by the model's names for them.
        recipes: What was recorded of the model's weights.
        current: Other weights whose values are known.

    Raises:
        RefitError: A given weight does not fit the model.
    """

    def __init__(
        self,
        given: Mapping[str, torch.Tensor],
        recipes: Mapping[str, Any],
        current: Mapping[str, torch.Tensor],
    ) -> None:
        self.recipes = recipes
        self.known = recipes["weights"]
        self.given = dict(given)
        self._current = current
        self._check_given()

    def __getitem__(self, name: str) -> torch.Tensor:
        if name in self.given:
            return self.given[name]
        if name in self._current and name in self.known:
            return self._current[name]
        default = self.known[name]["default"] if name in self.known else None
        if default is None:
            raise unfit([f"{name!r} is missing"])
        return decode_tensor(default)

    def check_complete(self) -> None:
        """Raises a ``RefitError`` that names each weight without a value."""
        self.check_present(self.known)

    def check_present(self, names: Iterable[str]) -> None:
        """Raises a ``RefitError`` that lists those of some weights that have no value."""
        lacking = [
            name
            for name in dict.fromkeys(names)
            if name not in self.given and self.known[name]["default"] is None
        ]
        if lacking:
            raise unfit([f"{name!r} is missing" for name in lacking])

    def _check_given(self) -> None:
        """Raises a ``RefitError`` that lists each given weight that does not fit, and each that is missing."""
        wrong = [
            f"{name!r} is none of the model's" for name in self.given if name not in self.known
        ]
        for name, wanted in self.known.items():
            if name in self.given:
                expected, actual = f"{wanted['dtype']} {wanted['shape']}", form_of(self.given[name])
                if expected != actual:
                    wrong.append(f"{name!r} is {actual}, and was {expected}")
        for names in self.recipes["overlapping"]:
            # What shares memory with another weight has its new values, and none of its own to keep.
            if any(name in self.given for name in names):
                wrong += [f"{name!r} is missing" for name in names if name not in self.given]
        if not wrong:
            for names in self.recipes["shared"]:
                held = [name for name in names if name in self.given]
                wrong += [
                    f"{name!r} has other values than {held[0]!r}, with which it was one weight"
                    for name in held[1:]
                    if not is_same(self.given[held[0]], self.given[name])
                ]
        if wrong:
            raise unfit(wrong)


class GraphAttributes:
    """The attributes of a compiled graph after a refit.

    Args:
        recipe: How they follow from the model's weights.
        weights: The weights.
    """

    def __init__(self, recipe: Recipe, weights: GivenWeights) -> None:
        self._recipe = recipe
        self._weights = weights
        self._changed = recipe.part(weights.given)
        self.values = self._changed.run(weights.__getitem__, "the model")

    def __getitem__(self, name: str) -> torch.Tensor:
        if name not in self.values:
            part = self._recipe.part((), [name])
            self.values |= part.run(self._weights.__getitem__, "the model")
        return self.values[name]

    @property
    def changed(self) -> Collection[str]:
        """The names of those that follow from a given weight."""
        return self._changed.results


def unfit(wrong: Sequence[str]) -> RefitError:
    """Returns the error for weights that do not fit, each with its reason."""
    listed = "".join(f"\n  {each}" for each in wrong)
    return RefitError(f"The new weights do not fit the model:{listed}\nNothing was changed.")


def copied_attributes(
    module: GraphModule, names: Collection[str], value: Callable[[str], torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Returns copies of values for attributes of a graph, as PyTorch reads and writes them between the engines.

    Args:
        module: The graph.
        names: The names of the attributes.
        value: Returns the value for a name. Names of one tensor get one copy.
    """
    copies: dict[int, torch.Tensor] = {}
    tensors = {}
    for node in module.graph.find_nodes(op="get_attr"):
        name = str(node.target)
        old = attrgetter(name)(module)
        if not isinstance(old, torch.Tensor) or name not in names:
            continue
        if id(old) not in copies:
            new = value(name).detach().to(old.device).clone()
            is_parameter = isinstance(old, torch.nn.Parameter)
            copies[id(old)] = torch.nn.Parameter(new, old.requires_grad) if is_parameter else new
        tensors[name] = copies[id(old)]
    return tensors


def written_attributes(graph: Graph) -> frozenset[str]:
    """Returns the names of the buffers and parameters that a call of a graph writes to."""
    destinations: list[Any] = [node.args[0] for node in graph.nodes if writes(node)]
    return frozenset(str(node.target) for node in destinations if node.op == "get_attr")


def form_of(value: Any) -> str:
    """Returns the dtype and the shape of a tensor of values, or what else something is."""
    if not isinstance(value, torch.Tensor):
        return f"{kind_of(value)}, no tensor"
    if is_lazy(value) or is_fake(value) or value.device.type == "meta":
        return "a tensor without values"
    if value.is_nested or value.layout is not torch.strided:
        return "a nested tensor" if value.is_nested else f"a tensor of layout {value.layout}"
    return f"{dtype_to_json(value.dtype)} {list(value.shape)}"


def is_same(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Returns whether two tensors have the same values; NaN is the same as NaN."""
    if first.data_ptr() == second.data_ptr() and first.stride() == second.stride():
        return True
    infinite = {"posinf": math.inf, "neginf": -math.inf}
    return torch.equal(first.nan_to_num(**infinite), second.nan_to_num(**infinite)) and torch.equal(
        first.isnan(), second.isnan()
    )
