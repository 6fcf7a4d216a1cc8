"""edit_persistence: how much of what the agent wrote is still there.

Measures: whose text survived. Each character of a file carries who wrote it; an edit owns what
the difference of its `before` and `after` put in. The agent's next edits, observations and commits
are compared with the file as it was: what they keep, move or only format anew keeps its owner,
also through a move to another file and when an undo brings it back.

Formula, at a horizon h, white space never counted:

    persistence = Σ over written lines of owned(line) · d(line) / (written − reworked)

`owned` is how many of the edit's characters are still there; d is 1 for a line of which all is
there with nothing put in between, else sim4(line now, line as written). `written` are the
characters that the edit put in, `reworked` those that later edits of the same session replaced.
An edit that only took away: 1 − characters that came back at its place (discounted in the same
way) / characters taken away; what the agent itself brings back counts as neither.

Range: 0, nothing is left, to 1, untouched. Weight: written characters (taken away, where it only
took away) to the power of `weight_exponent`.

pending: nobody has looked, and there is time left. censored: `unobserved`; `branch_changed`, all
looks were at another branch; `workspace_gone`, the session had ended and nothing was looked at any
more; `path_lost`, its text went to another file at which nobody looked; `self_rework`, the agent
replaced all of it. invalid: `before_mismatch`, the text that it says it replaced is not there, or
is there several times; `undecodable`; `too_expensive`; `nothing_written`, only white space or
nothing changed, or only places.

To game it: write what nobody will read or dares to touch (long comments, generated files: the
weight limits how much they count); edit less or ask instead (watch the rate of edits); rewrite
one's own text before the user does (read it beside self_rework).
"""

import pyarrow as pa

from penstock_jobs.rewards.bucket import Bucket, EditParameters
from penstock_jobs.rewards.edit_scores import EditScore, ink_size, score_deletion, score_edits
from penstock_jobs.rewards.reward import Reward
from penstock_jobs.rewards.texts.changes import CompareCost
from penstock_jobs.rewards.texts.survival import credit, reworked_places, survivors
from penstock_jobs.rewards.texts.trail import Sighting, TrackedEdit

NAME = "edit_persistence"


def edit_persistence(bucket: Bucket, parameters: EditParameters) -> pa.Table:
    """The rows of this reward: module docstring."""

    def score(edit: TrackedEdit, sighting: Sighting) -> EditScore:
        if edit.deleted:
            return _deletion(edit, sighting, CompareCost(parameters.cells_max))
        return _insertion(edit, sighting)

    return score_edits(NAME, bucket, parameters, score, ink_size)


def _insertion(edit: TrackedEdit, sighting: Sighting) -> EditScore:
    if edit.is_as_made(sighting):
        return EditScore(1.0)
    alive = survivors(edit, sighting)
    whole = [(origin, origin + length) for origin, _, _, length in alive] == edit.written
    if whole and not sighting.reworked:
        return EditScore(1.0)
    taken = reworked_places(sighting, alive)
    left = edit.ink_size - sum(not edit.after[at].isspace() for at in taken)
    if left <= 0:
        return EditScore(None, "self_rework")
    return EditScore(min(credit(edit.after, edit.written, alive, taken) / left, 1.0))


def _deletion(edit: TrackedEdit, sighting: Sighting, cost: CompareCost) -> EditScore:
    def value(back: float, own: int) -> EditScore:
        left = edit.ink_size - own
        if left <= 0:
            return EditScore(None, "self_rework")
        return EditScore(max(1 - back / left, 0.0))

    return score_deletion(edit, sighting, cost, value)


REWARD = Reward(NAME, 2, edit_persistence, EditParameters)
