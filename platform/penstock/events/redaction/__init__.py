"""Redaction: finding secrets and personal data in lines of events, and masking them before the
lines are kept."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, cast, get_args

from penstock.core.settings import RoomSettings, setting

Mode = Literal["off", "mask", "drop", "quarantine"]
MODES: tuple[Mode, ...] = get_args(Mode)


class KindModes(NamedTuple):
    """The modes of events with secrets and of events with personal data."""

    secrets: Mode
    personal: Mode


class SourceRule(NamedTuple):
    """A rule that matched in a line of a source. The source is empty where the line names none."""

    source: str
    rule: str


@dataclass(frozen=True, kw_only=True)
class RedactionSettings(RoomSettings):
    """See docs/reference/settings.md."""

    redact_secrets: str = setting(
        "mask",
        "what becomes of events with keys, tokens and passwords",
        "Set it to drop or quarantine where such an event is an incident, to off for made-up data.",
        choices=MODES,
    )
    redact_personal: str = setting(
        "off",
        "what becomes of events with e-mail, phone numbers, cards, accounts, addresses of machines",
        "Set it to mask where the events of other people come in.",
        choices=MODES,
    )
    redaction_rules_file: str = setting(
        "",
        "TOML file with redaction rules of your own",
        "Set it to add rules, to change one that comes with Penstock, or to turn one off.",
    )

    @property
    def modes(self) -> KindModes:
        return KindModes(cast(Mode, self.redact_secrets), cast(Mode, self.redact_personal))
