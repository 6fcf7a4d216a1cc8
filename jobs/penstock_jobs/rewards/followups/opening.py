"""The judge that the settings name."""

from penstock.database.engine import Database
from penstock.settings import Settings
from penstock_jobs.rewards.definition import Definition
from penstock_jobs.rewards.followups.llm.budget import DatabaseBudget
from penstock_jobs.rewards.followups.llm.caching import DatabaseCache
from penstock_jobs.rewards.followups.llm.endpoint import address_of, endpoint_of
from penstock_jobs.rewards.followups.llm.judge import Limits, LlmJudge
from penstock_jobs.rewards.settings import RewardSettings


def open_judge(settings: Settings, database: Database, run: str) -> LlmJudge | None:
    """None where none is set. All processes that say the same `run` share one budget, and those
    of all runs the answers. Nobody is asked yet. Raises InvalidInput."""
    if not settings.room(RewardSettings).judge_url:
        return None
    budget = DatabaseBudget(
        database,
        run,
        settings.room(RewardSettings).judge_requests_max,
        settings.room(RewardSettings).judge_tokens_max,
    )
    limits = Limits(
        inflight_max=settings.room(RewardSettings).judge_inflight_max,
        message_chars_max=settings.room(RewardSettings).judge_message_chars_max,
    )
    return LlmJudge(endpoint_of(settings), DatabaseCache(database), budget, limits)


def check_judge(definition: Definition, settings: Settings) -> None:
    """Before any work on it: whether the settings give what its rewards need, and name a judge that
    can be opened if they name one. Raises JudgeUnfit, InvalidInput."""
    if settings.room(RewardSettings).judge_url:
        address_of(endpoint_of(settings))
    for term in definition.terms:
        if term.reward.check is not None:
            term.reward.check(term.parameters, settings)
