"""Dashboards, alerts and the systemd unit name what is there."""

import configparser
import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import Counter, Histogram
from prometheus_client.parser import text_string_to_metric_families

from penstock.core.metrics import CATALOGUE, PREFIX, Metrics
from penstock.core.settings import declarations, load_settings, variables
from penstock.doors.cli import app
from tests.support.deploy.reading import DEPLOY, documents

_NAME = re.compile(r"\b(?:penstock|process)_\w+")
_LABELS = re.compile(r"(?:by|without)\s*\(([^)]*)\)")
_MATCHERS = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")
#: What Prometheus adds, and what a histogram's buckets have.
_COMMON = {"job", "instance", "le"}
#: They name tenants, and a scrape without a key has them not.
_OF_TENANTS = {"tenant", "channel"}


def series() -> dict[str, set[str]]:
    """Every name that a scrape has, with its labels."""
    named: dict[str, set[str]] = {}
    for name, metric in CATALOGUE.items():
        endings = ("_bucket", "_sum", "_count") if metric.kind is Histogram else ("",)
        for ending in endings:
            named[PREFIX + name + ending] = set(metric.labels) - _OF_TENANTS
    text = Metrics().exposition().decode()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("process_"):
                named[sample.name] = set(sample.labels)
    return named


SERIES = series()


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((DEPLOY / "grafana" / "penstock.json").read_text())
    return loaded


def rules() -> list[dict[str, Any]]:
    [document] = documents(DEPLOY / "prometheus" / "alerts.yaml")
    return [rule for group in document["groups"] for rule in group["rules"]]


def expressions() -> Iterator[str]:
    for panel in dashboard()["panels"]:
        yield from (target["expr"] for target in panel.get("targets", []))
    yield from (rule["expr"] for rule in rules())


@pytest.mark.parametrize("expression", list(expressions()))
def test_an_expression_names_series_and_labels_of_a_scrape(expression: str) -> None:
    names = set(_NAME.findall(expression))
    assert names <= SERIES.keys()
    known = _COMMON.union(*(SERIES[name] for name in names))
    used = {label.strip() for group in _LABELS.findall(expression) for label in group.split(",")}
    assert used | set(_MATCHERS.findall(expression)) <= known
    for name in names:
        of_counter = CATALOGUE.get(name.removeprefix(PREFIX))
        if of_counter is not None and of_counter.kind is Counter:  # never as it stands
            assert re.search(rf"(?:rate|increase)\({name}\b", expression)
    assert expression.count("(") == expression.count(")")


def test_every_metric_stands_on_the_dashboard_but_those_that_say_the_same() -> None:
    shown = {name for panel in dashboard()["panels"] for target in panel.get("targets", [])
             for name in _NAME.findall(target["expr"])}  # fmt: skip
    shown = {re.sub(r"_(bucket|sum|count)$", "", name).removeprefix(PREFIX) for name in shown}
    left = {"requests_refused_total", "segment_bytes_total", "values_forwarded_total",
            "notice_target_failing"}  # fmt: skip
    assert CATALOGUE.keys() - shown == left


def test_panels_have_titles_of_their_own_and_do_not_overlap() -> None:
    panels = dashboard()["panels"]
    assert len({panel["title"] for panel in panels}) == len({panel["id"] for panel in panels})
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_says_what_is_wrong_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule.keys() == {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"Penstock\w+", rule["alert"])
    assert re.fullmatch(r"\d+[mh]", rule["for"])
    assert rule["labels"]["severity"] in ("page", "warn")
    assert rule["annotations"].keys() == {"summary", "description"}
    assert rule["annotations"]["description"].endswith(".")
    kept = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    by = {label.strip() for group in _LABELS.findall(rule["expr"]) for label in group.split(",")}
    assert kept <= (by or _COMMON)
    text = rule["annotations"]["description"] + rule["annotations"]["summary"]
    settings = {name.lower() for name in re.findall(r"PENSTOCK_([A-Z_]+)", text)}
    assert settings <= {each.name for each in declarations()} | variables()
    commands = re.findall(r"penstock ((?:[a-z]+ )?[a-z]+)", text)
    assert all(command.split()[0] in app_commands() for command in commands)


def app_commands() -> set[str]:
    import typer

    command: Any = typer.main.get_command(app)
    return set(command.list_commands(None))


def test_the_unit_starts_what_there_is_and_waits_for_its_end() -> None:
    parser = configparser.RawConfigParser(strict=False, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    text = (DEPLOY / "systemd" / "penstock.service").read_text()
    parser.read_string(text)
    service = parser["Service"]
    program, *arguments = shlex.split(service["ExecStart"])
    assert program.endswith("/penstock")
    assert arguments == ["serve"]
    named = dict(re.findall(r"^Environment=PENSTOCK_(\w+)=(.*)$", text, re.MULTILINE))
    directory = f"/var/lib/{service['StateDirectory']}"
    assert named.pop("DATA") == directory == service["WorkingDirectory"]
    settings = load_settings(directory, {f"PENSTOCK_{name}": each for name, each in named.items()})
    assert settings.log_format == "json"
    assert int(service["TimeoutStopSec"]) > 2 * settings.shutdown_seconds_max
