from tests.system.durability.test_history import run


def test_any_long_order_keeps_what_is_held() -> None:
    run(examples=200, steps=40)
