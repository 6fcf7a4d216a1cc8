"""ATIF 1.x, Harbor's Agent Trajectory Interchange Format: documents, and trials of Harbor's jobs.

A trial's folder is one source. Beside its trajectory it has the reward, and often the agent's own
sessions, which repeat it. A step with `is_copied_context` comes from an earlier document: its
events are marked, and it yields no edits. Empty token ids count as none.
"""

import re
from collections.abc import Iterator
from typing import Any

from penstock.events.messages import plain, present, text_of, usage_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.fields import Row, digest_of
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.penstock_documents import penstock_trajectory
from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import SessionDraft, engine_tokens, tool_call

_BEGINS = re.compile(rb'"schema_version"\s*:\s*"ATIF-v1')
_TRAJECTORY = re.compile(r"trajectory.*\.json")
_AGENT = "agent"
_SUBAGENT_DEPTH_MAX = 16
_STEP_FIELDS = (
    "step_id", "timestamp", "source", "message", "model_name", "reasoning_effort",
    "reasoning_content", "tool_calls", "observation", "metrics", "llm_call_count",
    "is_copied_context",
)  # fmt: skip
#: The shards' reader knows that the harness spoke in the model's place.
_NO_MODEL = "<synthetic>"


class AtifImporter(Importer):
    name = "atif"

    def recognises(self, candidate: Candidate) -> bool:
        if candidate.is_folder:
            entries = candidate.entries
            known = _AGENT in entries and entries & {"result.json", "config.json"}
            return bool(known) and any(_trajectories(candidate))
        return not candidate.is_lines and bool(_BEGINS.search(candidate.beginning))

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        if not source.is_folder:
            document = source.json_object("it has no list of steps")
            if not isinstance(document.get("steps"), list):
                raise SourceUnfit("it has no list of steps")
            yield from _trajectory(document, source, notes)
            return
        trial = _Trial(source, notes)
        for file in _trajectories(source):
            found = file.json_object_or_skip(notes, "trajectory")
            if found is not None and isinstance(found.get("steps"), list):
                is_first = file.name == "trajectory.json"
                yield from _trajectory(found, file, notes, trial if is_first else None)
            elif found is not None:
                notes.skip("trajectory without steps", file.name)


def _trajectories(folder: Source) -> Iterator[Source]:
    for file in folder.below(_AGENT).files():
        if _TRAJECTORY.fullmatch(file.name) and len(file.names) == len(folder.names) + 2:
            yield file


def _trajectory(
    document: Row, file: Source, notes: Notes, trial: "_Trial | None" = None
) -> Iterator[ImportedEvent]:
    if (own := penstock_trajectory(document)) is not None:
        yield from own
    else:
        yield from _Trajectory(document, file, notes, trial).events()


class _Trial:
    def __init__(self, folder: Source, notes: Notes) -> None:
        self.name, self.job = folder.name, folder.parent_name
        self._folder, self._notes = folder, notes
        self.result = self._object("result.json")

    @property
    def task(self) -> str:
        return str(self.result.get("task_name") or self.name.rpartition("__")[0] or self.name)

    def rewards(self) -> dict[str, float]:
        told = fields.mapping(self.result, "verifier_result", "rewards")
        told = told or self._object("verifier", "reward.json")
        file = self._folder.below("verifier", "reward.txt")
        if not told and file.exists():
            try:
                told = {"reward": float(file.content(1024))}
            except (ValueError, SourceUnfit):
                self._notes.skip("reward that is not a number", file.name)
        return {str(name): value for name, value in told.items() if isinstance(value, int | float)}

    @property
    def end(self) -> str | None:
        exception = self.result.get("exception_info")
        if isinstance(exception, dict):
            kind = str(exception.get("exception_type") or "")
            return "timeout" if "Timeout" in kind else "crash"
        return "completed" if self.result.get("finished_at") else None

    def _object(self, *names: str) -> dict[str, Any]:
        file = self._folder.below(*names)
        return (file.exists() and file.json_object_or_skip(self._notes, "file of a trial")) or {}


class _Trajectory(SessionDraft):
    def __init__(
        self,
        document: Row,
        file: Source,
        notes: Notes,
        trial: _Trial | None = None,
        parent: tuple[str, int] | None = None,
    ) -> None:
        self._document, self._file, self._trial, self._parent = document, file, trial, parent
        self._agent = fields.mapping(document, "agent")
        super().__init__(self._session_id(), "atif", file.changed_us(), notes)
        self.start, self.model = self._start(), self._agent.get("model_name")

    def events(self) -> Iterator[ImportedEvent]:
        for at, step in self.notes.objects("step", self._document["steps"]):
            self._take(step, f"step-{step.get('step_id', at + 1)}")
        self._finish()
        yield from self.finished()
        depth = self._parent[1] + 1 if self._parent else 1
        for document in fields.items(self._document, "subagent_trajectories"):
            if depth > _SUBAGENT_DEPTH_MAX or not isinstance(fields.at(document, "steps"), list):
                self.notes.skip("subagent without steps, or too deep", self.session_id)
                continue
            parent = self.session_id, depth
            yield from _Trajectory(document, self._file, self.notes, parent=parent).events()

    def _session_id(self) -> str:
        """Name the session. Documents of a run may share a `session_id`, and some writers give all
        runs the same one. A run is told apart by its agent, its model and its first message."""
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
        session, agent = self._document.get("session_id"), self._agent
        run = session or (self._trial.name if self._trial else "atif")
        begins = fields.at(first, "message")
        seed = [session, agent.get("name"), agent.get("model_name"), begins]
        if not session and not self._trial:
            seed.append(self._document["steps"])
        return f"{run}-{digest_of(*seed)[:12]}"

    @property
    def _continuation(self) -> int:
        index = fields.at(self._agent, "extra", "continuation_index")
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
        if (trial := self._trial) is not None:
            start |= {"task_id": trial.task, "group_id": f"{trial.job}:{trial.task}"}
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

    def _take(self, step: Row, key: str) -> None:
        self.at(step.get("timestamp"))
        facts: dict[str, Any] = {}
        if unknown := fields.without(step, *_STEP_FIELDS):
            extra = unknown.pop("extra", None) or {}
            facts["extra"] = (extra if isinstance(extra, dict) else {"extra": extra}) | unknown
        if copied := bool(step.get("is_copied_context")):
            facts["is_copied_context"] = True
        message = step.get("message")
        text, who = text_of(message), step.get("source")
        if isinstance(message, list) and not isinstance(plain(message), str):
            facts["content"] = message
        if who == "agent":
            self._take_answer(step, key, facts | {"text": text or None}, copied=copied)
        elif who == "user":
            self.add_prompt(text, key, **facts)
        elif who == "system":
            self._take_system(text, key, facts)
        else:
            self.notes.skip("step of an unknown source", f"{key}: {who}")
            return
        self._take_results(step, key, copied=copied)

    def _take_system(self, text: str, key: str, facts: dict[str, Any]) -> None:
        if fields.at(facts, "extra", "context_management", "type") == "compaction":
            self.add("compaction", {"trigger": "auto", "text": text} | facts, key)
        else:
            self.add_system_prompt(text, key, **facts)

    def _take_answer(self, step: Row, key: str, facts: dict[str, Any], *, copied: bool) -> None:
        metrics = fields.mapping(step, "metrics")
        calls = [
            tool_call(call.get("tool_call_id"), call.get("function_name"), call.get("arguments"),
                      extra=call.get("extra"))
            for call in fields.rows(step, "tool_calls")
        ]  # fmt: skip
        count = step.get("llm_call_count")
        facts |= {
            "call_id": fields.at(facts, "extra", "call_id") or key,
            "thinking": step.get("reasoning_content"),
            "model": _NO_MODEL if count == 0 else step.get("model_name") or None,
            "reasoning_effort": step.get("reasoning_effort"),
            "usage": usage_of(metrics),
            "cost_usd": metrics.get("cost_usd"),
            "metrics": metrics.get("extra"),
            "llm_call_count": count if count not in (0, 1) else None,
        }
        if not copied:
            facts["tokens"] = engine_tokens(
                metrics.get("prompt_token_ids"),
                metrics.get("completion_token_ids"),
                metrics.get("logprobs"),
                self.notes,
                policy_version_runs=fields.at(step, "extra", "rl", "policy_version_runs"),
            )
        self.add_answer(key, tool_calls=calls, **facts)

    def _take_results(self, step: Row, key: str, *, copied: bool) -> None:
        results = fields.items(step, "observation", "results")
        for at, result in self.notes.objects("result", results):
            facts = fields.without(fields.mapping(result, "extra"), "ok", "call_id", "output")
            facts["ok"] = fields.flag(result, "extra", "ok")
            facts["subagents"] = result.get("subagent_trajectory_ref")
            name = f"{key}:result:{at}"
            call_id, output = result.get("source_call_id"), plain(result.get("content"))
            self.add_result(call_id, output, name, copied=copied, **facts)
