"""examples/hooks/secret_patterns.py, from the rules of redaction: those that find secrets."""

from pathlib import Path

from bench.typescript_rules import lower_needles
from penstock.events.redaction.checks import (
    _EXAMPLE_WORDS,
    _NO_SECRET_BEFORE,
    _NO_SECRET_NAME,
    CHECKS,
    is_in_column,
)
from penstock.events.redaction.rules import built_in_rules

PAGE = Path(__file__).parents[1] / "examples" / "hooks" / "secret_patterns.py"
_HEAD = '''"""What secrets look like. `make docs` writes this from the service's rules.
Each has the type in its placeholder, a pattern, the checks that a match has to pass, and needles:
one of them, in small letters, is in each text that the pattern matches."""

'''


def hook_rules_page() -> str:
    names = {check: name for name, check in CHECKS.items()}
    lines = [_HEAD, "# fmt: off\n# ruff: noqa: E501, RUF001, RUF100\n"]
    lines.append(f"EXAMPLE_WORDS = {_EXAMPLE_WORDS.pattern!r}\n")
    lines.append(f"NO_SECRET_NAME = {_NO_SECRET_NAME.pattern!r}\n")
    lines.append(f"NO_SECRET_BEFORE = {_NO_SECRET_BEFORE.pattern!r}\n\n")
    lines.append("SECRETS: list[tuple[str, str, tuple[str, ...], tuple[str, ...]]] = [\n")
    for rule in built_in_rules():
        if rule.kind == "secret" and is_in_column not in rule.checks:  # hooks read no tables
            checks = tuple(names[check] for check in rule.checks)
            pattern = rule.pattern.pattern
            lines.append(
                f"    ({rule.type!r}, {pattern!r}, {checks!r}, {tuple(lower_needles(rule))!r}),\n"
            )
    lines.append("]\n")
    return "".join(lines)


if __name__ == "__main__":
    PAGE.write_text(hook_rules_page(), encoding="utf-8")
