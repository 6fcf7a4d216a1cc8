from tests.room.benchmarks.conftest import isolation, lake, sandbox

__all__ = ["isolation", "lake", "sandbox"]
