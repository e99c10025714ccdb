"""``torchtrt.refit_module_weights``."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from torchtrt.errors import (
    ConversionError,
    InputError,
    RefitError,
    UnsupportedDtypeError,
    kind_of,
)
from torchtrt.graphs.nodes import writes
from torchtrt.tensorrt import selection, trt
from torchtrt.tensorrt.logging import ErrorLog, logger
from torchtrt.tensorrt.shims import weights_of
from torchtrt_compiler.refit.recipe import Recipe, decode_tensor
from torchtrt_compiler.refit.recording import inner_tensors
from torchtrt_compiler.torch_internals import FakeTensor
from torchtrt_runtime import CompiledModule, EngineModule
from torchtrt_runtime.serialization.engine_metadata import dtype_to_json, tensorrt_for
from torchtrt_runtime.usage_checks import UsageChecks


def refit_module_weights(
    compiled: CompiledModule,
    new_weights: torch.nn.Module | ExportedProgram | Mapping[str, torch.Tensor],
    *,
    in_place: bool = False,
) -> CompiledModule:
    """Returns a compiled model with other weights, without building engines.

    Args:
        compiled: A model compiled with ``immutable_weights=False``, or loaded from a file of one.
        new_weights: A model of the same class, its exported program, or a state dict: weights by their names, with the
            shapes and dtypes that they had. Tensors that are plain attributes of a model are weights too. Weights that
            a state dict does not hold stay as they were, so one of an adapter is enough.
        in_place: Give the weights to ``compiled`` itself, rather than to a copy. Calls that run meanwhile compute with
            all of the old weights, later ones with all of the new.

    Raises:
        InputError: ``compiled`` is something else.
        RefitError: The weights do not fit, or something that depends on their values is compiled in. Or an engine's
            weight follows from a given one and from one that the state dict lacks, and the model that has it was
            changed or is gone. Nothing has changed then.
    """
    if not isinstance(compiled, CompiledModule):
        raise InputError(
            f"refit_module_weights() takes what torchtrt.compile() returned, then the weights, not a "
            f"{type(compiled).__name__}."
        )
    recipes = _recipes(compiled)
    given = inner_tensors(_named(new_weights, recipes["weights"]))
    is_whole = not isinstance(new_weights, Mapping)
    if not is_whole:
        for names in recipes["shared"]:  # one name stands for all
            tied = [given[name] for name in names if name in given]
            given.update({name: tied[0] for name in names if tied and name not in given})
    weights = _Weights(given, recipes, {} if is_whole else compiled.usage_checks.unchanged())
    if is_whole:
        weights.check_complete()
    if isinstance(new_weights, torch.nn.Module):
        kept = [name for name in weights.known if name not in given]
        _check_containers(new_weights, {name: weights[name] for name in kept})
    target = _refit(compiled, weights, in_place, None)
    checks = compiled.usage_checks
    written = _written_attributes(compiled)
    watched = {**checks.unchanged(), **weights.given}
    watched = {name: each for name, each in watched.items() if name not in written}
    target.usage_checks = UsageChecks(watched, checks.trains, checks.autocast)
    return target


def refit_with_memory(
    compiled: CompiledModule, weights: Mapping[str, torch.Tensor], changed: Collection[str]
) -> None:
    """Gives a compiled model other weights in place, and writes to the buffers among them from now on.

    Nothing watches the weights. Calls that run meanwhile compute with all of the old weights.

    Args:
        compiled: The model.
        weights: All of its weights, by name.
        changed: The names of those that are others.

    Raises:
        RefitError: As ``refit_module_weights`` does.
    """
    recipes = _recipes(compiled)
    known = inner_tensors(weights)
    names = set(inner_tensors({name: weights[name] for name in changed}))
    for group in (*recipes["shared"], *recipes["overlapping"]):
        if not names.isdisjoint(group):
            names |= known.keys() & set(group)
    given = {name: known[name] for name in names}
    _refit(compiled, _Weights(given, recipes, known), True, weights)


def _recipes(compiled: CompiledModule) -> Mapping[str, Any]:
    if compiled.weight_recipes is None:
        message = "The model's weights are compiled in. Compile it with immutable_weights=False to give it others."
        raise RefitError(message)
    return compiled.weight_recipes


def _refit(
    compiled: CompiledModule,
    weights: _Weights,
    in_place: bool,
    memory: Mapping[str, torch.Tensor] | None,
) -> CompiledModule:
    """Returns a compiled model with other weights.

    Args:
        compiled: The model.
        weights: The weights.
        in_place: Whether it is the model itself.
        memory: The tensors to write to from now on; None for those that the model writes to.
    """
    recipe = Recipe.from_json(weights.recipes["recipe"])
    values = _Attributes(recipe, weights)
    engines = {
        name: module
        for name, module in compiled.graph_module.named_modules()
        if isinstance(module, EngineModule)
    }
    plans = {
        name: refitted_plan(engine, values.__getitem__, values.changed)
        for name, engine in engines.items()
    }
    written = _written_attributes(compiled)
    tensors = _new_attributes(compiled, values)
    if memory is not None:
        for name in written & tensors.keys():
            source = recipe.sources.get(str(recipe.results[name]))
            if source is None or source not in memory:
                raise RefitError(
                    f"The model writes to {name!r}, and nothing says whose memory it is now."
                )
            tensors[name] = memory[source]
    trees = compiled.input_tree, compiled.output_tree  # PyTorch warns where its own are copied
    target = compiled if in_place else copy.deepcopy(compiled, {id(each): each for each in trees})
    # A call runs one graph from its beginning to its end: the new one takes the old one's place at once.
    graph_module = _copied(target.graph_module) if in_place else target.graph_module
    for name, plan in plans.items():
        if plan is not engines[name].plan:
            graph_module.get_submodule(name).reload(plan=plan)  # type: ignore[operator]
    for name, tensor in tensors.items():
        owner, _, leaf = name.rpartition(".")
        setattr(graph_module.get_submodule(owner), leaf, tensor)
    target.graph_module = graph_module
    return target


def _copied(graph_module: GraphModule) -> GraphModule:
    """Returns a copy of a graph with engines of its own, and with the same tensors."""
    tensors = [
        value
        for module in graph_module.modules()
        for each in (module._parameters, module._buffers, vars(module))
        for value in each.values()
        if isinstance(value, torch.Tensor)
    ]
    return copy.deepcopy(graph_module, {id(each): each for each in tensors})


def _named(new_weights: Any, known: Collection[str]) -> dict[str, torch.Tensor]:
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


class _Weights:
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
            raise _unfit([f"{name!r} is missing"])
        return decode_tensor(default)

    def check_complete(self) -> None:
        """Raises a ``RefitError`` that names each weight without a value."""
        known = self.known.items()
        lacking = [
            name for name, each in known if name not in self.given and each["default"] is None
        ]
        if lacking:
            raise _unfit([f"{name!r} is missing" for name in lacking])

    def _check_given(self) -> None:
        """Raises a ``RefitError`` that lists each given weight that does not fit, and each that is missing."""
        wrong = [
            f"{name!r} is none of the model's" for name in self.given if name not in self.known
        ]
        for name, wanted in self.known.items():
            if name in self.given:
                expected, actual = f"{wanted['dtype']} {wanted['shape']}", _form(self.given[name])
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
                    if not _is_same(self.given[held[0]], self.given[name])
                ]
        if wrong:
            raise _unfit(wrong)


class _Attributes:
    """The attributes of a compiled graph after a refit.

    Args:
        recipe: How they follow from the model's weights.
        weights: The weights.
    """

    def __init__(self, recipe: Recipe, weights: _Weights) -> None:
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


def _unfit(wrong: Sequence[str]) -> RefitError:
    listed = "".join(f"\n  {each}" for each in wrong)
    return RefitError(f"The new weights do not fit the model:{listed}\nNothing was changed.")


def _check_containers(model: torch.nn.Module, kept: Mapping[str, torch.Tensor]) -> None:
    """Checks that lists and other containers of a new model hold no weights: nothing says which is which.

    Args:
        model: The new model.
        kept: The tensors that it has under no name, as they were.

    Raises:
        RefitError: A container holds a tensor that may be one of these, with other values.
    """
    of_every_module = vars(torch.nn.Module())
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name in of_every_module or isinstance(value, torch.Tensor):
                continue
            for tensor in pytree.tree_leaves(value):
                if not isinstance(tensor, torch.Tensor):
                    continue
                alike = [each for each in kept.values() if _form(each) == _form(tensor)]
                if alike and not any(_is_same(tensor, each) for each in alike):
                    where = f"{path}.{name}" if path else name
                    raise RefitError(
                        f"The new model's {where!r} is a {type(value).__name__} with a tensor of {_form(tensor)}, "
                        "which may be a weight that has no name. Nothing was changed. Keep it as a parameter, a buffer "
                        "or an attribute, or compile the new model."
                    )


def _form(value: Any) -> str:
    """Returns the dtype and the shape of a tensor of values, or what else something is."""
    if not isinstance(value, torch.Tensor):
        return f"{kind_of(value)}, no tensor"
    if is_lazy(value) or isinstance(value, FakeTensor) or value.device.type == "meta":
        return "a tensor without values"
    if value.is_nested or value.layout is not torch.strided:
        return "a nested tensor" if value.is_nested else f"a tensor of layout {value.layout}"
    return f"{dtype_to_json(value.dtype)} {list(value.shape)}"


def _is_same(first: torch.Tensor, second: torch.Tensor) -> bool:
    if first.data_ptr() == second.data_ptr() and first.stride() == second.stride():
        return True
    return torch.equal(first.nan_to_num(), second.nan_to_num()) and torch.equal(
        first.isnan(), second.isnan()
    )


def refitted_plan(
    engine: EngineModule, attribute: Callable[[str], torch.Tensor], changed: Collection[str]
) -> Any:
    """Returns an engine's plan with the weights that follow from the graph's attributes.

    Args:
        engine: The engine.
        attribute: Returns an attribute of the graph by its name.
        changed: The names of the attributes with other values than the engine was built with.

    Raises:
        RefitError: Values of the attributes are compiled in, or TensorRT refused them.
    """
    if engine.weights is None:
        raise RefitError(
            f"The engine of {engine.name} does not know its weights. Compile the model again."
        )
    recipe = Recipe.from_json(engine.weights)
    where = f"the engine of {engine.name}"
    values = recipe.part(changed).run(attribute, where)
    if not values:
        return engine.plan
    what = f"The engine of {engine.name}"
    tensorrt = tensorrt_for(engine.tensorrt, engine.gpu, what, engine.compatible)
    with selection.use_module(tensorrt), ErrorLog() as log:
        _, loaded = engine.deserialize(torch.device("cpu"))
        refitter = trt.Refitter(loaded, logger())
        owners = [_set_weights(refitter, engine, values, log)]
        # What TensorRT combined with a weight has to be given with it.
        combined = [name for name in refitter.get_missing_weights() if name in recipe.results]
        if combined:
            others = recipe.part((), combined).run(attribute, where)
            rest = {name: others[name] for name in combined}
            owners.append(_set_weights(refitter, engine, rest, log))
        if not refitter.refit_cuda_engine():
            missing = ", ".join(refitter.get_missing_weights())
            raise RefitError(
                f"TensorRT could not refit {engine.name}: {log.text()} (missing: {missing or 'none'})"
            )
        return bytes(loaded.serialize())


def _set_weights(
    refitter: Any, engine: EngineModule, values: Mapping[str, torch.Tensor], log: Any
) -> list[Any]:
    """Gives weights to a refitter, and returns what their memory belongs to."""
    owners = []
    for name, value in values.items():
        try:
            weights, owner = weights_of(value)
        except (ConversionError, UnsupportedDtypeError) as error:
            raise RefitError(
                f"The weights {name!r} of {engine.name} cannot have these values: {error}"
            ) from error
        owners.append(owner)
        if not refitter.set_named_weights(name, weights):
            raise RefitError(
                f"TensorRT refused the weights {name!r} of {engine.name}: {log.text()}"
            )
    return owners


def _new_attributes(compiled: CompiledModule, attributes: _Attributes) -> dict[str, torch.Tensor]:
    """Returns new tensors for what PyTorch reads and writes between the engines; they are the compiled model's own."""
    module = compiled.graph_module
    made: dict[int, torch.Tensor] = {}
    tensors = {}
    for node in module.graph.find_nodes(op="get_attr"):
        name = str(node.target)
        old = attrgetter(name)(module)
        if not isinstance(old, torch.Tensor) or name not in attributes.changed:
            continue
        if id(old) not in made:
            new = attributes[name].detach().to(old.device).clone()
            is_parameter = isinstance(old, torch.nn.Parameter)
            made[id(old)] = torch.nn.Parameter(new, old.requires_grad) if is_parameter else new
        tensors[name] = made[id(old)]
    return tensors


def _written_attributes(compiled: CompiledModule) -> frozenset[str]:
    """Returns the names of the buffers and parameters that a call writes to."""
    destinations: list[Any] = [
        node.args[0] for node in compiled.graph_module.graph.nodes if writes(node)
    ]
    return frozenset(str(node.target) for node in destinations if node.op == "get_attr")
