from tests.room.shards.conftest import filled, lake, recipe

__all__ = ["filled", "lake", "recipe"]
