"""The errors of redaction."""

from penstock.errors import PenstockError


class RedactionRulesInvalid(PenstockError, exit_status=2):
    """The redaction rules {file} cannot be used: {why}. Nothing is taken in without them."""
