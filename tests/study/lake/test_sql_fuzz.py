from tests.support.lake.sql_fuzz import called, listed_faults, run_parts


def test_nothing_that_the_guard_lets_through_ends_the_engine() -> None:
    """Every function and operator with every kind of argument, each in a process that it may
    end."""
    results = run_parts(2)
    assert sum(result.get("tried", 0) for result in results) > 300_000
    faults = [result for result in results if "sql" in result]
    assert not [fault for fault in faults if fault["allowed"]]
    new = {called(fault["sql"]) for fault in faults} - set(map(called, listed_faults()))
    assert not new, "the list is old"
