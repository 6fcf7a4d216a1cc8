from tests.room.cli.conftest import data, events_file, run

__all__ = ["data", "events_file", "run"]
