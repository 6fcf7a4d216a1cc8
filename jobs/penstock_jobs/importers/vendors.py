"""Whose model wrote a session, by the model's name. Vendors' terms mostly forbid to train on it."""

import re

#: The event by which a session is marked; recipes leave such sessions out.
VENDOR_MODEL = "x_vendor_model"
#: Names may have a provider before them, as `anthropic/claude-…` and `us.anthropic.claude-…` have,
#: or what a proxy calls them, as `azure-gpt-5` and `proxy_haiku` have.
_FAMILIES = {
    "Anthropic": re.compile(
        r"(?:^|[/.:_-])(?:claude|haiku|sonnet|opus)(?:[/.:_@-]|\d|$)", re.IGNORECASE
    ),
    "OpenAI": re.compile(
        r"(?:^|[/.:])(?:gpt-(?!oss)|chatgpt|o[1345](?:-|$)|codex-|computer-use)|[_-]gpt-[3-9]",
        re.IGNORECASE,
    ),
    "Google": re.compile(r"(?:^|[/.:_-])gemini\b", re.IGNORECASE),
    "xAI": re.compile(r"(?:^|[/.:])grok-(?:[3-9]|code|build)", re.IGNORECASE),
    "Cursor": re.compile(r"(?:^|[/.:])(?:composer-\d|cursor-)", re.IGNORECASE),
    "Amazon": re.compile(r"(?:^|[/.:])nova-", re.IGNORECASE),
    "Mistral": re.compile(r"(?:^|[/.:])mistral-(?:large|medium)", re.IGNORECASE),
}


def vendor_of(model: str | None) -> str | None:
    """None for models with open weights, and for names that nobody knows."""
    if not model:
        return None
    return next((vendor for vendor, names in _FAMILIES.items() if names.search(model)), None)
