"""The errors of checkpoints."""

from penstock.errors import PenstockError


class CheckpointUnknown(PenstockError, exit_status=2, http_status=404):
    """There is no checkpoint {name!r}; `penstock checkpoints list` shows those there are."""


class AttemptConflict(PenstockError, http_status=409):
    """Attempt {attempt} of {checkpoint} at the task {task} of {suite} is known with another
    result, from the run {run}, or was another trial. Nothing was kept: scores never change. Import
    further attempts under numbers of their own, with --first-attempt."""


class CheckpointConflict(PenstockError, http_status=409):
    """The checkpoint {name} cannot be registered: {why}. Nothing was changed. A name and a digest
    mean one checkpoint for ever; another one takes another name."""


class DigestMismatch(PenstockError, exit_status=2, http_status=422):
    """The files at {uri} have the digest {found}, not {digest}. Nothing was registered: they are
    not the checkpoint that was meant, or are not complete."""


class LineageBroken(PenstockError, http_status=409):
    """The checkpoint {name} cannot be put together: {why}. A delta needs each of its parents, down
    to a whole checkpoint."""


class StateRefused(PenstockError, http_status=409):
    """The checkpoint {name} is {state}, and cannot become {wanted}: {why}."""
