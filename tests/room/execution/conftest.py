from collections.abc import Iterator

import pytest

from penstock.backends.execution.calls import InlineExecutor, ProcessExecutor
from penstock.backends.execution.executor import Executor


@pytest.fixture(params=["inline", "processes"])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    inline = request.param == "inline"
    with InlineExecutor() if inline else ProcessExecutor(workers=2) as executor:
        yield executor


@pytest.fixture
def losing() -> Iterator[Executor]:
    """One whose workers can be lost without the caller."""
    with ProcessExecutor(workers=2) as executor:
        yield executor
