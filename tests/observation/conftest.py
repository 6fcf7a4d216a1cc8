import pytest

from tests.server import conftest as services

#: As the tests of the server start one.
start = pytest.fixture(scope="module")(services.start.__wrapped__)  # type: ignore[attr-defined]
