from tests.room.proof.conftest import proven, proven_template

__all__ = ["proven", "proven_template"]
