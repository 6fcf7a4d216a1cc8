"""Whoever waits for a change of a channel is told of it, and of each one before it."""

import json
import os
import queue
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.backends.database.engine import Database
from penstock.backends.database.migrations import upgrade
from penstock.core.errors import TooManyRequests
from penstock.registry.channels.change import ChangeAnswer, ChannelNews, ChannelUnknown
from penstock.registry.channels.channel_watcher import ChannelWatcher, WatchOutcome
from penstock.registry.channels.history import NOTICES_AT_ONCE
from tests.support.checkpoint_factory import TENANT, add, promote, release, rollback, set_policy

KEY = (TENANT, "production")
POLICY = "[[require]]\nsuite = 'core'\nmargin = 0.02\n"


@contextmanager
def watching(database: Database, **limits: Any) -> Iterator[ChannelWatcher]:
    watcher = ChannelWatcher(database, **({"waiters_max": 1_000} | limits))
    watcher.start()
    try:
        yield watcher
    finally:
        assert watcher.stop()


def wait_for(watcher: ChannelWatcher, after: int, key: tuple[str, str] = KEY) -> WatchOutcome:
    told: queue.SimpleQueue[WatchOutcome] = queue.SimpleQueue()
    with watcher.telling(key, after, told.put):
        return told.get(timeout=300)


def seen(outcome: WatchOutcome) -> ChannelNews:
    assert isinstance(outcome, ChannelNews), outcome
    return outcome


def changes_of(news: ChannelNews) -> list[ChangeAnswer]:
    assert isinstance(news.changes, list)
    return news.changes


def change_times(database: Database, times: int) -> None:
    for number in range(times):
        set_policy(database, f"# {number}\n{POLICY}")


def test_a_change_wakes_all_that_wait(database: Database) -> None:
    add(database, "one", "two")
    promote(database, "one")
    told: queue.SimpleQueue[WatchOutcome] = queue.SimpleQueue()
    with watching(database) as watcher, ExitStack() as waiting:
        for _ in range(20):
            waiting.enter_context(watcher.telling(KEY, 1, told.put))
        assert watcher.waiting == 20
        promote(database, "two")
        for _ in range(20):
            found = seen(told.get(timeout=300))
            assert (found.version, found.checkpoint) == (2, "two")
            assert [one.version for one in changes_of(found)] == [2]
        assert watcher.waiting == 0


def test_nobody_misses_a_change_between_two_questions(database: Database) -> None:
    add(database, "one", "two")
    promote(database, "one")
    promote(database, "two")
    rollback(database)
    release(database)
    with watching(database) as watcher:
        found = seen(wait_for(watcher, 1))
        assert [one.version for one in changes_of(found)] == [2, 3, 4]
        assert [one.action for one in changes_of(found)] == ["promote", "rollback", "release"]


def test_very_many_changes_come_in_pieces(database: Database) -> None:
    change_times(database, NOTICES_AT_ONCE + 20)
    with watching(database) as watcher:
        heard: list[int] = []
        while len(heard) < NOTICES_AT_ONCE + 20:
            found = seen(wait_for(watcher, heard[-1] if heard else 0))
            assert found.version == NOTICES_AT_ONCE + 20
            heard += [one.version for one in changes_of(found)]
        assert heard == list(range(1, NOTICES_AT_ONCE + 21))


def test_who_knows_more_than_there_is_is_told(database: Database) -> None:
    change_times(database, 1)
    with watching(database) as watcher:
        found = seen(wait_for(watcher, 9))
        assert (found.version, found.changes) == (1, [])


def test_an_unknown_channel_is_said_at_once(database: Database) -> None:
    with watching(database) as watcher:
        assert isinstance(wait_for(watcher, 0), ChannelUnknown)
        change_times(database, 1)
        assert isinstance(wait_for(watcher, 0, ("bolt", "production")), ChannelUnknown)


def test_waiters_are_bounded(database: Database) -> None:
    change_times(database, 1)
    with watching(database, waiters_max=4) as watcher:
        with (
            watcher.telling(KEY, 1, lambda _outcome: None),
            watcher.telling(KEY, 1, lambda _outcome: None),
        ):
            with pytest.raises(TooManyRequests), watcher.telling(KEY, 1, lambda _outcome: None):
                pass
            with watcher.telling(("another", KEY[1]), 1, lambda _outcome: None):
                assert watcher.waiting == 3
        with watcher.telling(KEY, 1, lambda _outcome: None):
            assert watcher.waiting == 1


def test_who_ends_answers_its_waiters(database: Database) -> None:
    change_times(database, 1)
    with watching(database) as watcher:
        told: queue.SimpleQueue[WatchOutcome] = queue.SimpleQueue()
        with watcher.telling(KEY, 1, told.put):
            watcher.end_soon()
            assert told.get(timeout=300) is None
        assert wait_for(watcher, 1) is None


def test_an_outage_is_said_and_outlasted(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/penstock.db")
    upgrade(database)
    change_times(database, 1)
    with watching(database) as watcher:
        told: queue.SimpleQueue[WatchOutcome] = queue.SimpleQueue()
        with watcher.telling(KEY, 1, told.put):
            file, aside = tmp_path / "penstock.db", tmp_path / "aside.db"
            file.rename(aside)
            with pytest.raises(queue.Empty):
                told.get(timeout=0.1)
            aside.rename(file)
            set_policy(database)
            assert seen(told.get(timeout=300)).version == 2
    database.close()


def test_command(database_url: str, database: Database, tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text(f'database_url = "{database_url}"\n')
    add(database, "one", "two")
    promote(database, "one")
    command = [sys.executable, "-m", "penstock", "channels", "watch", "production", "--json"]
    watch = subprocess.Popen(
        [*command, "--changes", "3", "--data", str(tmp_path)],
        stdout=subprocess.PIPE,
        env=os.environ.copy(),
    )
    assert watch.stdout is not None
    with watch.stdout as lines:
        assert json.loads(lines.readline())["checkpoint"] == "one"
        promote(database, "two")
        assert json.loads(lines.readline())["checkpoint"] == "two"
        rollback(database)
        told = json.loads(lines.readline())
    assert (told["action"], told["checkpoint"], told["version"]) == ("rollback", "one", 3)
    assert watch.wait() == 0
