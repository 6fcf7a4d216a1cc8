"""The events of one recorded session."""

import os
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

Say = Callable[[str, str, Mapping[str, Any], Mapping[str, Any]], None]


class RecordedSession:
    """A session of an agent. No method waits, or raises anything that the agent must catch.

    Further fields of an event are keyword arguments: `s.model_call("done", model="ours",
    usage={"prompt": 812})`. As a context manager it begins with `session_start` and ends with
    `session_end`."""

    def __init__(
        self, session_id: str, say: Say, common: Mapping[str, Any], start: Mapping[str, Any]
    ) -> None:
        self.session_id = session_id
        self._say = say
        self._common = common
        self._start = start

    def __enter__(self) -> Self:
        self.event("session_start", **self._start)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        stopped = kind is not None and issubclass(kind, KeyboardInterrupt)
        crashed = kind is not None and issubclass(kind, Exception)
        self.end("user_stop" if stopped else "crash" if crashed else "completed")

    def event(self, kind: str, /, **payload: Any) -> None:
        """Record an event of any type of docs/events.md, or of your own type `x_…`. None values are
        omitted."""
        given = {name: value for name, value in payload.items() if value is not None}
        self._say(self.session_id, kind, given, self._common)

    def end(self, reason: str = "completed") -> None:
        """End with `completed`, `user_stop`, `timeout` or `crash`."""
        self.event("session_end", reason=reason)

    def user_message(self, text: str, **more: Any) -> None:
        self.event("user_message", text=text, **more)

    def model_call(
        self,
        text: str | None = None,
        *,
        call_id: str | None = None,
        tool_calls: Sequence[Mapping[str, Any]] | None = None,
        **more: Any,
    ) -> str:
        """Record a model call; returns its `call_id`, a new one by default."""
        call_id = call_id or _new_id("call")
        self.event("model_call", call_id=call_id, text=text, tool_calls=tool_calls, **more)
        return call_id

    def tool_result(
        self, call_id: str, *, tool: str, ok: bool, output: str | None = None, **more: Any
    ) -> None:
        """Record the result of the tool call with this `call_id`."""
        self.event("tool_result", call_id=call_id, tool=tool, ok=ok, output=output, **more)

    def edit(
        self, path: str, *, before: str, after: str, edit_id: str | None = None, **more: Any
    ) -> str:
        """Record an edit; returns its `edit_id`, a new one by default. The texts are those before
        and after, of the file or the changed part."""
        edit_id = edit_id or _new_id("edit")
        self.event("edit", edit_id=edit_id, path=path, before=before, after=after, **more)
        return edit_id

    def file_observed(
        self, path: str, text: str | None = None, *, deleted: bool | None = None, **more: Any
    ) -> None:
        """Record the present content of a file, from which the persistence of edits is computed."""
        self.event("file_observed", path=path, text=text, deleted=deleted, **more)

    def feedback(
        self, target: str, kind: str, value: float | str | None = None, **more: Any
    ) -> None:
        self.event("feedback", target=target, kind=kind, value=value, **more)

    def compaction(self, **payload: Any) -> None:
        self.event("compaction", **payload)

    def interrupt(self, **payload: Any) -> None:
        self.event("interrupt", **payload)

    def error(self, **payload: Any) -> None:
        self.event("error", **payload)

    def test_result(self, **payload: Any) -> None:
        self.event("test_result", **payload)

    def vcs_commit(self, **payload: Any) -> None:
        self.event("vcs_commit", **payload)


def _new_id(kind: str) -> str:
    return f"{kind}-{os.urandom(8).hex()}"
