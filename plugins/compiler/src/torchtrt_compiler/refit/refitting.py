"""``torchtrt.refit_module_weights``."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule

from torchtrt.errors import InputError, RefitError, VerificationError
from torchtrt.tensorrt import selection, trt
from torchtrt.tensorrt.logging import ErrorLog, logger
from torchtrt.tensorrt.selection import describe
from torchtrt.torch_internals import pytree
from torchtrt_compiler.comparison import compare_with_eager, running_objection
from torchtrt_compiler.inputs import CallInputs
from torchtrt_runtime import CompiledModule, EngineModule
from torchtrt_runtime.checks.usage import UsageChecks
from torchtrt_runtime.processes.meetings import equal_digests
from torchtrt_runtime.serialization.engine_metadata import tensorrt_for
from torchtrt_runtime.weights.forms import form_of, inner_tensors, is_same, named_weights
from torchtrt_runtime.weights.graph_attributes import copied_attributes, written_attributes
from torchtrt_runtime.weights.model_weights import ModelWeights, NewAttributes, NewWeights
from torchtrt_runtime.weights.recipe import digest
from torchtrt_runtime.weights.refitter import refit, set_weights


def refit_module_weights(
    compiled: CompiledModule,
    new_weights: torch.nn.Module | ExportedProgram | Mapping[str, torch.Tensor],
    *,
    in_place: bool = False,
    verify: bool = False,
) -> CompiledModule:
    """Returns a compiled model with other weights, without building engines.

    Args:
        compiled: A model compiled with ``immutable_weights=False``, or loaded from a file of one.
        new_weights: A model of the same class, its exported program, or a state dict: weights by their names, with the
            shapes and dtypes that they had. Tensors that are plain attributes of a model are weights too. Weights that
            a state dict does not hold stay as they were, so one of an adapter is enough.
        in_place: Give the weights to ``compiled`` itself, rather than to a copy. Calls that run meanwhile compute with
            all of the old weights, later ones with all of the new.
        verify: Compare the results with those of the new model in eager PyTorch, at the limits of each range of sizes,
            before anything changes. The new weights must come as a model or a program.

    Raises:
        InputError: ``compiled`` is something else, or ``verify`` lacks a model.
        RefitError: The weights do not fit, or something that depends on their values is compiled in. Or an engine's
            weight follows from a given one and from one that the state dict lacks, and the model that has it was
            changed or is gone. Nothing has changed then.
        VerificationError: A result is another than the new model's, or the comparison cannot run here. Nothing has
            changed then.
    """
    if not isinstance(compiled, CompiledModule):
        raise InputError(
            f"refit_module_weights() takes what torchtrt.compile() returned, then the weights, not a "
            f"{type(compiled).__name__}."
        )
    model = _replaceable_weights(compiled)
    tensors = inner_tensors(named_weights(new_weights, model.weights))
    is_whole = not isinstance(new_weights, Mapping)
    if not is_whole:
        tensors = model.with_tied_names(tensors)
    weights = NewWeights(tensors, model, {} if is_whole else compiled.usage_checks.unchanged())
    if is_whole:
        weights.check_present(model.weights)
    if isinstance(new_weights, torch.nn.Module):
        kept = {name: weights[name] for name in model.weights if name not in tensors}
        _check_containers(new_weights, kept)
    if verify:
        if not isinstance(new_weights, (torch.nn.Module, ExportedProgram)):
            raise InputError(
                "refit_module_weights(verify=True) compares results with those of the new model: give the model or its "
                "exported program, not a state dict."
            )
        _verify(_refit(compiled, weights, False, None), new_weights)
    target = _refit(compiled, weights, in_place, None)
    checks = compiled.usage_checks
    written = written_attributes(compiled.graph_module.graph)
    watched = {**checks.unchanged(), **weights.new}
    watched = {name: tensor for name, tensor in watched.items() if name not in written}
    target.usage_checks = UsageChecks(watched, checks.trains, checks.autocast, new_weights)
    return target


def _verify(refitted: CompiledModule, model: torch.nn.Module | ExportedProgram) -> None:
    """Compares a refitted model with the new model in eager PyTorch.

    Raises:
        VerificationError: A difference exceeds its tolerance, or the engines do not run here.
    """
    if objection := running_objection(refitted):
        raise VerificationError(f"The refitted model cannot be compared here: {objection}.")
    rows = compare_with_eager(refitted, model, CallInputs((), {}))
    if wrong := [row for row in rows if not row.agrees]:
        raise VerificationError(
            "The refitted model differs from the new one, and nothing was changed. Compile the new model.\n"
            + "\n".join(
                f"  {row.output} for {[list(shape) for shape in row.sizes]}: the difference is {row.largest:.3g}, the "
                f"tolerance {row.tolerance:.3g}"
                for row in wrong
            ),
            tuple(row.on(describe()) for row in rows),
        )


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
    model = _replaceable_weights(compiled)
    tensors = inner_tensors(weights)
    names = set(inner_tensors({name: weights[name] for name in changed}))
    for group in (*model.shared, *model.overlapping):
        if not names.isdisjoint(group):
            names |= tensors.keys() & set(group)
    new = {name: tensors[name] for name in names}
    _refit(compiled, NewWeights(new, model, tensors), True, weights)


def _replaceable_weights(compiled: CompiledModule) -> ModelWeights:
    if compiled.weights is None or compiled.settings.immutable_weights:
        message = "The model's weights are compiled in. Compile it with immutable_weights=False to give it others."
        raise RefitError(message)
    return compiled.weights


def _refit(
    compiled: CompiledModule,
    weights: NewWeights,
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
    _check_equal(compiled, weights)
    recipe = weights.model.recipe
    values = NewAttributes(recipe, weights)
    engines = {
        name: module
        for name, module in compiled.graph_module.named_modules()
        if isinstance(module, EngineModule)
    }
    changes = {
        name: engine_changes(engine, values.__getitem__, values.changed)
        for name, engine in engines.items()
    }
    written = written_attributes(compiled.graph_module.graph)
    tensors = copied_attributes(compiled.graph_module, values.changed, values.__getitem__)
    if memory is not None:
        for name in written & tensors.keys():
            source = recipe.sources.get(str(recipe.results[name]))
            if source is None or source not in memory:
                raise RefitError(
                    f"The model writes to {name!r}, and its memory in this model is unknown."
                )
            tensors[name] = memory[source]
    trees = compiled.input_tree, compiled.output_tree  # PyTorch warns where its own are copied
    target = compiled if in_place else copy.deepcopy(compiled, {id(tree): tree for tree in trees})
    # A call runs one graph from its beginning to its end: the new one takes the old one's place at once.
    graph_module = _copied(target.graph_module) if in_place else target.graph_module
    for name, changed in changes.items():
        if changed:
            graph_module.get_submodule(name).reload(**changed)  # type: ignore[operator]
    for name, tensor in tensors.items():
        owner, _, leaf = name.rpartition(".")
        setattr(graph_module.get_submodule(owner), leaf, tensor)
    target.graph_module = graph_module
    return target


def _check_equal(compiled: CompiledModule, weights: NewWeights) -> None:
    """Checks that weights that were equal in all processes stay equal; all processes call it together.

    Raises:
        RefitError: They are not.
    """
    recipe = weights.model.equal
    if not recipe.results:
        return
    values = NewAttributes(recipe, weights).values
    digests = {name: digest(value) for name, value in values.items()}
    common = equal_digests(compiled.interface.processes, "the weights of a model", digests)
    if different := sorted(repr(name) for name, value in common.items() if value is None):
        raise RefitError(
            f"{', '.join(different)} had the same values in all processes when the model was compiled, and would have "
            "others in each one. async_tensor_parallel=True needs equal ones. Nothing was changed. Compile the model "
            "with the new weights."
        )


def _copied(graph_module: GraphModule) -> GraphModule:
    """Returns a copy of a graph with engines of its own, and with the same tensors."""
    tensors = [
        value
        for module in graph_module.modules()
        for attributes in (module._parameters, module._buffers, vars(module))
        for value in attributes.values()
        if isinstance(value, torch.Tensor)
    ]
    return copy.deepcopy(graph_module, {id(tensor): tensor for tensor in tensors})


def _check_containers(model: torch.nn.Module, kept: Mapping[str, torch.Tensor]) -> None:
    """Checks that lists and other containers of a new model hold no weights: which is which is unknown.

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
                form = form_of(tensor)
                alike = [weight for weight in kept.values() if form_of(weight) == form]
                if alike and not any(is_same(tensor, weight) for weight in alike):
                    where = f"{path}.{name}" if path else name
                    raise RefitError(
                        f"The new model's {where!r} is a {type(value).__name__} with a tensor of {form}, "
                        "which may be a weight that has no name. Nothing was changed. Keep it as a parameter, a buffer "
                        "or an attribute, or compile the new model."
                    )


def engine_changes(
    engine: EngineModule, attribute: Callable[[str], torch.Tensor], changed: Collection[str]
) -> dict[str, Any]:
    """Returns what ``EngineModule.reload`` takes to give an engine the weights that follow from the graph's attributes.

    Args:
        engine: The engine.
        attribute: Returns an attribute of the graph by its name.
        changed: The names of the attributes with other values than the engine has.

    Raises:
        RefitError: Values of the attributes are compiled in, or TensorRT refused them.
    """
    if engine.recipe is None:
        raise RefitError(
            f"The engine of {engine.name} does not know its weights. Compile the model again."
        )
    where = f"the engine of {engine.name}"
    values = engine.recipe.part(changed).run(attribute, where)  # checks what is compiled in
    if engine.stripped is None:
        return {"plan": _refitted_plan(engine, values, attribute)} if values else {}
    read = {name: attribute(name) for name in engine.followed_attributes if name in changed}
    return {"stripped": engine.stripped.with_values(read)} if read else {}


def _refitted_plan(
    engine: EngineModule,
    values: Mapping[str, torch.Tensor],
    attribute: Callable[[str], torch.Tensor],
) -> bytes:
    """Returns an engine's plan with other weights.

    Args:
        engine: The engine.
        values: The weights, by their names in the engine.
        attribute: Returns an attribute of the graph by its name.

    Raises:
        RefitError: TensorRT refused the weights.
    """
    recipe = engine.recipe
    assert recipe is not None
    what = f"The engine of {engine.name}"
    tensorrt = tensorrt_for(engine.tensorrt, engine.gpu, what, engine.compatible)
    with selection.use_module(tensorrt), ErrorLog() as log:
        _, loaded = engine.deserialize(torch.device("cpu"))
        refitter = trt.Refitter(loaded, logger())
        owners = [set_weights(refitter, engine.name, values, log)]
        # What TensorRT combined with a weight has to be given with it.
        combined = [name for name in refitter.get_missing_weights() if name in recipe.results]
        if combined:
            others = recipe.part((), combined).run(attribute, f"the engine of {engine.name}")
            rest = {name: others[name] for name in combined}
            owners.append(set_weights(refitter, engine.name, rest, log))
        refit(refitter, engine.name, log)
        return bytes(loaded.serialize())
