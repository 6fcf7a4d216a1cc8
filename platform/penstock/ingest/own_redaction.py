"""Redaction on the machine of who sends, before anything leaves it."""

from penstock.http.login import login_path
from penstock.redaction.line_redaction import LineRedactor
from penstock.sealed_texts import SecretSeal
from penstock.settings import load_settings

#: Beside the login.
_KEY_NAME = "redaction.key"


def own_redactor() -> LineRedactor:
    """By the settings here, and with a key of this user: that of the lake is not here. Raises
    RedactionRulesInvalid."""
    settings = load_settings()
    seal = SecretSeal(login_path().with_name(_KEY_NAME))
    if settings.secret_key_file:
        seal = SecretSeal.of(settings)
    return LineRedactor.of(settings, lambda: seal.key_for("redaction"))
