"""The law of memory on generated programs: 20 ahead of time and 15 through ``torch.compile``; 1,200 and 105 in all.

They are the same ones on every run.
"""

import pytest
from hypothesis import HealthCheck, Phase, assume, given, seed, settings

from tests.memory.law import Discarded, ahead_of_time, check, just_in_time
from tests.memory.programs import programs
from tests.support.shards import shards

# What stays in PyTorch, all of it if need be, keeps the same law.
pytestmark = [
    pytest.mark.filterwarnings("ignore::torchtrt.errors.NoEngineWarning"),
    pytest.mark.filterwarnings("ignore::torchtrt.errors.SettingsWarning"),
]

PROGRAMS = 20
"""Of each shard. A program takes about an eighth of a second, most of it in exporting."""


def hold(compile_model, shard, count):
    """Checks the law on that many programs, and returns what became of them."""
    outcomes = []

    @seed(shard)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(programs())
    def law(program):
        try:
            outcomes.append(check(program, compile_model))
        except Discarded:
            assume(False)

    law()
    return outcomes


@pytest.mark.filterwarnings("ignore:Use of .* on expanded tensors is deprecated")
@pytest.mark.parametrize("shard", shards(60, quick=1))
def test_what_is_compiled_keeps_the_law_of_memory(shard):
    """Whatever a program returns and writes, it is eager PyTorch's, or an error that is documented."""
    outcomes = hold(ahead_of_time, shard, PROGRAMS)

    assert PROGRAMS == len(outcomes)
    # Of 1,200 programs, nine in ten; a shard may have one that is refused in several forms.
    assert outcomes.count("right") >= 0.5 * PROGRAMS


@pytest.mark.filterwarnings("ignore:Use of .* on expanded tensors is deprecated")
@pytest.mark.parametrize("shard", shards(7, quick=1))
def test_torch_compile_keeps_the_law_of_memory(shard):
    """The backend, on 15 programs a shard; it refuses models that write to their buffers."""
    outcomes = hold(just_in_time, shard, 15)

    assert 15 == len(outcomes)
    assert outcomes.count("right") >= 5
