"""People of the demo who label messages, and how far the judge was from the truth."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import urlencode

from penstock.events.event import TENANT_DEFAULT
from penstock.lake.lake import Lake
from penstock_jobs.rewards.definition import Definition
from penstock_jobs.rewards.followups.dissatisfaction import read_dissatisfaction
from penstock_jobs.rewards.followups.labels import read_follow_ups
from penstock_jobs.simulator.demo.server import Server
from penstock_jobs.simulator.demo.story import UserReaction
from penstock_jobs.simulator.demo.traffic import SumSession

#: What a label repeats of its question.
_REPEATED = ("session_id", "turn", "message", "drawn", "until_us", "again")
#: The label of each message, by session and digest.
TrueLabels = Mapping[tuple[str, str], str]
#: A rate, and half of its interval.
RateAndMargin = tuple[float, float]


def true_labels(sessions: Iterable[SumSession]) -> Iterator[tuple[tuple[str, str], str]]:
    for session in sessions:
        for words in session.messages:
            yield (session.session_id, sha256(words.text.encode()).hexdigest()), words.label


def label_messages(
    server: Server,
    definition: Definition,
    checkpoint: str,
    true: TrueLabels,
    *,
    sessions: set[str],
    count: int,
) -> None:
    """Let people label messages that chance draws, until so many are of these sessions."""
    request = {"definition": definition.name, "checkpoint": checkpoint}
    with server.client() as client:
        while count > 0:
            found = client.ask(f"labels/next?{urlencode(request)}", "next")["next"]
            if found is None:
                return
            label = true[found["session_id"], found["message"]]
            order = {name: found[name] for name in _REPEATED}
            client.ask("labels", "label", order | {"label": label, "definition": definition.name})
            count -= found["session_id"] in sessions


def corrected_rate(lake: Lake, definition: Definition, sessions: set[str]) -> RateAndMargin | None:
    """Read the rate of dissatisfied users, corrected by labels. None with too few of them."""
    follow_ups = read_follow_ups(lake, definition.version, TENANT_DEFAULT).of_sessions(sessions)
    [found] = read_dissatisfaction(lake, TENANT_DEFAULT, {"served": follow_ups}).values()
    interval = found.interval()
    if interval is None or found.rate.value is None:
        return None
    return found.rate.value, (interval.high - interval.low) / 2


@dataclass(frozen=True)
class JudgeMiss:
    """Distances of rates of dissatisfied users from the truth: of the judge's own rate, and of the
    rate that labels correct, where people labelled messages."""

    checkpoint: str
    judged: float | None
    corrected: float | None

    @classmethod
    def of(
        cls,
        checkpoint: str,
        measured: UserReaction,
        known: UserReaction,
        corrected: RateAndMargin | None,
    ) -> "JudgeMiss":
        def miss(rate: float | None) -> float | None:
            true = known.dissatisfied
            return None if rate is None or true is None else abs(rate - true)

        return cls(checkpoint, miss(measured.dissatisfied), miss(corrected and corrected[0]))


def judge_sentences(misses: Sequence[JudgeMiss]) -> str:
    """Say how far the judge was from the truth at the most, in all lines that were shown."""
    judged = max((miss for miss in misses if miss.judged is not None), key=_judged, default=None)
    if judged is None:
        return "The judge read no message."
    text = (
        f"The judge's rate of dissatisfied users was up to {100 * _judged(judged):.0f} points from"
        f" the truth, for {judged.checkpoint}: it is a small model, and errs more on some"
        " checkpoints than on others."
    )
    if corrected := [miss.corrected for miss in misses if miss.corrected is not None]:
        text += (
            " Where a rollback decides, labels of messages that chance draws correct it: that was"
            f" up to {100 * max(corrected):.0f} points from the truth."
        )
    return text


def _judged(miss: JudgeMiss) -> float:
    return miss.judged or 0.0
