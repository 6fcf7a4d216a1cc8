"""How good the local judge is on messages held out from it: `python -m bench.judge_quality`.

The tables of bench/pages/rewards.md are what it prints."""

from collections.abc import Iterator, Sequence

from penstock_jobs.rewards.followups.judge import (
    DISSATISFIED,
    LABELS,
    THRESHOLD,
    Example,
    Judgement,
    Message,
    Quality,
    evaluate,
    fresh_examples,
    held_out_examples,
)
from penstock_jobs.rewards.followups.local_judge import local_judge
from penstock_jobs.simulator.files import check_out, names_of
from penstock_jobs.simulator.grammar import TONGUES, Dice, phrases
from tests.support.labelled_messages import EVERYDAY, HELD_OUT, labelled_messages

_ACTS = {
    "satisfied": (
        "request_code", "request_tests", "request_docs", "request_deletion", "request_question",
        "request_terminal", "detail", "accept", "refine", "ask", "small_talk", "answer", "give_up",
    ),
    "dissatisfied": ("incomplete", "correct", "failure", "revert", "complain"),
}  # fmt: skip
#: Each phrase is said about so often, with other names.
_TIMES = 4


def _sets() -> dict[str, Sequence[Example]]:
    return {
        "everyday": labelled_messages(EVERYDAY),
        "twenty languages": labelled_messages(HELD_OUT),
        "tripping a judge of words": fresh_examples(),
        "of the package's examples": [each for each in held_out_examples() if not each.fresh],
    }


def _tables() -> Iterator[str]:
    judge = local_judge()
    yield "| messages | how many | precision | recall | F1, 95 % | Brier | calibration error |"
    yield "|---|---|---|---|---|---|---|"
    for name, examples in _sets().items():
        found = evaluate(judge, examples)
        bad: Quality = found.dissatisfied
        low, high = bad.intervals["f1"]
        yield (
            f"| {name} | {len(examples)} | {bad.precision:.2f} | {bad.recall:.2f} |"
            f" {bad.f1:.2f} ({low:.2f} to {high:.2f}) | {found.brier:.3f} |"
            f" {found.dissatisfied_calibration_error:.3f} |"
        )
    everyday = labelled_messages(EVERYDAY)
    found = evaluate(judge, everyday)
    yield "\n| probability | it said | it was | messages |"
    yield "|---|---|---|---|"
    for each in found.dissatisfied_reliability:
        span = f"{each.low:.1f} to {each.high:.1f}"
        yield f"| {span} | {each.predicted:.2f} | {each.observed:.2f} | {each.count} |"
    said = judge.judge([each.message for each in everyday])
    right = {True: [0, 0], False: [0, 0]}
    for example, judged in zip(everyday, said, strict=True):
        counts = right[not 0.35 <= judged.dissatisfied < 0.65]
        counts[0] += (judged.dissatisfied >= THRESHOLD) == (example.label in DISSATISFIED)
        counts[1] += 1
    yield "\nsure: {} of {} right; unsure: {} of {}".format(*right[True], *right[False])
    of_label = {label: found.confusion[label] for label in LABELS}
    yield "right label: " + ", ".join(
        f"{label} {own[label]} of {sum(own.values())}" for label, own in of_label.items()
    )
    yield "\n| phrases of the simulator | satisfied, above 0.5 | dissatisfied, below 0.5 |"
    yield "|---|---|---|"
    for name, held_out in (("two thirds", False), ("the third that nobody saw", True)):
        pleased, displeased = (_said(what, held_out=held_out) for what in _ACTS)
        above = [one.dissatisfied > THRESHOLD for one in pleased]
        below = [one.dissatisfied < THRESHOLD for one in displeased]
        yield f"| {name} | {_mean(above)} | {_mean(below)} |"


def _said(mood: str, *, held_out: bool) -> list[Judgement]:
    sources = [file.source for file in check_out(1)]
    names, dice = names_of(Dice(1), sources[0], sources), Dice(3)
    messages = []
    for act in _ACTS[mood]:
        # A detail comes right after the request; an answer after a question.
        agent = {"detail": "", "answer": "Shall I go on with it?"}.get(act, "Done.")
        for tongue in TONGUES:
            own = phrases(tongue, held_out=held_out)
            texts = own.expand_many(act, dice, names, _TIMES * len(own.shapes(act)))
            messages += [
                Message(text=text, agent=agent, edited=bool(agent)) for text in dict.fromkeys(texts)
            ]
    return local_judge().judge(messages)


def _mean(flags: Sequence[bool]) -> str:
    return f"{sum(flags) / len(flags):.2f} of {len(flags):,}"


if __name__ == "__main__":
    print("\n".join(_tables()))
