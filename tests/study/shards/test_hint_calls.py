"""Hints name the call that they are about, as the simulator knows it."""

import pytest

from bench.hint_calls import named_calls
from penstock_jobs.simulator.users import PLAIN, World, bent


@pytest.mark.parametrize("world", [PLAIN, bent(1, held_out=True)], ids=["plain", "bent"])
def test_at_least_nine_in_ten_hints_name_the_right_call(world: World) -> None:
    counts = named_calls(world, 400)
    hints = counts["right"] + counts["wrong"] + counts["no complaint"]
    assert hints >= 50
    assert counts["right"] >= 0.9 * hints, counts
