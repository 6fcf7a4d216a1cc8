"""The settings of redaction."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

from penstock.redaction.rules import MODES, KindModes, Mode, RuleBook, rule_book
from penstock.settings import RoomSettings, setting


@dataclass(frozen=True, kw_only=True)
class RedactionSettings(RoomSettings):
    """See docs/settings.md."""

    redact_secrets: str = setting(
        "mask",
        "what becomes of events with keys, tokens and passwords",
        "Set it to drop or quarantine where such an event is an incident, to off for made-up data.",
        choices=MODES,
    )
    redact_personal: str = setting(
        "off",
        "the same for e-mail, phone numbers, cards, accounts, addresses of machines",
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

    def rule_book(self, modes: KindModes | None = None) -> RuleBook:
        """With these modes, or those of the settings. Raises RedactionRulesInvalid."""
        own = Path(self.redaction_rules_file) if self.redaction_rules_file else None
        return rule_book(*(modes or self.modes), own)
