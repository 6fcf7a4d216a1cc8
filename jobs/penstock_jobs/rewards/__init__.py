"""What users did next, as numbers: rewards over buckets of sessions."""

from dataclasses import dataclass
from typing import Literal

from penstock.core.settings import RoomSettings, Settings, setting
from penstock.lake.settings import LakeSettings

OutcomeKind = Literal["scored", "negative_by_rule", "censored", "excluded", "pending"]


@dataclass(frozen=True, kw_only=True)
class RewardSettings(RoomSettings):
    """See docs/reference/settings.md."""

    judge_url: str = setting(
        "",
        "OpenAI-compatible address of the judge of follow-ups, up to /v1",
        "Set it when a language model shall judge.",
        needs="judge_model",
    )
    judge_model: str = setting("", "model that is asked there", "Set it with judge_url.")
    judge_key: str = setting(
        "",
        "key that is sent there; never shown",
        "Set it when the address asks for one.",
        secret=True,
    )
    judge_key_file: str = setting(
        "",
        "file with that key, in the place of judge_key",
        "Set it where secrets are given as files; it is read at each run.",
    )
    judge_requests_max: int = setting(
        10_000,
        "requests to the judge in a run of rewards",
        "Set it to what a run may cost.",
        minimum=0,
    )
    judge_tokens_max: int = setting(
        10_000_000,
        "tokens of questions and answers in a run",
        "Set it to what a run may cost.",
        minimum=0,
    )
    judge_inflight_max: int = setting(
        8,
        "requests of a process to the judge at the same time",
        "Raise it for a server that answers many at once.",
        minimum=1,
    )
    judge_seconds_max: float = setting(
        60.0, "wait for an answer of the judge", "Raise it for a slow model.", minimum=0.1
    )
    judge_message_chars_max: int = setting(
        8_000,
        "characters of a message that the judge is shown",
        "Lower it for a model with a short context.",
        minimum=100,
    )


def reward_bucket_bytes(settings: Settings) -> int:
    """Bytes of segments whose sessions' rewards are computed at once. Rewards need several times
    the memory that other jobs need for the same bytes."""
    return settings.room(LakeSettings).bucket_bytes_target // 20
