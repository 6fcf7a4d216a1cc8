from tests.system.conftest import start

__all__ = ["start"]
