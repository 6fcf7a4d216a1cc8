"""ATIF 1.x, Harbor's Agent Trajectory Interchange Format: documents, and trials of Harbor's jobs.

A trial's folder is one source: beside its trajectory lie the reward, and often the agent's own
sessions, which say the same again. A step with `is_copied_context` stands in an earlier document:
its events say so, and no edit is taken from it. Token ids that are empty are none.
"""

import re
from collections.abc import Iterator
from typing import Any

from penstock.events.messages import plain, text_of, usage_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.penstock_documents import own_trajectory
from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import (
    SessionDraft,
    digest_of,
    engine_tokens,
    moment_us,
    present,
    tool_call,
)

_BEGINS = re.compile(rb'"schema_version"\s*:\s*"ATIF-v1')
_TRAJECTORY = re.compile(r"trajectory.*\.json")
_AGENT = "agent"
_SUBAGENT_DEPTH_MAX = 16
_STEP_FIELDS = frozenset(
    ("step_id", "timestamp", "source", "message", "model_name", "reasoning_effort",
     "reasoning_content", "tool_calls", "observation", "metrics", "llm_call_count",
     "is_copied_context")
)  # fmt: skip
#: What the shards' reader knows as said by the harness in the model's place.
_NO_MODEL = "<synthetic>"


class AtifImporter(Importer):
    name = "atif"

    def recognises(self, candidate: Candidate) -> bool:
        if candidate.is_folder:
            entries = candidate.entries
            if _AGENT not in entries or not entries & {"result.json", "config.json"}:
                return False
            return any(_trajectories(candidate.source()))
        return candidate.name.endswith(".json") and bool(_BEGINS.search(candidate.beginning))

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        trial = _Trial(source, notes) if source.is_folder else None
        for file in _trajectories(source) if source.is_folder else [source]:
            try:
                document = file.document()
            except SourceUnfit as error:
                if not source.is_folder:
                    raise
                notes.skip("trajectory that cannot be read", f"{file.name}: {error}")
                continue
            if not isinstance(document, dict) or not isinstance(document.get("steps"), list):
                if not source.is_folder:
                    raise SourceUnfit("it has no list of steps")
                notes.skip("trajectory without steps", file.name)
                continue
            if (own := own_trajectory(document)) is not None:
                yield from own
                continue
            is_first = trial is not None and file.name == "trajectory.json"
            yield from _Trajectory(document, file, notes, trial if is_first else None).events()


def _trajectories(folder: Source) -> Iterator[Source]:
    for file in folder.below(_AGENT).files():
        if _TRAJECTORY.fullmatch(file.name) and len(file.names) == len(folder.names) + 2:
            yield file


class _Trial:
    def __init__(self, folder: Source, notes: Notes) -> None:
        self.name = folder.name
        self.job = folder.names[-2] if len(folder.names) > 1 else folder.root.name
        self.result = _object(folder.below("result.json"), notes)
        self._folder, self._notes = folder, notes

    @property
    def task(self) -> str:
        return str(self.result.get("task_name") or self.name.rpartition("__")[0] or self.name)

    def rewards(self) -> dict[str, float]:
        told = fields.mapping(fields.mapping(self.result, "verifier_result"), "rewards")
        if not told:
            told = _object(self._folder.below("verifier", "reward.json"), self._notes)
        file = self._folder.below("verifier", "reward.txt")
        if not told and file.exists():
            try:
                told = {"reward": float(file.content(1024))}
            except (ValueError, SourceUnfit):
                self._notes.skip("reward that is no number", file.name)
        return {str(name): value for name, value in told.items() if isinstance(value, int | float)}

    @property
    def end(self) -> str | None:
        exception = self.result.get("exception_info")
        if isinstance(exception, dict):
            kind = str(exception.get("exception_type") or "")
            return "timeout" if "Timeout" in kind else "crash"
        return "completed" if self.result.get("finished_at") else None


def _object(file: Source, notes: Notes) -> dict[str, Any]:
    if not file.exists():
        return {}
    try:
        document = file.document()
    except SourceUnfit as error:
        notes.skip("file of a trial that cannot be read", f"{file.name}: {error}")
        return {}
    return document if isinstance(document, dict) else {}


class _Trajectory(SessionDraft):
    def __init__(
        self,
        document: Row,
        file: Source,
        notes: Notes,
        trial: _Trial | None = None,
        parent: tuple[str, int] | None = None,
    ) -> None:
        self._document, self._file, self._notes, self._trial = document, file, notes, trial
        self._parent = parent
        self._agent = fields.mapping(document, "agent")
        super().__init__(self._session_id(), "atif", file.changed_us())
        self.start, self.model = self._start(), self._agent.get("model_name")

    def events(self) -> Iterator[ImportedEvent]:
        for at, step in enumerate(self._document["steps"]):
            if isinstance(step, dict):
                self._take(step, f"step-{step.get('step_id', at + 1)}")
            else:
                self._notes.skip("step that is no object", str(at + 1))
        self._finish()
        yield from self.finished()
        depth = self._parent[1] + 1 if self._parent else 1
        for document in fields.items(self._document, "subagent_trajectories"):
            if depth > _SUBAGENT_DEPTH_MAX or not isinstance((document or {}).get("steps"), list):
                self._notes.skip("subagent without steps, or too deep", self.session_id)
                continue
            parent = self.session_id, depth
            yield from _Trajectory(document, self._file, self._notes, parent=parent).events()

    # The session

    def _session_id(self) -> str:
        """A run's documents may share their `session_id`, and some writers give all runs the
        same: what tells a run apart is who ran it, and how it began."""
        document, trajectory = self._document, self._document.get("trajectory_id")
        if self._parent is not None:
            own = trajectory or digest_of(document["steps"][:1])[:12]
            return f"{self._parent[0]}/{own}"
        if trajectory:
            return str(trajectory)
        index = self._continuation
        return self._family + (f".cont-{index}" if index else "")

    @property
    def _family(self) -> str:
        first = next(iter(self._document["steps"]), None)
        begins = first.get("message") if isinstance(first, dict) else None
        session, agent = self._document.get("session_id"), self._agent
        run = session or (self._trial.name if self._trial else "atif")
        seed = [session, agent.get("name"), agent.get("model_name"), begins]
        if not session and not self._trial:
            seed.append(self._document["steps"])
        return f"{run}-{digest_of(*seed)[:12]}"

    @property
    def _continuation(self) -> int:
        index = fields.mapping(self._agent, "extra").get("continuation_index")
        if isinstance(index, int):
            return index
        match = re.search(r"\.cont-(\d+)\.json$", self._file.name)
        return int(match[1]) if match else 0

    def _start(self) -> dict[str, Any]:
        agent, index = self._agent, self._continuation
        start = {
            "client": agent.get("name"),
            "client_version": agent.get("version"),
            "tools": agent.get("tool_definitions"),
            "extra": agent.get("extra"),
            "format": self._document.get("schema_version"),
            "run": self._document.get("session_id"),
        }
        if self._parent is not None:
            start |= {"parent_session": self._parent[0], "link": "subagent"}
        elif index and not self._document.get("trajectory_id"):
            before = f"{self._family}.cont-{index - 1}" if index > 1 else self._family
            start |= {"parent_session": before, "link": "compaction"}
        if self._trial is not None:
            start |= {"task_id": self._trial.task}
            start |= {"group_id": f"{self._trial.job}:{self._trial.task}"}
        return start

    def _finish(self) -> None:
        names = "notes", "final_metrics", "extra", "continued_trajectory_ref"
        if facts := present({name: self._document.get(name) for name in names}):
            self.add("x_atif", facts, f"document-{digest_of(facts)[:12]}")
        if self._trial is None:
            return
        for name, value in self._trial.rewards().items():
            self.add_reward(name, value, "harbor", f"reward-{name}")
        if end := self._trial.end:
            self.add("session_end", {"reason": end}, "end")

    # Its steps

    def _take(self, step: Row, key: str) -> None:
        ts_us, facts = moment_us(step.get("timestamp")), dict[str, Any]()
        if unknown := {name: step[name] for name in step.keys() - _STEP_FIELDS}:
            extra = unknown.pop("extra", None) or {}
            facts["extra"] = (extra if isinstance(extra, dict) else {"extra": extra}) | unknown
        if step.get("is_copied_context"):
            facts["is_copied_context"] = True
        message = step.get("message")
        text, who = text_of(message), step.get("source")
        if isinstance(message, list) and not isinstance(plain(message), str):
            facts["content"] = message
        if who == "agent":
            self._take_answer(step, key, ts_us, text, facts)
        elif who == "user":
            self.asked(text, key, ts_us, **facts)
        elif who == "system":
            self._take_system(text, key, ts_us, facts)
        else:
            self._notes.skip("step of an unknown source", f"{key}: {who}")
            return
        self._take_results(step, key, ts_us, copied="is_copied_context" in facts)

    def _take_system(self, text: str, key: str, ts_us: int | None, facts: dict[str, Any]) -> None:
        management = facts.get("extra", {}).get("context_management")
        if isinstance(management, dict) and management.get("type") == "compaction":
            self.add("compaction", {"trigger": "auto", "text": text} | facts, key, ts_us)
        elif self.made:
            self.add("x_system_message", {"text": text} | facts, key, ts_us)
        else:
            self.instructed(text, key)

    def _take_answer(
        self, step: Row, key: str, ts_us: int | None, text: str, facts: dict[str, Any]
    ) -> None:
        metrics = fields.mapping(step, "metrics")
        facts |= present(
            {
                "text": text or None,
                "thinking": step.get("reasoning_content"),
                "model": step.get("model_name") or self._agent.get("model_name"),
                "reasoning_effort": step.get("reasoning_effort"),
                "usage": usage_of(metrics),
                "cost_usd": metrics.get("cost_usd"),
                "metrics": metrics.get("extra"),
            }
        )
        if step.get("llm_call_count") == 0:
            facts["model"] = _NO_MODEL
        elif step.get("llm_call_count") not in (None, 1):
            facts["llm_call_count"] = step["llm_call_count"]
        if "is_copied_context" not in facts and (tokens := _tokens_of(metrics, step, self._notes)):
            facts["tokens"] = tokens
        calls = [
            tool_call(call.get("tool_call_id"), call.get("function_name"), call.get("arguments"),
                      extra=call.get("extra"))
            for call in fields.rows(step, "tool_calls")
        ]  # fmt: skip
        call_id = (facts.get("extra") or {}).get("call_id") or key
        self.answered(key, ts_us, tool_calls=calls, **facts | {"call_id": call_id})

    def _take_results(self, step: Row, key: str, ts_us: int | None, *, copied: bool) -> None:
        results = fields.items(fields.mapping(step, "observation"), "results")
        for at, result in enumerate(results):
            if not isinstance(result, dict):
                self._notes.skip("result that is no object", key)
                continue
            facts = fields.without(fields.mapping(result, "extra"), "ok", "call_id", "output")
            facts["subagents"] = result.get("subagent_trajectory_ref")
            self.returned(
                result.get("source_call_id"),
                plain(result.get("content")),
                f"{key}:result:{at}",
                ts_us,
                ok=fields.flag(fields.mapping(result, "extra"), "ok"),
                copied=copied,
                **facts,
            )


def _tokens_of(metrics: Row, step: Row, notes: Notes) -> dict[str, Any] | None:
    rl = fields.mapping(fields.mapping(step, "extra"), "rl")
    return engine_tokens(
        metrics.get("prompt_token_ids"),
        metrics.get("completion_token_ids"),
        metrics.get("logprobs"),
        notes,
        policy_version_runs=rl.get("policy_version_runs"),
    )


IMPORTERS = (AtifImporter(),)
