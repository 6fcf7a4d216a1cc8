"""The error family. A class's docstring is the message a person reads.

Each message says what happened, to what, and what to do. Facts are passed by name and fill
the braces of the docstring; they stay readable as `error.facts`.
"""

import inspect
from functools import partial
from typing import Any, ClassVar


class PenstockError(Exception):
    """Something went wrong inside Penstock: {what}."""

    #: What the command line returns: 1 refused, 2 wrong usage or input, 3 unreachable.
    exit_status: ClassVar[int] = 1
    #: What HTTP answers.
    http_status: ClassVar[int] = 500

    def __init__(self, **facts: object) -> None:
        super().__init__(facts)
        self.facts = facts

    def __str__(self) -> str:
        return inspect.cleandoc(type(self).__doc__ or "").format(**self.facts)

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors travel between processes with their facts."""
        return partial(type(self), **self.facts), ()


# What the caller sent, or lacks


class ExtraMissing(PenstockError):
    """{what} needs more than the base install: pip install 'penstock[{extra}]'."""

    exit_status = 2


class InvalidInput(PenstockError):
    """{what} cannot be used: {why}."""

    exit_status = 2
    http_status = 400


class SettingInvalid(PenstockError):
    """The setting {name} from {origin} cannot be used: {why}."""

    exit_status = 2


class BodyUnreadable(PenstockError):
    """The request body could not be read: {why}. Nothing of it was accepted."""

    exit_status = 2
    http_status = 400


class BodyTooLarge(PenstockError):
    """The request body is over the limit of {limit_bytes} bytes {measure}.
    Nothing of it was accepted; send less in one request."""

    exit_status = 2
    http_status = 413


class EncodingUnknown(PenstockError):
    """The content encoding {encoding} is not known; send gzip, zstd or none."""

    exit_status = 2
    http_status = 415


class QueryRefused(PenstockError):
    """The query was refused: {why}."""

    exit_status = 2
    http_status = 400


class QueryFailed(PenstockError):
    """The query failed: {why}"""

    exit_status = 2
    http_status = 400


class QueryLimitReached(PenstockError):
    """The query was stopped: it reached its limit of {limit}.
    Narrow it, or raise {setting}."""

    exit_status = 1
    http_status = 422


class SessionUnknown(PenstockError):
    """No segment holds a session {session!r} of the tenant {tenant}. What was sent in the last
    seconds may be in the log alone."""

    exit_status = 2
    http_status = 404


class SnapshotUnknown(PenstockError):
    """There is no snapshot {name}; `penstock snapshots list` shows those there are.
    A time is written as RFC 3339, with its zone."""

    exit_status = 2
    http_status = 404


class HistoryRemoved(PenstockError):
    """The lake as it was at {when} can no longer be read: files that it held were collected.
    Name a snapshot before compaction to keep it for ever."""

    exit_status = 1
    http_status = 410


class SnapshotExists(PenstockError):
    """There is a snapshot named {name} already; drop it first, or take another name."""

    exit_status = 2
    http_status = 409


# Who may do what


class KeyRefused(PenstockError):
    """The request carries no key that is known here.
    Send `Authorization: Bearer <key>`; `penstock keys create` makes one."""

    http_status = 401


class RoleMissing(PenstockError):
    """The key is known, but this needs the role {role}."""

    http_status = 403


# Overload and outages: try again later


class Backlogged(PenstockError):
    """No room for more events now: {why}. Nothing of the request was accepted.
    Send it again in {retry_after_s} s."""

    http_status = 503

    def __init__(self, *, why: str, retry_after_s: int = 1) -> None:
        super().__init__(why=why, retry_after_s=retry_after_s)
        self.retry_after_s = retry_after_s


class TooManyRequests(Backlogged):
    """Too much at the same time for this key: {why}.
    Send it again in {retry_after_s} s."""

    http_status = 429


class CutOff(Backlogged):
    """The service ended before the request was answered. Whether events of it were taken in is
    not known. Send it again in {retry_after_s} s."""

    def __init__(self) -> None:
        super().__init__(why="the service ends")


class LogUnwritable(Backlogged):
    """The event log cannot be written: {why}. Nothing of the request was accepted.
    Send it again in {retry_after_s} s."""


class DatabaseUnreachable(PenstockError):
    """The metadata database cannot be used: {why}."""

    exit_status = 3
    http_status = 503


class StoreUnreachable(PenstockError):
    """The object store {where} cannot be reached: {why}.
    Tries go on as long as something is to be done there; look whether the service is up."""

    exit_status = 3
    http_status = 503


class StoreRefused(PenstockError):
    """The object store {where} refused: {why}. {hint}."""

    exit_status = 3
    http_status = 503


class LakeMissing(PenstockError):
    """There is no lake at {where} yet. `penstock serve` or `penstock import` makes one;
    --data or PENSTOCK_DATA names another directory."""

    exit_status = 2


class DatabaseOutdated(PenstockError):
    """The metadata database is at revision {found}, this Penstock needs {needed}.
    Run `penstock db upgrade`, or, when the database is the newer one, a newer Penstock."""

    exit_status = 1
    http_status = 503


class ServerUnreachable(PenstockError):
    """No answer from {url}: {why}."""

    exit_status = 3


class ServiceAddressTaken(PenstockError):
    """Cannot listen on {host}:{port}: {why}. Choose another with --port."""

    exit_status = 3


# The event log and the writer


class LogCorrupt(PenstockError):
    """The event log file {path} is damaged at byte {position}, before its end: {why}.
    Nothing was cut off. Restore the file, or move the whole log directory away, so that a new
    log is started; the ledger will show the gap."""


class LogTruncated(PenstockError):
    """Partition {partition} of the event log ends at {end}, but the lake has covered it up
    to {covered}: the log was cut or replaced by an older one. Restore it, or move the log
    directory away, so that a new log is started."""


class LogShapeChanged(PenstockError):
    """The event log at {path} was made with {found} partitions, the settings say {wanted}.
    Sessions would change partition, so that is refused; set PENSTOCK_LOG_PARTITIONS={found}."""

    exit_status = 2


class FencedOff(PenstockError):
    """Another writer took partition {partition} over: this one expected epoch {epoch} at
    offset {expected}. Nothing was committed; the other writer has the events."""


class LogGrew(PenstockError):
    """The event log has {found} partitions by now, this writer went by {believed}. Nothing was
    committed; it starts over by the new number, where sessions are in other partitions."""


class LogExpired(PenstockError):
    """Partition {partition} of the event log begins at {first} now, and the lake covered it up
    to {covered}: its retention ran ahead of the writer. What lay between is lost; the gap is
    entered in the ledger. Give the topic a longer retention, or the writers more room."""


class LogUnreachable(PenstockError):
    """The event log {where} cannot be reached: {why}."""

    exit_status = 3
    http_status = 503


class LogUnsuitable(PenstockError):
    """The event log {where} cannot be used: {why}."""

    exit_status = 3
    http_status = 503


class RejectedLimitReached(PenstockError):
    """The writer stopped: {rejected} of the last {seen} lines were rejected, over the limit
    of {limit}; the last reason: {reason}. Nothing is lost, the lines wait in the event log.
    Look for a bad deploy. To take the rejected lines in with their reasons, start once with
    PENSTOCK_REJECTED_RATIO_MAX=1."""


class CompactionConflict(PenstockError):
    """Segments that were to be merged are no longer live; the merge was dropped, nothing
    changed. The next run plans afresh."""


class FileLost(PenstockError):
    """The file {name} was cleared away before it could be committed: writing it took longer than
    PENSTOCK_COLLECTION_GRACE_SECONDS. Nothing was changed; run it again."""


class RewardsPending(PenstockError):
    """{count} of {asked} sessions have rewards that are still pending by the definition
    {definition}; {until}. Nothing was built: build later, or leave such sessions out by
    `pending = "drop"` in the recipe."""

    http_status = 409


class UpkeepBusy(PenstockError):
    """Another process does upkeep on this lake and has not finished within {seconds} s.
    Nothing was changed; try again later."""

    http_status = 409


class LakeDamaged(PenstockError):
    """{path} does not match what the metadata database knows: {why}.
    `penstock lake verify` lists all such files."""


# The executor and jobs


class ExecutorUnreachable(PenstockError):
    """The executor {address} cannot be reached: {why}."""

    exit_status = 3


class TaskFailed(PenstockError):
    """The task {task} of {function} failed: {why}."""


class WorkerLost(PenstockError):
    """The task {task} of {function} was given up: its worker was lost {attempts} times, at last
    because {why}. A task that is too large for the memory of a worker ends like this."""


class JobResultTooLarge(PenstockError):
    """The result of {function} for bucket {bucket} has {found} bytes, the limit is {limit}
    (PENSTOCK_JOB_RESULT_BYTES_MAX). A job returns a small value; rows belong into files."""


class JobResultUnfit(PenstockError):
    """The result of {function} for bucket {bucket} cannot be kept as JSON: {why}."""


class JudgeUnfit(PenstockError):
    """The reward {reward} cannot be computed: {why}. It goes by PENSTOCK_JUDGE_URL,
    PENSTOCK_JUDGE_MODEL={model} and PENSTOCK_JUDGE_MESSAGE_CHARS_MAX={chars}: set them so, or
    change the reward's parameters in its definition."""

    exit_status = 2


# Shards


class ShardMissing(PenstockError):
    """There is no shard {shard}: {where} is not there. `penstock shards list` shows those there
    are; a shard that is being built appears when it is complete."""

    exit_status = 2
    http_status = 404


class ShardUnknown(PenstockError):
    """The shard {shard!r} was not found: {why}. `penstock shards list` shows them."""

    exit_status = 2
    http_status = 404


class NothingToBuild(PenstockError):
    """Of the {asked} sessions that the query of {recipe} named, none is left: {why}. Nothing was
    built. Those without a reward by the recipe's definition wait for `penstock rewards run`."""

    exit_status = 2


class ShardDamaged(PenstockError):
    """The shard file {path} cannot be used: {why}. `penstock shards verify` says what else is
    wrong with the shard; the recipe and the snapshot of its manifest make the same one again."""


class ShardInvalid(PenstockError):
    """The shard was refused: {file}, row {row}, sample {sample} breaks the rule {rule}: {why}."""


class PositionRefused(PenstockError):
    """The reader cannot go on from this state: {why}. Open the reader for what the state was
    saved from, or start without a state."""

    exit_status = 2


# The registry


class CheckpointUnknown(PenstockError):
    """There is no checkpoint {name!r}; `penstock checkpoints list` shows those there are."""

    exit_status = 2
    http_status = 404


class ChannelUnknown(PenstockError):
    """There is no channel {name!r}; `penstock channels list` shows those there are. The first
    promotion to a channel, or a policy for it, makes it."""

    exit_status = 2
    http_status = 404


class IsolationImpossible(PenstockError):
    """Attempts cannot be kept apart from this machine: {why}. It takes Linux 5.14 or newer and
    the right to make namespaces (docs/benchmarks.md says what forbids it). Nothing was run; with
    --no-isolation the agent runs as you do, sees all that you see, and every result says so."""


class RoomFailed(PenstockError):
    """The room in which an attempt ran failed: {why}."""


class AgentMissing(PenstockError):
    """The agent's command could not be run, it ended with status {status}: {output}. Nothing was
    kept of this attempt. In its room it sees the machine's programs and its own copy of the
    tree; name it by its absolute path, and show it with --visible where it lies below /tmp."""

    exit_status = 2


class AgentSilent(PenstockError):
    """The first {attempts} attempts ended alike: {how}, with no report and nothing edited. What the
    agent said at last: {output}. Nothing was kept. In its room it sees the machine's programs, the
    files that its command names by absolute paths, what --visible names, and its own copy of the
    tree. If this is what the model does, let the agent end with 0."""

    exit_status = 2


class ServingUnreachable(PenstockError):
    """Nobody answers at the serving address {address}: {why}. Nothing was run."""

    exit_status = 3


class BenchmarkStopped(PenstockError):
    """The run of {suite} was stopped after {errors} attempts one after another that say nothing
    about the model, the last: {why}. They are recorded as errors, for ever. Find the cause, and
    run it with more --attempts; PENSTOCK_BENCHMARK_ERRORS_MAX says how many are too many."""


class SuiteUnfit(PenstockError):
    """The suite {suite} cannot be used: {why}."""

    exit_status = 2


class AttemptConflict(PenstockError):
    """Attempt {attempt} of {checkpoint} at the task {task} of {suite} is known with another
    result, from the run {run}. Nothing was kept: scores never change. Import further attempts
    under numbers of their own, with --first-attempt."""

    http_status = 409


class CheckpointConflict(PenstockError):
    """The checkpoint {name} cannot be registered: {why}. Nothing was changed. A name and a digest
    mean one checkpoint for ever; another one takes another name."""

    http_status = 409


class DigestMismatch(PenstockError):
    """The files at {uri} have the digest {found}, not {digest}. Nothing was registered: they are
    not the checkpoint that was meant, or are not complete."""

    exit_status = 2
    http_status = 422


class LineageBroken(PenstockError):
    """The checkpoint {name} cannot be put together: {why}. A delta needs each of its parents, down
    to a whole checkpoint."""

    http_status = 409


class StateRefused(PenstockError):
    """The checkpoint {name} is {state}, and cannot become {wanted}: {why}."""

    http_status = 409


class PromotionConflict(PenstockError):
    """The channel {channel} was expected at {expected}, and is at {found} (version {version},
    {since}). Nothing was changed. Look what happened with `penstock channels history`, and decide
    anew."""

    http_status = 409

    def __str__(self) -> str:
        names = ("expected", "found")
        none = {name: "no checkpoint" for name in names if self.facts[name] is None}
        return inspect.cleandoc(type(self).__doc__ or "").format(**self.facts | none)


class ChannelPinned(PenstockError):
    """The channel {channel} is pinned since {actor} rolled it back: {reason}. Nothing was changed.
    Once the cause is known, `penstock channels release` lets it be promoted again."""

    http_status = 409


class NotPinned(PenstockError):
    """The channel {channel} is not pinned: there is nothing to release."""

    http_status = 409


class GateRefused(PenstockError):
    """The gate says {outcome} of {checkpoint} for {channel}, and only PASS opens it. Nothing was
    changed; `penstock gate check` shows why."""

    http_status = 422


class OverrideRefused(PenstockError):
    """Only an admin may go past the gate: {why}. Nothing was changed."""

    http_status = 403


class AlreadyServing(PenstockError):
    """The channel {channel} is at {checkpoint} already{how}. Nothing was changed."""

    http_status = 409


class NothingToRollBackTo(PenstockError):
    """The channel {channel} cannot go back: {why}. Nothing was changed. `--to` names a checkpoint
    that served on it, or a parent of the present one."""

    http_status = 409


class HistoryDamaged(PenstockError):
    """The history of the channel {channel} does not fit at version {version}: {why}. Somebody
    changed the database by hand. Compare with a copy of it, and with the notices that were sent:
    each carries the hash of its change."""


class StageLost(PenstockError):
    """Another runner has the stage {stage} of cycle {cycle} of the loop {loop} by now: this one
    was silent for longer than PENSTOCK_LOOP_LEASE_SECONDS. What it did is not taken."""


class TrainerFailed(PenstockError):
    """The trainer ended with status {status}. The end of what it said, from {log}: {output}"""


class TrainerTooSlow(PenstockError):
    """The trainer was ended: it had not finished after {limit_s} s, the `limit` of the loop file.
    The end of what it said, from {log}: {output}"""


class TrainerAnswerUnfit(PenstockError):
    """The trainer ended well, and its answer {path} cannot be used: {why}. It is a JSON object with
    `uri` and `digest`: docs/loop.md."""


class TrainerUnreachable(PenstockError):
    """The trainer at {address} cannot be reached: {why}. A job that it has goes on, and is found
    again when it can."""


class TrainerRefused(PenstockError):
    """The trainer at {address} refused with status {status}: {why}"""

    http_status = 409


class WebhookUnknown(PenstockError):
    """There is no webhook {id!r}; `penstock webhooks list` shows those there are."""

    exit_status = 2
    http_status = 404


class FetchFailed(PenstockError):
    """The checkpoint {checkpoint} was not fetched from {uri}: {why}."""

    exit_status = 3


class CopyMismatch(PenstockError):
    """The files of {checkpoint} at {uri} have the digest {found}, not {digest}: they are not what
    was registered. They were not loaded."""


class LoadFailed(PenstockError):
    """The command that loads {checkpoint} {how}. The end of what it said: {output}"""


class FolderTaken(PenstockError):
    """Another sidecar works in {folder}. Give each its own with --into."""

    exit_status = 2


class ReplicaTaken(PenstockError):
    """Another sidecar reports as the replica {replica} of {channel}. Give each replica a name of
    its own with --replica; one that ended without a word is silent before long."""

    http_status = 409


class ReplicasFull(PenstockError):
    """The channel {channel} has {limit} replicas already (PENSTOCK_REPLICAS_MAX)."""

    http_status = 409


class NothingServed(PenstockError):
    """The channel {channel} has no checkpoint yet: nothing was promoted to it."""

    http_status = 409


class AnswerUnusable(PenstockError):
    """{url} answered {status}: {why}"""

    exit_status = 1
