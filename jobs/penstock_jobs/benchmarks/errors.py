"""The errors of benchmarks."""

from penstock.errors import PenstockError


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
    run it with more --attempts."""


class SuiteUnfit(PenstockError):
    """The suite {suite} cannot be used: {why}."""

    exit_status = 2
