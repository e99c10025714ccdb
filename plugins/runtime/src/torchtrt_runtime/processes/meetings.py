"""Meetings of the processes of a model in the store of ``torch.distributed``.

A collective waits for all processes of its group. Before its first call, a model therefore checks in the store whether
all of them are there and have the same collectives in the same order. Through the same store, the processes agree on a
choice among compiled models, and on what has failed in one of them.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from torchtrt.errors import ProcessGroupError
from torchtrt_runtime.processes.groups import Processes, places_of, process_group, ranks_of
from torchtrt_runtime.torch_internals import default_store

Agreed = TypeVar("Agreed")
_met: Counter[str] = Counter()
"""How often this process has met those of a group; all count alike."""


class Meeting:
    """A hook before a model's first call in a process group, in which its processes find out that all are there.

    A program may end ``torch.distributed`` and start it again, with other processes. A copy of the model meets anew.

    Args:
        processes: The processes of the model.
    """

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._group: Any = None  # of all processes, at the last meeting

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_group": None}

    def __call__(self, module: Any, _: Any) -> None:
        """Waits for the other processes, as long as the timeout of the default process group.

        Raises:
            ProcessGroupError: One of them does not arrive, its model has other collectives, or this process has
                another place than the one that compiled the model.
        """
        if self._group is not None and process_group() is self._group:
            return
        self._processes.check()
        steps = list(places_of(module.graph_module))
        for name, ranks in self._processes.real_groups():
            sequence = [
                [
                    runner,
                    *(
                        [collective.op, *collective.words]
                        for collective in collectives
                        if collective.group == name
                    ),
                ]
                for runner, collectives in steps
            ]
            exchanges = [exchange for exchange in sequence if len(exchange) > 1]
            self._compare(name, ranks, json.dumps(exchanges))
        self._group = process_group()

    def _compare(self, name: str, ranks: tuple[int, ...], collectives: str) -> None:
        """Compares the model's collectives with those of the others of a group."""
        mine = self._processes.rank
        message = _Message("a first call of a model", collectives)
        messages = _exchange(name, ranks, mine, message, "called the model")
        for rank, theirs in messages.items():
            if failure := theirs.failure or _at_another_place(mine, message, rank, theirs):
                raise _error_of(failure)
            if theirs.value != collectives:
                raise ProcessGroupError(
                    f"The model of rank {rank} has other collectives than that of rank {mine}: {theirs.value} and "
                    f"{collectives}. Compile the same model with the same plan and settings in all ranks."
                )


class SharedFailureError(ProcessGroupError):
    """A process has failed, and the other processes of the model have this error, too.

    Attributes:
        is_end: Whether they cannot go on together.
    """

    def __init__(self, text: str, is_end: bool = True) -> None:
        super().__init__(text)
        self.is_end = is_end


class _Failure(NamedTuple):
    """The failure of a process.

    Attributes:
        rank: The rank of the process.
        reason: The text of the error.
        is_end: Whether the process does not go on with the others.
    """

    rank: int
    reason: str
    is_end: bool


class _Message(NamedTuple):
    """The words of a process to the others of a group.

    Attributes:
        about: Where it is in the program.
        value: Its value, which JSON can hold.
        failure: What failed in it, or in a process from which it has the failure.
    """

    about: str
    value: Any
    failure: _Failure | None = None

    @classmethod
    def from_json(cls, text: str) -> _Message:
        """Returns what ``json.dumps`` made a text of."""
        about, value, failure = json.loads(text)
        return cls(about, value, failure and _Failure(*failure))


def agreed(
    processes: Processes | None,
    about: str,
    value: Agreed,
    combine: Callable[[Agreed, Agreed], Agreed],
) -> Agreed:
    """Returns one value for all processes of a model, which call this at the same place of the program.

    Args:
        processes: The processes; None for a model without collectives.
        about: What the value is.
        value: This process's value, which JSON can hold.
        combine: Returns one value for two, whatever their order, and the value for two equal ones: ``max``, ``and``.

    Raises:
        SharedFailureError: Another process has failed, has ended, or is at another place of the program.
    """
    if processes is None:
        return value
    message = _agree(processes, _Message(about, value), combine)
    if message.failure:
        raise _error_of(message.failure)
    return message.value  # type: ignore[no-any-return]


@contextlib.contextmanager
def failing_together(
    processes: Processes | None, about: str, survived: tuple[type[Exception], ...]
) -> Iterator[None]:
    """Lets the body of a ``with`` statement fail in all processes of a model if it fails in one.

    The body may call ``agreed``, and has no such statement itself: a process reports a failure once.

    Args:
        processes: The processes; None for a model without collectives.
        about: What the body does.
        survived: The errors after which a process goes on. A ``ProcessGroupError`` is not among them.

    Raises:
        SharedFailureError: The body raised an error that is survived, in this process or in another one. Or another
            process has ended, has failed otherwise, or is at another place of the program.
    """
    if processes is None:
        yield
        return
    try:
        yield
    except SharedFailureError:
        raise
    except Exception as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        if isinstance(error, ProcessGroupError) or not isinstance(error, survived):
            kind = f"{type(error).__name__}: {reason}"
            _send_failure(processes, _Message(about, None, _Failure(processes.rank, kind, True)))
            raise
        _fail(processes, about, reason, error)
    agreed(processes, about, True, operator.and_)


def _fail(processes: Processes, about: str, reason: str, error: Exception) -> None:
    """Raises the error of all processes for one that this process survives."""
    own = _Failure(processes.rank, reason, False)
    try:
        failure = _agree(processes, _Message(about, None, own), operator.and_).failure
    except SharedFailureError as silence:
        raise SharedFailureError(
            f"Rank {own.rank} has failed: {reason.rstrip('.')}. Then {silence}"
        ) from error
    raise _error_of(failure or own) from error


def _send_failure(processes: Processes, message: _Message) -> None:
    """Sends a message to the other processes at all steps of ``_agree``, and waits for none."""
    with contextlib.suppress(Exception):  # of a process group that has ended
        groups = list(processes.real_groups())
        for name, _ in itertools.product((name for name, _ in groups), groups):
            default_store().set(f"{_next_prefix(name)}/{processes.rank}", json.dumps(message))


def _agree(processes: Processes, message: _Message, combine: Callable[[Any, Any], Any]) -> _Message:
    """Returns the message that all processes of a model agree on: one value, or the failure of the lowest rank."""
    mine = processes.rank
    groups = list(processes.real_groups())
    # A message reaches the processes that share no group with this one in several steps. A process that receives a
    # failure takes all steps too, so that no other one waits.
    for _ in groups:
        for name, ranks in groups:
            messages = _exchange(name, ranks, mine, message, f"come to {message.about}")
            failures = [message.failure for message in messages.values() if message.failure] or [
                conflict
                for rank, theirs in messages.items()
                if (conflict := _at_another_place(mine, message, rank, theirs))
            ]
            if failures:
                ends = [failure for failure in failures if failure.is_end]
                message = message._replace(value=None, failure=min(ends or failures))
            else:
                value = functools.reduce(combine, (message.value for message in messages.values()))
                message = message._replace(value=value)
    return message


def _at_another_place(mine: int, own: _Message, rank: int, theirs: _Message) -> _Failure | None:
    """Returns the failure of two processes that are at different places of the program."""
    if theirs.about == own.about:
        return None
    (first, here), (second, there) = sorted([(mine, own.about), (rank, theirs.about)])
    return _Failure(first, f"it is at {here}, and rank {second} at {there}", True)


def _error_of(failure: _Failure) -> SharedFailureError:
    """Returns the error for a failure that processes know of."""
    text = f"Rank {failure.rank} has failed: {failure.reason}"
    if not failure.is_end:
        return SharedFailureError(text, is_end=False)
    return SharedFailureError(
        f"{text.rstrip('.')}. Read the output of all ranks. They must compile the same models with the same settings, "
        "``tune`` among them, and call them in the same order."
    )


def _exchange(
    name: str, ranks: tuple[int, ...], rank: int, message: _Message, awaited: str
) -> dict[int, _Message]:
    """Sends a message to the others of a group, and returns the message of each rank.

    Raises:
        SharedFailureError: Another process sends none: it has not ``awaited``, which is "called the model" or the like.
    """
    store = default_store()
    prefix = _next_prefix(name)
    keys = {rank: f"{prefix}/{rank}" for rank in ranks}
    try:
        store.set(keys[rank], json.dumps(message))
        store.wait(list(keys.values()), store.timeout)  # once, for no more than the timeout
        return {sender: _Message.from_json(store.get(key).decode()) for sender, key in keys.items()}
    except Exception as error:
        missing = _missing(store, keys)
        raise SharedFailureError(
            f"Rank {missing} of the ranks {list(ranks)} has not {awaited} within {store.timeout.total_seconds():g} s: "
            "it has ended, or runs other code. Read its output; all ranks must compile and call the same models "
            "in the same order. If it only needs longer, give init_process_group() a greater timeout."
        ) from error


def _next_prefix(name: str) -> str:
    """Returns where the next messages of a group are in the store."""
    prefix = f"torchtrt/{name}/{_met[name]}"
    _met[name] += 1
    return prefix


def _missing(store: Any, keys: Mapping[int, str]) -> int:
    """Returns the first rank without a message; the first of all where the store has ended with its process."""
    for rank, key in keys.items():
        with contextlib.suppress(Exception):
            if not store.check([key]):
                return rank
    return next(iter(keys))


def equal_digests(
    processes: Processes | None, about: str, digests: Mapping[str, str], group: str | None = None
) -> dict[str, str | None]:
    """Returns digests, with None for those that differ; all processes call it together.

    Args:
        processes: The processes.
        about: What has the digests.
        digests: For some names, what is equal for equal values.
        group: The group whose processes are to be compared; all processes if omitted.

    Raises:
        ProcessGroupError: Another process does not arrive, or has failed.
    """
    ranks = "" if group is None else str(ranks_of(group))
    by_group: dict[str, dict[str, str | None]] = {ranks: {**digests}}
    return agreed(processes, about, by_group, _in_each_group)[ranks]


def _in_each_group(
    first: dict[str, dict[str, str | None]], second: dict[str, dict[str, str | None]]
) -> dict[str, dict[str, str | None]]:
    both = first.keys() & second.keys()
    return {**first, **second, **{ranks: _in_both(first[ranks], second[ranks]) for ranks in both}}


def _in_both(first: dict[str, str | None], second: dict[str, str | None]) -> dict[str, str | None]:
    pairs = {name: (first.get(name), second.get(name)) for name in {**first, **second}}
    return {name: one if one == other else None for name, (one, other) in pairs.items()}
