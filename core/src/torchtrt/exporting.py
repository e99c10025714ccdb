"""From a model and its inputs to an exported program and the sizes to build for."""

from __future__ import annotations

import copy
import inspect
import os
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from types import MethodType
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from torchtrt.conversion.size_ranges import Profile, SizeRange, union
from torchtrt.errors import ExportError, InputError, TorchTRTError
from torchtrt.frontends import front_end_for
from torchtrt.inputs import Input, check_strided, flatten, is_input, map_inputs
from torchtrt.lowering import Program
from torchtrt.lowering.memory import storage_of
from torchtrt.registry import export_contexts
from torchtrt.report import NarrowedSize
from torchtrt.tensorrt.shims import INT32_RANGE


def export(
    model: torch.nn.Module | ExportedProgram,
    inputs: Sequence[Any],
    kwarg_inputs: Mapping[str, Any],
    dynamic_shapes: Any,
) -> ExportedProgram:
    """Returns the model exported for inference; an exported program is returned as it is.

    Raises:
        ExportError: ``torch.export`` could not trace the model.
        InputError: The model is no module, the inputs are no sequence, or there are none to export it with.
    """
    _check_kinds(inputs, kwarg_inputs)
    if isinstance(model, ExportedProgram):
        return model
    if front_end := front_end_for(model):
        return front_end.export(model, inputs, kwarg_inputs, dynamic_shapes)
    candidate: Any = model
    if type(model).__module__.startswith("torch.jit") or not isinstance(candidate, torch.nn.Module):
        raise InputError(
            f"compile() takes a torch.nn.Module, an ExportedProgram (of a file: torch.export.load) or, with "
            f"`pip install torchtrt-torchscript`, a scripted or traced model, not a {type(model).__name__}."
        )
    tree = (tuple(inputs), dict(kwarg_inputs))
    if not flatten(tree):
        raise InputError("compile() needs example inputs: a sequence of tensors or torchtrt.Input.")
    tensors = (*model.parameters(), *model.buffers())
    if any(tensor.is_meta for tensor in tensors):
        raise InputError("The model's weights are on the device meta, without values: load them.")
    device = tensors[0].device if tensors else torch.device("cpu")
    args, kwargs = map_inputs(lambda leaf: leaf.example(device) if is_input(leaf) else leaf, tree)
    args, kwargs = _apart((args, kwargs), model)
    shapes = None
    if dynamic_shapes is None and any(is_input(leaf) for leaf in flatten(tree)):
        shapes = map_inputs(lambda leaf: leaf.dynamic_dims() if is_input(leaf) else None, tree)
    if model.training:
        warnings.warn(
            "The model is in training mode: dropout and batch statistics are compiled as they are. "
            "Call model.eval() first for inference.",
            stacklevel=3,
        )
    try:
        # The fused attention kernels of CUDA add assumptions about sizes that an engine does not need.
        math_attention = sdpa_kernel(SDPBackend.MATH)
        with torch.no_grad(), math_attention, export_contexts(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if shapes is not None:
                model, dynamic_shapes = _with_shapes(model, *shapes)
            return torch.export.export(
                model, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False
            )
    except TorchTRTError:
        raise  # TorchScript's runner says itself what cannot be compiled
    except Exception as error:
        raise ExportError(
            f"torch.export could not trace {type(model).__name__}: {type(error).__name__}: {error}\n"
            "If model(*inputs) fails in PyTorch as well, give inputs that the model takes. If not, rewrite what export "
            "cannot trace (torch.export.draft_export(model, args) lists it all), or pass your own ExportedProgram."
        ) from error


def _apart(tree: Any, model: torch.nn.Module) -> Any:
    """Returns the inputs with copies of those that share memory with others, or with the model.

    Exporting takes a tensor that is given twice for one, and would compile a model that reads one of two arguments.
    """
    seen = {storage_of(tensor) for tensor in (*model.parameters(), *model.buffers())}

    def apart(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.layout is not torch.strided:
            return leaf
        if storage_of(leaf) in seen:
            return leaf.clone()
        seen.add(storage_of(leaf))
        return leaf

    return pytree.tree_map(apart, tree)


def _with_shapes(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[torch.nn.Module, dict[str, Any]]:
    """Returns the model and the shapes by the names of its parameters, as ``torch.export`` takes them.

    It takes none for what ``**kwargs`` collects: there the model gets a parameter for each.
    """
    signature = inspect.signature(model.forward)
    known = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    more = [name for name in kwargs if name not in {each.name for each in known}]
    if more and len(known) < len(signature.parameters):
        original, model = model, copy.copy(model)
        method = vars(original).get("forward") or MethodType(type(original).forward, model)

        def forward(*args: Any, **kwargs: Any) -> Any:
            return method(*args, **kwargs)

        known += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in more]
        signature = forward.__signature__ = signature.replace(parameters=known)  # type: ignore[attr-defined]
        model.forward = forward
    return model, dict(signature.bind(*args, **kwargs).arguments)


def _check_kinds(inputs: Any, kwarg_inputs: Any) -> None:
    if not isinstance(inputs, Sequence) or isinstance(inputs, str):
        raise InputError(
            f"compile() takes the inputs as a sequence, not as a {type(inputs).__name__}: write [x] for one input "
            "x, or kwarg_inputs={...} for inputs by name."
        )
    if not isinstance(kwarg_inputs, Mapping):
        raise InputError(f"kwarg_inputs is a {type(kwarg_inputs).__name__}: give inputs by name.")
    leaves = flatten((tuple(inputs), dict(kwarg_inputs)))
    _count_ranges(leaves)
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            check_strided(leaf)


def size_profiles(
    program: Program, inputs: Sequence[Any], kwarg_inputs: Mapping[str, Any]
) -> tuple[Profile, ...]:
    """Returns the sizes to build for: of each profile, for each symbol of the program's input shapes.

    The minimum and maximum come from the exported program, widened down to what an :class:`Input`
    asked for (exporting itself stops at 2); the optimal sizes come from the inputs given here, or
    those it was exported with. A range whose sizes the program takes none of makes no profile.

    Raises:
        InputError: A size that varies has no upper bound, inputs have different numbers of ranges, or
            an :class:`Input` asks for sizes that the exported program fixed.
    """
    leaves = flatten((tuple(inputs), dict(kwarg_inputs)))
    placeholders = program.placeholders
    if leaves and len(leaves) != len(placeholders):
        raise InputError(f"The program takes {len(placeholders)} inputs, not {len(leaves)}.")
    profiles: list[dict[Any, SizeRange]] = [{} for _ in range(_count_ranges(leaves))]
    for index, placeholder in enumerate(placeholders):
        value = placeholder.meta.get("val")
        if not isinstance(value, torch.Tensor):
            continue
        leaf = leaves[index] if leaves else None
        for dim, size in enumerate(tuple[Any, ...](value.shape)):
            where = f"dimension {dim} of input {placeholder.name!r}"
            if isinstance(size, int):
                _check_fixed(leaf, dim, size, where)
            elif size.node.expr.is_Symbol:
                symbol = size.node.expr
                for number, profile in enumerate(profiles):
                    known = program.ranges.get(symbol, (0, None))
                    wanted = _wanted(leaf, number, dim, where, size.node.hint, known)
                    profile[symbol] = profile.get(symbol, wanted).within(wanted)
    taken = (each for each in profiles if all(size.min <= size.max for size in each.values()))
    return tuple(taken) or tuple(profiles)


def _count_ranges(leaves: Sequence[Any]) -> int:
    """Returns how many ranges the inputs have that have several; those with one go with each."""
    counts = {len(leaf.ranges or "1") for leaf in leaves if isinstance(leaf, Input)} - {1}
    if len(counts) > 1:
        raise InputError(
            f"Inputs have {' and '.join(map(str, sorted(counts)))} ranges of sizes. Each range of one goes with the "
            "range of another in its place: give all of them equally many, or one."
        )
    return next(iter(counts), 1)


def narrowed_sizes(
    program: Program,
    profiles: Sequence[Profile],
    inputs: Sequence[Any],
    kwarg_inputs: Mapping[str, Any],
) -> Iterator[NarrowedSize]:
    """Yields where an :class:`Input` asks for sizes that the model's code, as PyTorch exported it, does not take."""
    leaves = flatten((tuple(inputs), dict(kwarg_inputs)))
    for leaf, placeholder in zip(leaves, program.placeholders, strict=False):
        if not isinstance(leaf, Input):
            continue
        for dim, size in enumerate(placeholder.meta["val"].shape):
            low, high = leaf.bounds[0][dim], leaf.bounds[2][dim]
            if isinstance(size, int) or size.node.expr not in profiles[0]:
                continue
            built = union(profile[size.node.expr] for profile in profiles)
            if built.min > low or built.max < high:
                places = getattr(size.node.shape_env, "var_to_range_sloc", {}).get(size.node.expr)
                source = places and (places.lower if built.min > low else places.upper)
                yield NarrowedSize(
                    placeholder.name, dim, (low, high), (built.min, built.max), _place(source)
                )


def _place(source: Any) -> str:
    """Returns the line of the model that PyTorch took a bound from, where it was not PyTorch's own code."""
    frame = getattr(source, "framework_loc", None)
    library = os.path.dirname(torch.__file__)
    if not isinstance(frame, traceback.FrameSummary) or frame.filename.startswith(library):
        return ""
    return f'File "{frame.filename}", line {frame.lineno}, in {frame.name}'


def _check_fixed(leaf: Any, dim: int, size: int, where: str) -> None:
    if isinstance(leaf, Input):
        minimum, _, maximum = leaf.bounds
        if minimum[dim] != maximum[dim]:
            raise InputError(
                f"You asked for {minimum[dim]} to {maximum[dim]} in {where}, but the model fixes it to {size}: "
                "something in its code depends on that number. Make the code independent of it, or give a fixed "
                "size."
            )


def _wanted(
    leaf: Any, number: int, dim: int, where: str, hint: int | None, known: tuple[int, int | None]
) -> SizeRange:
    """Returns the sizes of an input's dimension in one of its ranges."""
    minimum, maximum = known
    if isinstance(leaf, Input):
        low, optimal, high = (shape[dim] for shape in leaf.in_profile(number))
        # An exported range that starts at 2 stands for "not 0 or 1", which engines need no proof of.
        minimum = low if minimum <= 2 else max(low, minimum)
        maximum = high if maximum is None else min(high, maximum)
    else:
        # Nobody asked for empty tensors: 0 is only where torch.export.Dim starts by default.
        minimum = max(minimum, 1)
        optimal = int(leaf.shape[dim]) if isinstance(leaf, torch.Tensor) else hint or minimum
    if maximum is None or maximum > INT32_RANGE[1]:
        raise InputError(
            f"The size of {where} has no upper bound, and an engine is built for a maximum size. Give one: "
            "torchtrt.Input(min_shape, opt_shape, max_shape), or torch.export.Dim(name, max=...) when exporting."
        )
    return SizeRange(minimum, min(max(optimal, minimum), maximum), maximum)
