"""What readers of segments say of a damaged file, and of one that the system does not give."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.backends.execution.calls import InlineExecutor
from penstock.events.event import TENANT_DEFAULT, session_key
from penstock.lake import LakeDamaged
from penstock.lake.buckets import plan_buckets, read_bucket
from penstock.lake.catalog import current, pinned
from penstock.lake.duplicates import KnownEvents
from penstock.lake.lake import Lake
from penstock.lake.segments import open_segment, sessions_name
from penstock.lake.upkeep.merges import merge
from penstock.lake.upkeep.verification import verify, verify_deep
from tests.support.lakes import HandLake, hand_lake, make_event

Read = Callable[[Lake], object]


def recall(lake: Lake) -> object:
    """What the writer and queries do about a session that comes back."""
    known = KnownEvents(lake, bytes_max=1)
    return known.recall([session_key(TENANT_DEFAULT, f"s{n}") for n in range(7)])


def plan(lake: Lake) -> object:
    with pinned(lake.database, None, lease_s=60) as pin:
        return plan_buckets(lake, pin)


def read_buckets(lake: Lake) -> object:
    with pinned(lake.database, None, lease_s=60) as pin:
        return [read_bucket(lake, bucket) for bucket in plan_buckets(lake, pin)]


def merge_all(lake: Lake) -> object:
    return merge(lake, current(lake.database).segments)


def read_events(lake: Lake) -> object:
    with open_segment(lake.store, current(lake.database).segments[0].name) as file:
        return file.read()


def read_sessions(lake: Lake) -> object:
    with open_segment(lake.store, sessions_name(current(lake.database).segments[0].name)) as file:
        return file.read()


READERS: list[tuple[str, Read]] = [
    *(("events", read) for read in (recall, read_buckets, merge_all, read_events)),
    *(("sessions", read) for read in (plan, merge_all, read_sessions)),
]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[HandLake]:
    with hand_lake(tmp_path) as lake:
        for half in range(2):
            lake.store([make_event(f"s{n % 7}", 50 * half + n) for n in range(50)])
        lake.summarise()
        yield lake


def path_of(lake: HandLake, kind: str) -> Path:
    name = current(lake.lake.database).segments[0].name
    return lake.lake.settings.data / "lake" / (name if kind == "events" else sessions_name(name))


def flip_in_first_page(path: Path) -> None:
    """A byte of the column that comes first, which every reader reads."""
    content = bytearray(path.read_bytes())
    content[content.index(b"\x28\xb5\x2f\xfd") + 8] ^= 1  # zstd's magic number, and on
    path.write_bytes(content)


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize("damage", [flip_in_first_page, cut_off])
@pytest.mark.parametrize(("kind", "read"), READERS)
def test_damage_is_said_and_the_file_is_named(
    lake: HandLake, kind: str, read: Read, damage: Callable[[Path], None]
) -> None:
    path = path_of(lake, kind)
    damage(path)
    with pytest.raises(LakeDamaged, match="penstock lake verify") as raised:
        read(lake.lake)
    assert str(raised.value.facts["path"]) in str(path)
    assert path.name in str(raised.value)


@pytest.mark.parametrize("kind", ["events", "sessions"])
def test_wherever_a_byte_is_flipped_nothing_else_is_raised(lake: HandLake, kind: str) -> None:
    """Between pages a byte may stand for nothing."""
    read = read_events if kind == "events" else read_sessions
    path = path_of(lake, kind)
    whole = path.read_bytes()
    told = 0
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        try:
            read(lake.lake)
        except LakeDamaged:
            told += 1
    assert told > len(whole) / 7 / 4


@pytest.mark.parametrize(("kind", "read"), READERS)
def test_what_the_system_refuses_stays_what_it_is(lake: HandLake, kind: str, read: Read) -> None:
    """A link that leads to itself is refused to everybody, also to root."""
    path = path_of(lake, kind)
    path.unlink()
    path.symlink_to(path)
    with pytest.raises(OSError, match="symbolic links") as raised:
        read(lake.lake)
    assert raised.value.errno


@pytest.mark.parametrize("kind", ["events", "sessions"])
def test_verification_lists_what_cannot_be_read_and_goes_on(lake: HandLake, kind: str) -> None:
    path = path_of(lake, kind)
    path.unlink()
    path.symlink_to(path)
    other = current(lake.lake.database).segments[1].name
    flip_in_first_page(lake.lake.settings.data / "lake" / other)
    found = {finding.name: finding.problem for finding in verify(lake.lake).findings}
    assert found.keys() == {str(path.relative_to(lake.lake.settings.data / "lake")), other}
    assert any("cannot be read" in problem for problem in found.values())
    deep = verify_deep(lake.lake, InlineExecutor())
    assert any("cannot be read" in finding.problem for finding in deep)
