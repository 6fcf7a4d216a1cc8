"""How often a hint names the right call, as the simulator knows: `python -m bench.hint_calls`.

Users of simulated sessions say what is wrong with the agent's work, and the truth has the calls
that did this work. A hint is right if it names one of them."""

import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.buckets import plan_buckets, read_bucket
from penstock.lake.catalog import current
from penstock_jobs.rewards.followups.judge import DISSATISFIED, wilson
from penstock_jobs.shards.conversation.reader import read_conversation
from penstock_jobs.shards.conversation.session_events import events_by_session
from penstock_jobs.shards.hints.finder import HintFinder
from penstock_jobs.shards.hints.sources import FOLLOW_UP
from penstock_jobs.simulator.production import Production
from penstock_jobs.simulator.truth import SessionTruth
from penstock_jobs.simulator.users import PLAIN, World, bent
from tests.support.lakes import hand_lake

_LATER_US = 2**62


def named_calls(world: World, sessions: int, seed: int = 7) -> Counter[str]:
    """Count hints from follow-ups: right, wrong, and about what the truth calls no complaint.

    `unheard` are complaints of the truth without a hint."""
    lived = [one for each in Production(seed, world=world).sessions(sessions) for one in each]
    truths = {one.truth.session_id: one.truth for one in lived}
    with TemporaryDirectory() as folder, hand_lake(Path(folder) / "data") as lake:
        for one in lived:
            lake.send(b"\n".join(line for _, _, line in one.lines))
        lake.writer().drain()
        buckets = plan_buckets(lake.lake, current(lake.lake.database))
        rows = pa.concat_tables([read_bucket(lake.lake, bucket) for bucket in buckets])
    counts: Counter[str] = Counter()
    names = sorted(truths)
    finder = HintFinder(
        rows,
        [FOLLOW_UP],
        tenant="default",
        as_of_us=_LATER_US,
        chains={name: truths[name].parent_session or name for name in names},
        corrections={},
    )
    events = events_by_session(rows.filter(pc.is_in(rows["session_id"], pa.array(names))))
    for name in names:
        if truths[name].parent_session is None:
            conversation = read_conversation(name, events[name])
            found = {
                hint.event_id: conversation.calls[hint.call.number].payload.call_id or ""
                for hint in finder.of_chain(name, [conversation]).get(name, ())
            }
            told = [m.event_id for m in conversation.messages if m.role == "user" and not m.flags]
            counts += _compared(truths[name], told, found)
    return counts


def _compared(
    truth: SessionTruth, told: list[str | None], found: dict[str | None, str]
) -> Counter[str]:
    counts: Counter[str] = Counter()
    for event, label, about in zip(told, truth.messages, truth.about, strict=True):
        complains = label in DISSATISFIED - {"complains"} and about
        if event in found:
            right = found[event] in about
            counts["right" if right else "wrong" if about else "no complaint"] += 1
        elif complains:
            counts["unheard"] += 1
    return counts


def main() -> int:
    worlds = [PLAIN, *(bent(seed, held_out=True) for seed in (1, 2))]
    total: Counter[str] = Counter()
    for world in worlds:
        counts = named_calls(world, int(sys.argv[1]) if len(sys.argv) > 1 else 300)
        total += counts
        print(f"{world.name}: {dict(sorted(counts.items()))}")
    hints = total["right"] + total["wrong"] + total["no complaint"]
    low, high = wilson(total["right"], hints)
    print(f"of {hints} hints {total['right'] / hints:.3f} name the right call", end="")
    print(f" ({low:.3f} to {high:.3f})")
    heard = total["right"] + total["wrong"]
    print(f"{heard / (heard + total['unheard']):.3f} of what complains has a hint")
    return 0


if __name__ == "__main__":
    sys.exit(main())
