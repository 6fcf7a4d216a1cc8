"""The rewards of edits: how much of their text survived, and the forms that editors publish."""

from functools import cache
from operator import attrgetter

import pyarrow as pa

from penstock_jobs.rewards.bucket import Bucket, EditParameters
from penstock_jobs.rewards.definition import Reward
from penstock_jobs.rewards.edit_scores import EditScore, score_edits
from penstock_jobs.rewards.texts import similarity, survival
from penstock_jobs.rewards.texts.changes import CompareCost
from penstock_jobs.rewards.texts.trail import Sighting, TrackedEdit, ranges_now


def edit_persistence(bucket: Bucket, parameters: EditParameters) -> pa.Table:
    """edit_persistence: how much of what the agent wrote is still there.

    Measures: whose text survived. Each character of a file carries who wrote it; an edit owns what
    the difference of its `before` and `after` put in. Later edits, observations and commits are
    compared with the file as it was: text that they keep, move or only format anew keeps its owner,
    also in another file and when an undo brings it back. Text that others comment out, or put
    where it never runs (`if False:`), is gone.

    Formula, at a horizon h, white space never counted:

        persistence = Σ over written lines of owned(line) · d(line) / (written − reworked)

    `owned` is how many of the edit's characters are still there; d is 1 for a line that is all
    there with nothing put in between, else sim4(line now, line as written). `written` are the
    characters that the edit put in, `reworked` those that later edits of the session replaced. An
    edit that only took away: 1 − characters that came back at its place (discounted in the same
    way) / characters taken away, without what the agent itself brings back.

    Range: 0, nothing is left, to 1, untouched. Weight: the denominator (characters taken away,
    where it only took away) to the power of `weight_exponent`.
    pending: nobody has looked, and there is time left. censored: `unobserved`; `branch_changed`,
    all looks were at another branch; `workspace_gone`, nobody looked after the session had ended;
    `path_lost`, its text went to a file at which nobody looked; `self_rework`, the agent replaced
    all of it. invalid: `before_mismatch`, the text that it says it replaced is not there, or there
    several times; `undecodable`; `too_expensive`; `nothing_written`, only white space, places or
    nothing changed.
    To game it: write what nobody will read or dares to touch (long comments, generated files); edit
    less or ask instead (watch the rate of edits); rewrite one's own text before the user does (read
    it beside self_rework).
    """

    def score(edit: TrackedEdit, sighting: Sighting) -> EditScore:
        if edit.deleted:
            if sighting.home is None:
                return EditScore(None, "path_lost")
            cost = CompareCost(parameters.cells_max)
            back, own = survival.returned(edit, sighting.home, cost)
            left = edit.ink_size - own
            if left <= 0:
                return EditScore(None, "self_rework")
            return EditScore(max(1 - back / left, 0.0), weighs=left / edit.ink_size)
        if edit.is_as_made(sighting):
            return EditScore(1.0)
        alive = still = survival.survivors(edit, sighting)
        if any(state.language for state in sighting.holders):
            still = survival.still_running(edit, alive)
        whole = [(origin, origin + length) for origin, _, _, length in still] == edit.written
        if whole and not sighting.reworked:
            return EditScore(1.0)
        taken = survival.reworked_places(sighting, alive)
        left = edit.ink_size - _ink_at(edit, taken)
        if left <= 0:
            return EditScore(None, "self_rework")
        kept = survival.credit(edit.after, edit.written, still, taken)
        return EditScore(min(kept / left, 1.0), weighs=left / edit.ink_size)

    return score_edits("edit_persistence", bucket, parameters, score, attrgetter("ink_size"))


def self_rework(bucket: Bucket, parameters: EditParameters) -> pa.Table:
    """self_rework: how much of its own work the agent did again.

    Measures: which share of an edit's text later edits of the same session replaced, before or
    after the user had anything to say. It is neither survival nor the user's rejection, so
    edit_persistence leaves it out; read the two together.

    Formula, at a horizon, white space not counted: characters that a later edit of the session took
    away and nobody brought back / characters written. For an edit that only took away: characters
    that later edits of the session brought back at its place / characters taken away.

    Range: 0, none, to 1, all: lower is better. Weight: characters written (taken away) to the power
    of `weight_exponent`.
    pending, censored, invalid: as edit_persistence says, without `self_rework`.
    To game it: make one large edit instead of several small ones, or leave a mistake as it is. It
    is for watching: as a penalty it teaches not to correct.
    """

    def score(edit: TrackedEdit, sighting: Sighting) -> EditScore:
        if edit.deleted:
            if sighting.home is None:
                return EditScore(None, "path_lost")
            cost = CompareCost(parameters.cells_max)
            _, own = survival.returned(edit, sighting.home, cost)
            return EditScore(own / edit.ink_size)
        if not sighting.reworked:
            return EditScore(0.0)
        taken = survival.reworked_places(sighting, survival.survivors(edit, sighting))
        return EditScore(_ink_at(edit, taken) / edit.ink_size)

    return score_edits("self_rework", bucket, parameters, score, attrgetter("ink_size"))


def line_survival(bucket: Bucket, parameters: EditParameters) -> pa.Table:
    """line_survival: how many of the lines that the agent wrote are still its own.

    Measures: what one checks by hand with `git blame -w -M -C`. A line is the edit's when the edit
    wrote a character of it, or made it by shortening, splitting or joining lines. It survives while
    it is there as the edit left it, white space aside, at whatever place and in whatever file, and
    still holds text of the edit.

    Formula, at a horizon: surviving lines / (lines written − lines that later edits of the same
    session changed).

    Range: 0 to 1. Weight: the denominator to the power of `weight_exponent`.
    pending, censored, invalid: as edit_persistence says. `self_rework` where the agent changed all
    of the lines itself; `nothing_written` also where the edit only took away: blame shows no
    deletions.
    To game it: write many short lines that nobody has a reason to touch; compare with
    edit_persistence, which counts characters.
    """
    lines_of = cache(survival.written_lines)

    def score(edit: TrackedEdit, sighting: Sighting) -> EditScore:
        lines = lines_of(edit)
        if not lines:
            return EditScore(None, "nothing_written")
        cost = CompareCost(parameters.cells_max)
        alive, reworked = survival.surviving_lines(edit, lines, sighting, cost)
        if (left := len(lines) - reworked) == 0:
            return EditScore(None, "self_rework")
        return EditScore(alive / left, weighs=left / len(lines))

    return score_edits("line_survival", bucket, parameters, score, lambda edit: len(lines_of(edit)))


def _ink_at(edit: TrackedEdit, places: set[int]) -> int:
    return sum(not edit.after[at].isspace() for at in places)


def edit_no_revert(bucket: Bucket, parameters: EditParameters) -> pa.Table:
    """edit_no_revert: whether the text went back to what it was before the edit.

    Measures: reverting, as it is published. It stays 1 when the user changes the agent's text to
    something new, and falls only where the text becomes more like the text before.

    Formula, for each stretch that the edit replaced, carried through later changes; text put at its
    edges joins it:

        1 − max(sim4(now, before) − sim4(after, before), 0) / (1 − sim4(after, before))

    The mean over the stretches, weighted by the length of the text that each replaced. 1 where
    sim4(after, before) is 1, and for an edit that replaced nothing. sim4 is the share of character
    4-grams that two texts have in common; lengths are in UTF-16 code units, white space included.

    Range: 0, all is as it was, to 1. Weight: characters replaced to the power of `weight_exponent`;
    so an edit that replaced nothing weighs nothing.
    pending, censored, invalid: as edit_persistence says, without `self_rework`: the published form
    does not ask who changes the text. The text of a file that was deleted or renamed is empty.
    To game it: insert, and never replace; or replace by text that is like the old one.
    """

    def score(edit: TrackedEdit, sighting: Sighting) -> EditScore:
        if edit.is_as_made(sighting):
            return EditScore(1.0)
        now = ranges_now(edit, sighting)
        texts = [(*before_after, text) for before_after, text in zip(edit.ranges, now, strict=True)]
        return EditScore(similarity.no_revert_range(texts))

    return score_edits("edit_no_revert", bucket, parameters, score, attrgetter("units_replaced"))


def four_gram_range(bucket: Bucket, parameters: EditParameters) -> pa.Table:
    """four_gram_range: how like what the agent wrote the same stretches still are, as published.

    Measures: what editors that stay attached report, for comparison with what a team knows;
    edit_persistence is the measure to train on, and says what this one misses.

    Formula, over the stretches that the edit wrote, carried through later changes; text put at
    their edges joins them:

        Σ length(written) · sim4(now, written) / Σ length(written)

    sim4, lengths and files that are gone as in edit_no_revert. 1 where nothing was written. Moved
    text is gone.

    Range: 0 to 1. Weight: characters written to the power of `weight_exponent`.
    pending, censored, invalid: as edit_no_revert says.
    To game it: as edit_persistence; and edits that only take away are always 1, with no weight.
    """

    def score(edit: TrackedEdit, sighting: Sighting) -> EditScore:
        if edit.is_as_made(sighting):
            return EditScore(1.0)
        now = ranges_now(edit, sighting)
        texts = [(changed.after, text) for changed, text in zip(edit.ranges, now, strict=True)]
        return EditScore(similarity.four_gram_range(texts))

    return score_edits("four_gram_range", bucket, parameters, score, attrgetter("units_written"))


def four_gram_presence(bucket: Bucket, parameters: EditParameters) -> pa.Table:
    """four_gram_presence: how much of what the agent wrote is anywhere in the file, as published.

    Measures: what editors report that know only the written pieces and the file as it is now, for
    comparison with what a team knows. Boilerplate keeps deleted edits alive in it.

    Formula, over the written pieces: Σ max(1, length − 3) · presence / Σ max(1, length − 3), where
    presence is the share of the piece's character 4-grams, by position, that occur anywhere in the
    file; a shorter piece is in it or is not. An edit that wrote nothing is measured by the
    similarity sim4 of the whole file, now and right after the edit. A deleted file is 0. Lengths
    are in UTF-16 code units; white space counts.

    Range: 0 to 1. Weight: characters written to the power of `weight_exponent`.
    pending, censored, invalid: as edit_no_revert says. `unobserved` also where nothing was written
    and the file was not known as a whole when the edit was made.
    To game it: write what is in the file anyway.
    """

    def score(edit: TrackedEdit, sighting: Sighting) -> EditScore:
        if edit.is_as_made(sighting):
            return EditScore(1.0)
        now = sighting.home.text if sighting.home else ""
        chunks = [changed.after for changed in edit.ranges if changed.after]
        if chunks:
            return EditScore(similarity.four_gram_presence(chunks, now))
        if edit.made is None or not (edit.made.whole or now == edit.made.text):
            return EditScore(None, "unobserved")
        return EditScore(similarity.sim4(now, edit.made.text))

    return score_edits("four_gram_presence", bucket, parameters, score, attrgetter("units_written"))


_OWN = (edit_persistence, self_rework, line_survival)
_PUBLISHED = (edit_no_revert, four_gram_range, four_gram_presence)
REWARDS = tuple(Reward(score.__name__, 3, score, EditParameters) for score in _OWN + _PUBLISHED)
