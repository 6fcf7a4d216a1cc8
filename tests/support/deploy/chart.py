"""Renders the Helm chart: the part of Go's templates that it uses, so that no Helm is needed. What
else stands in a template is an error here."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from tests.support.deploy.reading import DEPLOY

CHART = DEPLOY / "helm" / "penstock"
_TAG = re.compile(r"(\s*){{-\s*(.*?)\s*}}|{{\s*(.*?)\s*}}", re.DOTALL)


@dataclass
class _Scope:
    """What a template may name, and what of it was named."""

    names: Mapping[str, Any]
    variables: dict[str, Any] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)

    def value(self, word: str) -> Any:
        if word.startswith('"'):
            return json.loads(word)
        if word.startswith("$"):
            return self.variables[word]
        if word.isdecimal():
            return int(word)
        assert word.startswith("."), word
        value: Any = self.names
        for part in word[1:].split("."):
            value = value[part]
        self.read.add(word)
        return value

    def call(self, text: str, piped: list[Any]) -> Any:
        first, *rest = re.findall(r'"[^"]*"|\S+', text)
        arguments = [self.value(word) for word in rest] + piped
        if first == "toYaml":
            return yaml.safe_dump(arguments[0], sort_keys=False).rstrip("\n")
        if first == "nindent":
            return "\n" + "\n".join(" " * arguments[0] + line for line in arguments[1].split("\n"))
        if first == "quote":
            return json.dumps(str(arguments[0]))
        if first == "default":
            return arguments[1] or arguments[0]
        if first == "index":
            return arguments[0][arguments[1]]
        assert not rest, text
        return self.value(first)

    def text(self, pipeline: str) -> str:
        piped: list[Any] = []
        for step in pipeline.split("|"):
            piped = [self.call(step.strip(), piped)]
        return str(piped[0])


def _tokens(template: str) -> list[tuple[str, str]]:
    """Texts and tags by turns; `{{-` takes the white space before it away."""
    tokens, at = [], 0
    for found in _TAG.finditer(template):
        tokens += [("text", template[at : found.start()]), ("tag", found[2] or found[3])]
        at = found.end()
    return [*tokens, ("text", template[at:])]


def _block(tokens: list[tuple[str, str]], at: int, scope: _Scope, out: list[str] | None) -> int:
    """Renders up to the `end` of the block; where it goes on. Without `out` nothing is kept."""
    while at < len(tokens):
        kind, text = tokens[at]
        at += 1
        if kind == "text":
            if out is not None:
                out.append(text)
        elif text == "end":
            return at
        elif text.startswith("if "):
            shown = out is not None and bool(scope.value(text.removeprefix("if ")))
            at = _block(tokens, at, scope, out if shown else None)
        elif text.startswith("range "):
            at = _range(tokens, at, scope, out)
        elif out is not None:
            out.append(scope.text(text))
    return at


def _range(tokens: list[tuple[str, str]], at: int, scope: _Scope, out: list[str] | None) -> int:
    parts = re.fullmatch(r"range (\$\w+), (\$\w+) := (\S+)", tokens[at - 1][1])
    assert parts, tokens[at - 1]
    for name, value in sorted(scope.value(parts[3]).items()) if out is not None else ():
        scope.variables |= {parts[1]: name, parts[2]: value}
        _block(tokens, at, scope, out)
    return _block(tokens, at, scope, None)


def values() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    return loaded


def render(given: Mapping[str, Any]) -> tuple[list[dict[str, Any]], set[str]]:
    """The objects with these values, and the names that the templates read."""
    about = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    names = {
        "Values": given,
        "Release": {"Name": "penstock", "Namespace": "penstock"},
        "Chart": {"AppVersion": about["appVersion"]},
    }
    scope, objects = _Scope(names), []
    for path in sorted((CHART / "templates").glob("*.yaml")):
        out: list[str] = []
        _block(_tokens(path.read_text(encoding="utf-8")), 0, scope, out)
        objects += [each for each in yaml.safe_load_all("".join(out)) if each]
    return objects, scope.read
