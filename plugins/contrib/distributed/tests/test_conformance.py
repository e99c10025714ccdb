"""The pack keeps what every pack should. Its ops need several processes, which ``tests/test_two_ranks.py`` starts."""

from torchtrt.testing import PackConformance

OPS = (
    "all_reduce",
    "reduce_scatter_tensor",
    "all_gather_into_tensor",
    "broadcast",
    "all_to_all_single",
    "wait_tensor",
)


class TestDistributed(PackConformance):
    """Collectives, none of which a single process can call."""

    pack = "distributed"
    without_case = {
        f"_c10d_functional.{op}.default": "a collective needs several processes" for op in OPS
    }
