"""The search for programs that are compiled to something else: a few of its programs, and what it would find."""

import dataclasses

import pytest

import torchtrt
from tools.program_search import checking
from tools.program_search.programs import InputSpec, Program, program
from torchtrt_testing.faults import watched_tensorrt

SIMPLE = Program(
    (InputSpec("torch.float32", ("n", "4")),),
    ("v0 = x0 + 1", "v1 = v0.sin()", "v2 = x0 * 3"),
    "(v1, v2)",
    ({"n": (1, 3, 5)},),
    "input",
    "10.16.1",
)


def test_a_seed_is_always_the_same_program():
    """So a finding can be looked at again."""
    assert program(7) == program(7)
    assert program(7) != program(8)
    assert program(7, "corners") == program(7, "corners") != program(7)


@pytest.mark.parametrize(
    ("seed", "kind"), [(3, "usual"), (5, "usual"), (14, "usual"), (1, "corners"), (6, "corners")]
)
def test_generated_programs_are_right_or_refused(seed, kind):
    """As eager PyTorch, in values, dtypes, shapes and what is left in buffers and inputs."""
    outcome = checking.check(program(seed, kind))
    assert not outcome.is_finding, outcome


def test_a_difference_is_found_and_made_short():
    """Down to the statement that differs."""

    def wrong(execution):
        if any("aten.sin" in layer for layer in execution.layers):
            for output in execution.outputs.values():
                output += 1

    with torchtrt.use_tensorrt("reference@10.16.1"), watched_tensorrt(changes=wrong):
        outcome = checking.check(SIMPLE)
        assert outcome.kind == "differs"
        short = checking.shortest(SIMPLE, outcome)
    assert len(short.body) <= 2
    assert any("sin" in statement for statement in short.body)
    assert checking.check(dataclasses.replace(SIMPLE, body=(), result="x0")).kind == "right"
