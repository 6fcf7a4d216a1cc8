"""Whether work of a request runs beyond the slots, so that its tenant need not wait for others."""

from contextvars import ContextVar

crowded: ContextVar[bool] = ContextVar("crowded", default=False)
