from tests.room.shards.conftest import lake, recipe

__all__ = ["lake", "recipe"]
