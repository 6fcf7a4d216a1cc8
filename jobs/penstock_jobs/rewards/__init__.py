"""Rewards: what users did next, as numbers, computed over buckets of sessions."""

from dataclasses import dataclass
from typing import Literal

from penstock.core.settings import RoomSettings, Settings, setting
from penstock.lake import LakeSettings

OutcomeKind = Literal["scored", "negative_by_rule", "censored", "excluded", "pending"]


@dataclass(frozen=True, kw_only=True)
class RewardSettings(RoomSettings):
    """See docs/reference/settings.md."""

    judge_url: str = setting(
        "",
        "OpenAI-compatible address of the model that judges follow-ups, up to /v1",
        "Set it to let a language model judge.",
        needs="judge_model",
    )
    judge_model: str = setting("", "model at that address", "Set it with judge_url.")
    judge_key: str = setting(
        "", "key for that address; never shown", "Set it if the address needs one.", secret=True
    )
    judge_key_file: str = setting(
        "",
        "file with that key, instead of judge_key",
        "Set it where secrets are files. Each run reads it.",
    )
    judge_requests_max: int = setting(
        10_000,
        "requests to the judge in one run of rewards, build with written hints, or audit",
        "Set it to what a run may cost.",
        minimum=0,
    )
    judge_tokens_max: int = setting(
        10_000_000,
        "tokens of prompts and answers in one run, build or audit",
        "Set it to what a run may cost.",
        minimum=0,
    )
    judge_inflight_max: int = setting(
        8,
        "simultaneous requests of one process to the judge",
        "Raise it for a server that answers many at once.",
        minimum=1,
    )
    judge_seconds_max: float = setting(
        60.0, "time limit for an answer of the judge", "Raise it for a slow model.", minimum=0.1
    )
    judge_message_chars_max: int = setting(
        8_000,
        "characters of a message that the judge is shown",
        "Lower it for a model with a short context.",
        minimum=100,
    )


def reward_bucket_bytes(settings: Settings) -> int:
    """Return the bytes of segments in a bucket of a rewards run.

    Rewards need several times the memory of other jobs for the same bytes."""
    return settings.room(LakeSettings).bucket_bytes_target // 20
