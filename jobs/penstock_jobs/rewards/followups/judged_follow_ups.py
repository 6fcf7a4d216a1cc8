"""What the local judge thinks of follow-ups, in columns: a lake has millions of them."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.lake.lake import Lake
from penstock.lake.query.lake_query import OwnQuery
from penstock.lake.query.view_sources import table_engine
from penstock_jobs.rewards.followups.labels import MessagePlace, draw
from penstock_jobs.rewards.rows import encoded, sql_of

_BATCH_ROWS = 1_000


class JudgedFollowUp(NamedTuple):
    session_id: str
    turn: int
    judged: float
    checkpoint: str | None
    first_us: int
    last_us: int

    @property
    def place(self) -> MessagePlace:
        return MessagePlace(self.session_id, self.turn)


_DRAWN_AT = "drawn_at"
_COLUMNS = pa.schema(
    [
        pa.field("session_id", pa.string()),
        pa.field("turn", pa.int64()),
        pa.field("judged", pa.float64()),
        pa.field("checkpoint", pa.string()),
        pa.field("first_us", pa.int64()),
        pa.field("last_us", pa.int64()),
        pa.field(_DRAWN_AT, pa.float64()),
    ]
)


@dataclass(frozen=True, eq=False)
class JudgedFollowUps:
    rows: pa.Table

    @classmethod
    def of(cls, tenant: str, follow_ups: Iterable[JudgedFollowUp]) -> "JudgedFollowUps":
        rows = [each._asdict() | {_DRAWN_AT: draw(tenant, each.place)} for each in follow_ups]
        return cls(pa.Table.from_pylist(rows, _COLUMNS))

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def __iter__(self) -> Iterator[JudgedFollowUp]:
        for batch in self.rows.select(JudgedFollowUp._fields).to_batches(_BATCH_ROWS):
            yield from map(JudgedFollowUp, *batch.to_pydict().values())

    def first(self, count: int) -> "JudgedFollowUps":
        return JudgedFollowUps(self.rows.slice(0, count))

    def where(self, holds: pa.ChunkedArray) -> "JudgedFollowUps":
        return JudgedFollowUps(self.rows.filter(holds))

    def without(self, places: Collection[MessagePlace]) -> "JudgedFollowUps":
        left = np.ones(len(self), bool)
        left[list(self.numbers_of(places).values())] = False
        return self.where(pa.chunked_array([pa.array(left)]))

    def of_checkpoint(self, checkpoint: str) -> "JudgedFollowUps":
        return self.where(pc.equal(self.rows["checkpoint"], checkpoint))

    def of_sessions(self, sessions: Iterable[str]) -> "JudgedFollowUps":
        names = pa.array(sessions, pa.string())
        return self.where(pc.is_in(self.rows["session_id"], value_set=names))

    def by_checkpoint(self) -> dict[str | None, "JudgedFollowUps"]:
        codes, names = encoded(self.rows["checkpoint"])
        rows = self.rows.take(pa.array(np.argsort(codes, kind="stable")))
        counts = np.bincount(codes, minlength=len(names))
        starts = np.cumsum(counts) - counts
        return {
            name: JudgedFollowUps(rows.slice(start, count))
            for name, start, count in zip(
                names.to_pylist(), starts.tolist(), counts.tolist(), strict=True
            )
        }

    def in_drawn_order(self) -> "JudgedFollowUps":
        return JudgedFollowUps(self.rows.sort_by(_DRAWN_AT))

    def in_telling_order(self) -> "JudgedFollowUps":
        """The nearer to a half the more it tells; a session's second message less than a first."""
        with table_engine() as connection:
            connection.register("rows", self.rows)
            rows = connection.sql(_TELLING_ORDER).to_arrow_table()
        return JudgedFollowUps(rows.cast(_COLUMNS))

    def numbers_of(self, places: Collection[MessagePlace]) -> dict[MessagePlace, int]:
        if not places:
            return {}
        sessions = pa.array({place.session_id for place in places}, pa.string())
        held = pc.is_in(self.rows["session_id"], value_set=sessions)
        numbers = np.flatnonzero(held.to_numpy())
        near = self.rows.select(["session_id", "turn"]).take(pa.array(numbers)).to_pydict()
        wanted = set(places)
        return {
            place: number
            for place, number in zip(
                map(MessagePlace, *near.values()), numbers.tolist(), strict=True
            )
            if place in wanted
        }

    def column(self, name: str) -> NDArray[np.float64]:
        numbers: NDArray[np.float64] = self.rows[name].to_numpy()
        return numbers

    def sessions(self) -> tuple[NDArray[np.int64], pa.Array]:
        return encoded(self.rows["session_id"])


_TELLING_ORDER = """
    select * from rows
    order by row_number() over (partition by session_id order by abs(judged - 0.5), turn),
        abs(judged - 0.5), session_id, turn
"""


def read_follow_ups(
    lake: Lake,
    version: str,
    tenant: str,
    *,
    since_us: int | None = None,
    computed_us: int | None = None,
) -> JudgedFollowUps:
    """None where the definition has no judge of messages; raises what queries raise."""
    facts = {"version": version, "since_us": since_us, "computed_us": computed_us}
    query = OwnQuery(sql_of("followups.sql"), frozenset({"rewards", "outcomes"}), facts)
    return JudgedFollowUps(lake.query(query, tenant=tenant).arrow().cast(_COLUMNS))
