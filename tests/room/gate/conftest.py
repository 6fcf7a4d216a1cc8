from tests.support.registry_fixtures import *  # noqa: F403  # the fixtures of its `__all__`
