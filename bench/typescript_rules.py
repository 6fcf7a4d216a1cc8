"""clients/typescript/src/rules.ts, from the rules of redaction: those that find secrets."""

import json
import re
from pathlib import Path

from penstock.events.redaction.checks import _ABOUT_PASSWORDS, _COMMON_PASSWORDS, CHECKS
from penstock.events.redaction.rules import Rule, built_in_rules

PAGE = Path(__file__).parents[1] / "clients" / "typescript" / "src" / "rules.ts"
_HEAD = (
    "/** What secrets look like. `make docs` writes this file from the rules of redaction of the\n"
    " * service; platform/penstock/events/redaction/rules.toml says what they mean. */\n\n"
)
_CLASS = r"\[(?:\\.|[^\]\\])*\]"
_POSSESSIVE = re.compile(rf"({_CLASS})(\{{\d+(?:,\d*)?\}}|\*)\+")
_VERBOSE_SPACE = re.compile(rf"({_CLASS}|\\.)|\s+")
_FLAGS = re.compile(r"^\(\?([a-z]+)\)")


def rules_page() -> str:
    rules = [rule for rule in built_in_rules() if rule.kind == "secret"]
    names = {check: name for name, check in CHECKS.items()}
    lines = [
        _HEAD,
        "export interface Rule {\n  readonly type: string;\n  readonly pattern: RegExp;\n",
        "  readonly checks: readonly string[];\n",
        "  /** One of them, in small letters, is in each text that the pattern matches. */\n",
        "  readonly needles: readonly string[];\n}\n\n",
        "export const RULES: readonly Rule[] = [\n",
    ]
    for rule in rules:
        pattern, flags = _javascript(rule)
        checks = json.dumps([names[check] for check in rule.checks])
        of = json.dumps(lower_needles(rule))
        lines.append(
            f"  {{\n    type: {json.dumps(rule.type)},\n"
            f"    pattern: new RegExp({json.dumps(pattern)}, {json.dumps(flags)}),\n"
            f"    checks: {checks},\n    needles: {of},\n  }},\n"
        )
    passwords = json.dumps(sorted(_COMMON_PASSWORDS))
    lines.append(f"];\n\nexport const COMMON_PASSWORDS = new Set({passwords});\n")
    about = json.dumps(_ABOUT_PASSWORDS.pattern)
    lines.append(f"export const ABOUT_PASSWORDS = new RegExp({about});\n")
    return "".join(lines)


def lower_needles(rule: Rule) -> list[str]:
    return [needle.lower() for needle in rule.needles]


def _javascript(rule: Rule) -> tuple[str, str]:
    pattern, flags = rule.pattern.pattern, "gs"
    if given := _FLAGS.match(pattern):
        pattern = pattern[given.end() :]
        flags += "i" if "i" in given[1] else ""
        if "x" in given[1]:
            pattern = _VERBOSE_SPACE.sub(lambda m: m[1] or "", pattern).replace(r"\#", "#")
    pattern = pattern.replace("(?P<", "(?<")
    pattern = re.sub(r"\(\?P=(\w+)\)", r"\\k<\1>", pattern)
    count = iter(range(100))

    def atomic(match: re.Match[str]) -> str:
        """What takes what it can and gives nothing back: JavaScript has lookahead alone for it."""
        name = f"atom{next(count)}"
        return rf"(?=(?<{name}>{match[1]}{match[2]}))\k<{name}>"

    return _POSSESSIVE.sub(atomic, pattern), flags


if __name__ == "__main__":
    PAGE.write_text(rules_page(), encoding="utf-8")
