from collections.abc import Iterator

import pytest

from tests.support.proxy.conversations import Setting, setting_of
from tests.support.servers.scripted_engine import Kind


@pytest.fixture(scope="module", params=["vllm", "sglang"])
def setting(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Setting]:
    kind: Kind = request.param
    with setting_of(kind, tmp_path_factory.mktemp("spool")) as made:
        yield made
