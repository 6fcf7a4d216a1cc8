"""A server that answers as a language model that judges."""

from collections.abc import Iterator

import pytest

from tests.support.rewards.followups.completions import Completions, running_completions


@pytest.fixture
def server() -> Iterator[Completions]:
    with running_completions() as server:
        yield server
