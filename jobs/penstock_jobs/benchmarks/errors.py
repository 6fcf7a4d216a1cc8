"""The errors of benchmarks."""

from penstock.errors import PenstockError


class IsolationImpossible(PenstockError):
    """Attempts cannot be kept apart from this machine: {why}. It takes Linux 5.14 or newer and
    the right to make namespaces (docs/benchmarks.md says what forbids it). Nothing was run; with
    --no-isolation the agent runs as you do, sees all that you see, and every result says so."""


class SuiteUnknown(PenstockError, exit_status=2, http_status=404):
    """No checkpoint was tried at a suite {suite!r}. `penstock benchmark` and `penstock benchmark
    import` make results; the page Suites shows those there are."""


class SandboxFailed(PenstockError):
    """The sandbox of an attempt failed: {why}."""


class AgentUnusable(PenstockError, exit_status=2):
    """The agent cannot be used: {why}. Nothing was kept. In its sandbox an agent sees the machine's
    programs, the files that its command names by absolute paths, what --visible names, and its own
    copy of the tree."""


class ServingUnreachable(PenstockError, exit_status=3):
    """Nobody answers at the serving address {address}: {why}. Nothing was run."""


class BenchmarkStopped(PenstockError):
    """The run of {suite} was stopped after {errors} attempts one after another that say nothing
    about the model, the last: {why}. They are recorded as errors, for ever. Find the cause, and
    run it with more --attempts."""
