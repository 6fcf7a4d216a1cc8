"""A short round of faults. `make faults SECONDS=600` has longer ones."""

import sys

import pytest

from tests.study.faults.run import kept_after_failure, run_round

_SEED = 20
_SECONDS = 15.0


def _tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")


@pytest.mark.long
def test_every_acknowledged_event_is_there_once() -> None:
    with kept_after_failure(_tell, _SEED) as directory:
        report = run_round(directory, _SEED, _SECONDS, tell=_tell)
    _tell(report)
    assert "each is there once" in report
