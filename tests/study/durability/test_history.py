from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    run_state_machine_as_test,
)

from tests.system.durability.test_history import History


def test_any_long_order_keeps_what_is_held() -> None:
    run_state_machine_as_test(
        History,
        settings=settings(
            max_examples=200,
            stateful_step_count=40,
            suppress_health_check=list(HealthCheck),
        ),
    )
