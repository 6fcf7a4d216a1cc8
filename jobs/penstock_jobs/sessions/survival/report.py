"""The page of survival on a terminal."""

from collections.abc import Iterable

from penstock.backends.terminal.output import say, show_table, show_text
from penstock_jobs.sessions.survival.counting import HORIZONS, LineGroup, SurvivalAnswer, percent


def show_survival(answer: SurvivalAnswer) -> None:
    show_text(answer.sentence, "")
    whole = answer.all
    if not whole.lines:
        say("Import some: `penstock import --discover`.")
        return
    show_table(
        ["after", "stands", "of lines", "unknown", "too young"],
        [
            [HORIZONS[share.horizon_s], percent(share.low, share.high), share.lines, share.unknown,
             share.pending]
            for share in whole.shares
        ],
    )  # fmt: skip
    if answer.unknown:
        reasons = (f"{reason} {lines:,}" for reason, lines in answer.unknown.items())
        show_text("", f"Unknown after a week, in lines: {', '.join(reasons)}.")
    for kind, groups in answer.by.items():
        show_text("")
        _show_groups(kind, groups)
    for own in answer.agreements:
        alone = (
            f"{own.only_records:,} are in its records only, {own.only_sessions:,} in sessions only"
        )
        show_text("", f"Sessions and {own.source} agree on {own.both:,} lines; {alone}.")
    thrown = answer.thrown_away
    if thrown.edits:
        said = f"Thrown away at once: {thrown.edits:,} edits of {thrown.lines:,} lines"
        cost = f"; models wrote {thrown.completion_tokens:,} tokens for them"
        show_text("", f"{said}{cost if thrown.completion_tokens else ''}.")
        columns = ["file", "lines", "by", "written", "read", "tool", "model", "session"]
        rows = [
            [edit.path, round(edit.lines), "the agent" if edit.by_agent else "others",
             _tokens(edit.completion_tokens), _tokens(edit.prompt_tokens), edit.tool, edit.model,
             edit.session_id]
            for edit in thrown.longest
        ]  # fmt: skip
        show_table(columns, rows)


def _show_groups(kind: str, groups: Iterable[LineGroup]) -> None:
    rows = [
        [group.label or "unknown", group.edits, group.lines]
        + [percent(share.low, share.high) for share in group.shares]
        for group in groups
    ]
    show_table([kind, "edits", "lines", *HORIZONS.values()], rows)


def _tokens(number: float | None) -> str | None:
    return None if number is None else f"{number:,.0f}"
