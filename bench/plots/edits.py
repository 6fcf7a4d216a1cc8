"""The rewards of edits, against what happened to the text."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa

from bench.plots import stories
from bench.plots.drawing import label, legend_beside, panels, shares
from bench.plots.stories import HEAD, OTHER, TAIL, WRITTEN, text_of, with_another_word
from penstock_jobs.rewards.bucket import EditParameters
from penstock_jobs.rewards.measures.edits import edit_persistence
from penstock_jobs.rewards.measures.work_left import WorkParameters, taken_back, work_left
from penstock_jobs.rewards.texts.survival import sim4
from tests.support.rewards.measures import value
from tests.support.rewards.stories import Story, bucket, found

_SHARES = shares(20)
_FILES = (1, 2, 5, 10, 20, 50, 100)
_HORIZON_S = 30


def edit_persistence_plot(path: Path) -> None:
    ways: dict[str, Callable[[float], Story]] = {
        "only indented anew": partial(stories.after, stories.indented),
        "moved to another place": stories.moved,
        "lines deleted": partial(stories.after, stories.deleted),
        "the ends of all lines rewritten": partial(stories.after, stories.with_new_ends),
        "single characters changed": partial(stories.after, stories.with_other_characters),
    }
    with panels(path) as [axes]:
        for name, way in ways.items():
            worth = [value("edit_persistence", way(share)) for share in _SHARES]
            axes.plot(_SHARES, worth, label=name)
        label(axes, "share of what the agent wrote that was touched", "edit_persistence")
        legend_beside(axes)


def line_survival_plot(path: Path) -> None:
    with panels(path) as [axes]:
        for name in ("line_survival", "edit_persistence"):
            for way, words in (
                (stories.deleted, "lines deleted"),
                (stories.with_another_word, "a word of the line changed"),
            ):
                worth = [value(name, stories.after(way, share)) for share in _SHARES]
                axes.plot(_SHARES, worth, label=f"{name}: {words}")
        label(axes, "share of the written lines that were touched", "value")
        legend_beside(axes)


def edit_no_revert_plot(path: Path) -> None:
    before = with_another_word(WRITTEN, 1.0)

    def story(share: float, instead: Sequence[str]) -> Story:
        """The agent changes a word of each line; then the user touches some of the lines."""
        chosen = round(share * len(WRITTEN))
        now = text_of(HEAD, instead[:chosen], WRITTEN[chosen:], TAIL)
        made = text_of(HEAD, WRITTEN, TAIL)
        return Story().edit(0, text_of(HEAD, before, TAIL), made).look(31, now)

    with panels(path) as [axes]:
        for name, instead in (
            ("put back as they were", before),
            ("replaced by something new", OTHER),
            ("deleted", []),
        ):
            worth = [value("edit_no_revert", story(share, instead)) for share in _SHARES]
            axes.plot(_SHARES, worth, label=name)
        label(axes, "share of the edited lines that the user touched", "edit_no_revert")
        legend_beside(axes)


def self_rework_plot(path: Path) -> None:
    def story(share: float, kept: float) -> Story:
        """The agent rewrites a share of its lines; then the user keeps a share of the others."""
        chosen = round(share * len(WRITTEN))
        made = text_of(HEAD, WRITTEN, TAIL)
        again = [*OTHER[:chosen], *WRITTEN[chosen:]]
        left = chosen + round(kept * (len(WRITTEN) - chosen))
        told = Story().edit(0, text_of(HEAD, TAIL), made)
        told.edit(5, made, text_of(HEAD, again, TAIL))
        return told.look(31, text_of(HEAD, again[:left], TAIL))

    below_1 = _SHARES[:-2]
    with panels(path) as [axes]:
        reworked = [value("self_rework", story(share, 1.0)) for share in _SHARES]
        axes.plot(_SHARES, reworked, label="self_rework")
        for kept, words in ((1.0, "keeps all the rest"), (0.5, "deletes half of the rest")):
            worth = [value("edit_persistence", story(share, kept)) for share in below_1]
            axes.plot(below_1, worth, label=f"edit_persistence: the user {words}")
        label(axes, "share of its lines that the agent itself rewrote", "value")
        legend_beside(axes)


def four_grams_plot(path: Path) -> None:
    names = ("four_gram_range", "four_gram_presence", "edit_persistence")
    with panels(path, columns=2, size=(4.4, 3.0)) as [replaced, grows]:
        for name in names:
            told = [stories.after(stories.with_new_ends, share) for share in _SHARES]
            replaced.plot(_SHARES, [value(name, one) for one in told], label=name)
        label(replaced, "share of each line that was replaced", "value", "text is replaced")
        replaced.legend()
        around = [stories.lines_of(100 + size, len(WRITTEN) * size) for size in _FILES]
        for name in names:
            told = [_gone(lines) for lines in around]
            grows.plot(_FILES, [value(name, one) for one in told], label=f"{name}, deleted")
        whole = [sim4(text_of(lines, WRITTEN), text_of(WRITTEN)) for lines in around]
        grows.plot(_FILES, whole, label="sim4 of edit and file, untouched")
        grows.set_xscale("log")
        label(grows, "file, in sizes of the edit", "value", "the file grows around the edit")
        grows.legend(loc="center right")


def _gone(lines: list[str]) -> Story:
    """What was written is deleted again; the file around it is large."""
    told = Story().edit(0, text_of(lines), text_of(lines, WRITTEN))
    return told.look(31, text_of(lines))


def work_left_plot(path: Path) -> None:
    """A bad edit of ten lines, which the user writes anew, beside a file that the user leaves."""
    bad, own = WRITTEN[:10], OTHER[:10]
    sizes = range(0, 201, 10)

    def story(size: int) -> Story:
        beside = text_of(stories.lines_of(7, size)) if size else None
        told = Story().look(-1, text_of(HEAD, TAIL))
        told.edit(0, text_of(HEAD, TAIL), text_of(HEAD, bad, TAIL))
        if beside:
            told.edit(1, None, beside, "b.py")
            told.look(32, beside, "b.py")
        return told.look(31, text_of(HEAD, own, TAIL))

    def of_all(rows: pa.Table) -> float:
        return float(found(rows, "s-1", _HORIZON_S, "session")["value"])

    with panels(path, columns=2, size=(4.4, 3.0)) as [beside, done]:
        tables = [bucket(story(size)) for size in sizes]
        of_share = [of_all(edit_persistence(one, EditParameters())) for one in tables]
        beside.plot(sizes, of_share, label="edit_persistence")
        beside.plot(sizes, [of_all(work_left(one, WorkParameters())) for one in tables],
                    label="work_left")  # fmt: skip
        beside.plot(sizes, [of_all(taken_back(one, WorkParameters())) for one in tables],
                    label="taken_back")  # fmt: skip
        label(beside, "lines of another file beside it", "value", "a rejected edit of ten lines")
        beside.legend(loc="center right")
        counts = range(41)
        parts = [
            Story()
            .look(-1, text_of(HEAD, TAIL))
            .edit(0, text_of(HEAD, TAIL), text_of(HEAD, WRITTEN[:count], TAIL))
            .look(31, text_of(HEAD, WRITTEN[:count], OTHER[count:], TAIL))
            for count in counts[1:]
        ]
        shares_done = [count / 40 for count in counts[1:]]
        done.plot(shares_done, [of_all(work_left(bucket(one), WorkParameters())) for one in parts],
                  label="work_left")  # fmt: skip
        done.plot(
            shares_done,
            [of_all(edit_persistence(bucket(one), EditParameters())) for one in parts],
            label="edit_persistence",
        )
        label(done, "share of the task that the agent did", "value", "the user does the rest")
        done.legend(loc="center left")


def weights_plot(path: Path) -> None:
    """A generated file that was thrown away, beside a hundred careful edits that stayed."""
    sizes = (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000)
    buckets = [bucket(_generated(size)) for size in sizes]
    with panels(path) as [axes]:
        for exponent in (0.0, 0.5, 1.0):
            parameters = EditParameters(horizons_s=(_HORIZON_S,), weight_exponent=exponent)
            rows = [edit_persistence(one, parameters) for one in buckets]
            worth = [found(one, "1", _HORIZON_S, "turn")["value"] for one in rows]
            axes.plot(sizes, worth, label=f"weight_exponent = {exponent:g}")
        axes.set_xscale("log")
        axes.set_ylim(-0.05, 1.05)
        label(
            axes,
            "characters of the generated file that was deleted",
            "edit_persistence of the turn",
            "a turn with one generated file, deleted, and 100 edits of one line that stayed",
        )
        legend_beside(axes)


def _generated(chars: int) -> Story:
    story = Story().turn(0).edit(0.5, None, "g" * chars + "\n", "generated.json")
    texts: dict[str, str] = {}
    for number, line in enumerate(stories.lines_of(9, 100)):
        path = f"src/part_{number}.py"
        texts[path] = f"{line}\n"
        story.edit(1 + number / 100, None, texts[path], path)
    story.look(31, None, "generated.json")
    for path, text in texts.items():
        story.look(32.5, text, path)
    return story
