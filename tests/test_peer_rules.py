"""The faults seen in Torch-TensorRT 2.14 that are not an operator's, and the test of each rule that they break.

The operators' are in ``plugins/aten_core/tests/test_peer_faults.py``.
"""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

RULES = {
    "a lookup validates the candidates of its op, not every converter": (
        "core/tests/registry/test_lookup.py",
        "test_the_candidates_are_asked_in_order_until_one_accepts",
    ),
    "importing needs no driver and little time": (
        "core/tests/packs/test_installed_packs.py",
        "test_importing_torchtrt_imports_nothing_that_only_compiling_needs",
    ),
    "dynamic dimensions inside lists of tensors are seen": (
        "core/tests/registry/test_lookup.py",
        "test_symbolic_dimensions_are_seen_wherever_they_come_in",
    ),
    "a validator that raises rejects one node and stops nothing": (
        "core/tests/registry/test_lookup.py",
        "test_a_validator_that_raises_is_a_rejection_with_a_traceback",
    ),
    "settings of one compilation do not reach another": (
        "tests/test_compile.py",
        "test_two_threads_compile_with_different_settings",
    ),
}
"""For each rule the file and the name of its test."""


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_its_test(rule):
    """The test that keeps the fault away is there under its name."""
    path, name = RULES[rule]
    assert f"\ndef {name}(" in (ROOT / path).read_text()
