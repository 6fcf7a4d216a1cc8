"""A model that reads the steps of an attempt, and says whether its answer was looked up.

It is the model that judges follow-ups (`PENSTOCK_JUDGE_URL`). It is shown what was asked and done,
never a score, and has to quote what it suspects."""

import hashlib
import json
import uuid
from collections.abc import Sequence
from importlib.resources import files

import msgspec

from penstock.backends.database.engine import Database
from penstock.backends.http.address import EgressPolicy
from penstock.core.errors import InvalidInput
from penstock.core.settings import Settings
from penstock.registry.checkpoints.attempts import Attempt, Finding, audit_in, with_audit
from penstock_jobs.benchmarks.audit.steps import AttemptTranscript, Step
from penstock_jobs.rewards import RewardSettings
from penstock_jobs.rewards.followups import llm_judge

_PROMPT = (files(__package__) / "prompt.md").read_text(encoding="utf-8")
_VERSION = hashlib.sha256(_PROMPT.encode()).hexdigest()[:12]
#: Shown at a time.
_STEPS = 20
#: Shorter quotes occur everywhere.
_QUOTE_CHARS_MIN, _QUOTE_CHARS_MAX = 8, 200


class _Answer(msgspec.Struct):
    suspicious: bool
    quote: str = ""


class AuditModel:
    def __init__(self, settings: Settings, database: Database) -> None:
        """Raises InvalidInput without a model."""
        judge = settings.room(RewardSettings)
        if not judge.judge_url:
            why = "it needs a language model: set PENSTOCK_JUDGE_URL and PENSTOCK_JUDGE_MODEL"
            raise InvalidInput(what="An audit by a model", why=why)
        limits = judge.judge_requests_max, judge.judge_tokens_max
        budget = llm_judge.RunBudget(database, f"audit-{uuid.uuid4().hex}", *limits)
        egress = EgressPolicy.for_operator(settings)
        self._model = llm_judge.LanguageModel(judge, budget, egress)
        self._chars_max = judge.judge_message_chars_max
        self.name = f"{judge.judge_model}@{_VERSION}"

    def audit(self, result: Attempt, read: AttemptTranscript) -> tuple[Attempt, str | None]:
        """An attempt as it counts once the model has read it; or why it has not."""
        known = audit_in(result)
        if result.score is None or known is None or known.cleared:
            return result, None
        parts = range(0, len(read.steps), _STEPS)
        try:
            found = [self._ask(read.request, read.steps[at : at + _STEPS]) for at in parts]
        except llm_judge.ModelFailure as failure:
            return result, f"not audited by the model: {failure.kind}"
        findings = tuple(filter(None, found))
        audit = msgspec.structs.replace(known, findings=findings, model=self.name)
        return with_audit(result, audit), None

    def _ask(self, request: str, steps: Sequence[Step]) -> Finding | None:
        acts = {step.number: {"kind": step.kind} | self._texts(step) for step in steps}
        asked = llm_judge.bounded(request, self._chars_max)
        shown = json.dumps({"request": asked, "steps": acts}, ensure_ascii=False)
        answer = llm_judge.read_answer(self._model.ask(_PROMPT, shown), _Answer)
        if answer is not None and not answer.suspicious:
            return None
        quote = " ".join(answer.quote.split()) if answer else ""
        for number, texts in acts.items() if len(quote) >= _QUOTE_CHARS_MIN else ():
            if any(quote in " ".join(text.split()) for text in texts.values()):
                return Finding(f"model {self.name}", number, quote[:_QUOTE_CHARS_MAX])
        raise llm_judge.ModelFailure("unreadable_answer", "it quotes nothing that was shown")

    def _texts(self, step: Step) -> dict[str, str]:
        most, names = self._chars_max // _STEPS, ("text", "before", "after", "output")
        return {name: llm_judge.bounded(getattr(step, name) or "", most) for name in names}
