"""The parts of a lake, which are opened when they are first used."""

from functools import cached_property
from typing import TYPE_CHECKING, Self

from penstock.core.settings import MIB, Settings

if TYPE_CHECKING:
    from penstock.backends.eventlog.log import EventLog
    from penstock.backends.execution.executor import Executor
    from penstock.backends.storage.object_store import ObjectStore
    from penstock.events.redaction.line_redaction import LineRedactor
    from penstock.lake.query.statement_processes import StatementProcesses
    from penstock.lake.query.waiting_index import WaitingIndex
    from penstock.lake.session_filters import SessionFilters
    from penstock.lake.tenant_redaction import TenantModes

#: Memory for the ends of files that queries read from S3.
TAILS_BYTES_MAX = 32 * MIB


class LakeParts:
    """The database, store and log of a lake, and the caches of this process."""

    def __init__(self, settings: Settings) -> None:
        from penstock.backends.audit.chain import DeedTally
        from penstock.backends.database.engine import Database
        from penstock.backends.storage import open_store
        from penstock.lake.query.pinned_files import FileTails
        from penstock.lake.segments import process_summariser
        from penstock.lake.tenant_redaction import RedactionTally

        self.settings = settings
        self.database = Database.of(settings)
        self.store: ObjectStore = open_store(settings)
        self.tails = FileTails(TAILS_BYTES_MAX)
        self.summariser = process_summariser()
        #: Counts that are recorded in the audit a few times a minute at most.
        self.tally = DeedTally()
        self.redaction_tally = RedactionTally()
        #: Processes for statements of users; None runs them in this process.
        self.statements: StatementProcesses | None = None
        self._log: EventLog | None = None
        self._executor: Executor | None = None

    @cached_property
    def redactor(self) -> "LineRedactor":
        """Raises RedactionRulesInvalid."""
        from penstock.core.lake_keys import SecretSeal
        from penstock.events.redaction.line_redaction import LineRedactor

        seal = SecretSeal.of(self.settings)
        return LineRedactor.of(
            self.settings, lambda: seal.key_for("redaction"), self.redaction_modes.of
        )

    @cached_property
    def redaction_modes(self) -> "TenantModes":
        from penstock.lake.tenant_redaction import TenantModes

        return TenantModes(self.database, self.settings)

    @cached_property
    def session_filters(self) -> "SessionFilters":
        from penstock.lake.session_filters import SessionFilters

        return SessionFilters(self.database)

    @cached_property
    def waiting_index(self) -> "WaitingIndex":
        from penstock.lake.query.waiting_index import WaitingIndex

        return WaitingIndex()

    @property
    def log(self) -> "EventLog":
        if self._log is None:
            from penstock.backends.eventlog import open_log

            self._log = open_log(self.settings)
        return self._log

    @property
    def executor(self) -> "Executor | None":
        """The executor of heavy work by the settings; None is this process. Raises
        ExecutorUnreachable."""
        from penstock.backends.execution import open_executor
        from penstock.backends.execution.executor import INLINE, ExecutionSettings

        if self._executor is None and self.settings.room(ExecutionSettings).executor != INLINE:
            self._executor = open_executor(self.settings)
        return self._executor

    def close(self) -> None:
        if self._executor is not None:
            self._executor.close()
        if self._log is not None:
            self._log.close()
        if self.statements is not None:
            self.statements.close()
        self._flush_at_end()
        self.database.close()

    def flush_tallies(self) -> None:
        self.tally.flush(self.database)
        self.redaction_tally.flush(self.database)

    def _flush_at_end(self) -> None:
        from penstock.backends.database import DatabaseUnreachable

        try:
            self.flush_tallies()
        except DatabaseUnreachable as error:
            import structlog

            log_line = structlog.get_logger()
            log_line.warning(
                "the audit and counts miss the last minute of this process", why=str(error)
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
