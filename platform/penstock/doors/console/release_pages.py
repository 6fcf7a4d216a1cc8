"""Pages of checkpoints and channels: scores, history, verdicts with their charts, promotion and
rollback."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec
from markupsafe import Markup
from msgspec import Meta, structs

from penstock.access import Role
from penstock.core.endpoint import ListRequest, Request
from penstock.core.errors import one_line
from penstock.doors.console.charts import WIDTH, Interval, interval_chart
from penstock.doors.console.figures import count, part, url
from penstock.doors.console.page import Content, PageList, Redirect, Refusal, Visitor, page_sql
from penstock.registry.channels.change import PromotionConflict, change_marks, describe_change
from penstock.registry.channels.endpoints import (
    AUDIT_CHANNEL,
    LIST_CHANNELS,
    RELEASE,
    SET_POLICY,
    SHOW_CHANNEL,
    SHOW_POLICY,
    AuditRequest,
    ChannelRequest,
    ReleaseRequest,
    SetPolicyRequest,
)
from penstock.registry.channels.promotion import rollback_candidates
from penstock.registry.channels.promotion_endpoints import (
    APPROVE,
    ASK_GATE,
    PROMOTE,
    ROLL_BACK,
    TRACE_CHECKPOINT,
    ApproveRequest,
    PromoteRequest,
    RollbackRequest,
    VerdictRequest,
)
from penstock.registry.checkpoints.checkpoint import Checkpoint
from penstock.registry.checkpoints.endpoints import (
    LIST_CHECKPOINTS,
    CheckpointRequest,
    CheckpointsRequest,
)
from penstock.registry.fleet.replicas import SHOW_FLEET, FleetRequest
from penstock.registry.gate.verdict import GateRefused

PAGES = PageList("penstock.doors.console:templates/")
_READERS: tuple[Role, ...] = ("read", "promote")

#: Normal 95 % intervals of the means, for the eye. The gate's own tests are on the verdict's page.
_SPREAD = 1.96


@PAGES.page(
    "/checkpoints", "Checkpoints", "checkpoints.html.jinja", roles=_READERS, reads_rows=True,
    group="Release", place=1, shortcut="k",
)  # fmt: skip
def _list_checkpoints(visitor: Visitor, request: CheckpointsRequest) -> Content:
    known = visitor.call(LIST_CHECKPOINTS, request).checkpoints[::-1]
    channels = visitor.call(LIST_CHANNELS, ListRequest()).channels
    serving: dict[str, list[str]] = {}
    for channel in channels:
        for checkpoint in filter(None, (channel.checkpoint, channel.canary)):
            serving.setdefault(checkpoint, []).append(channel.channel)
    scores: dict[str, list[dict[str, Any]]] = {}
    for row in _scores(visitor, ""):
        scores.setdefault(row["checkpoint"], []).append(row)
    return {"checkpoints": known, "serving": serving, "scores": scores}


@PAGES.page(
    "/checkpoints/{name}", "Checkpoint", "checkpoint.html.jinja", roles=_READERS, reads_rows=True
)
def _show_checkpoint(visitor: Visitor, request: CheckpointRequest) -> Content:
    line = visitor.call(TRACE_CHECKPOINT, request)
    scores = _scores(visitor, line.checkpoint.name)
    chart = interval_chart(
        [_interval_of(row) for row in scores if row["score"] is not None],
        title="Scores by suite",
        means=True,
        description="Means over tasks, with 95 % intervals.",
        value_format=lambda value: f"{value:.2f}",
        width=WIDTH,
    )
    channels = visitor.call(LIST_CHANNELS, ListRequest()).channels
    return {"line": line, "scores": scores, "scores_chart": chart, "channels": channels}


def _interval_of(row: dict[str, Any]) -> Interval:
    score, tasks = row["score"], f"{row['tasks']} tasks"
    if not row["spread"]:
        return Interval(row["suite"], None, score, None, note=tasks)
    half = _SPREAD * row["spread"]
    return Interval(row["suite"], max(score - half, 0.0), score, min(score + half, 1.0), note=tasks)


def _scores(visitor: Visitor, checkpoint: str) -> list[dict[str, Any]]:
    """Scores by checkpoint and suite, of the newest version tried. Needs the role `read`."""
    if not visitor.may("read"):
        return []
    sql = page_sql("penstock.doors.console", "scores.sql")
    views = frozenset({"benchmark_scores"})
    return visitor.own_rows(sql, views, {"checkpoint": checkpoint})


_CHANGES_SHOWN = 50
_REPLICAS_SHOWN, _CHOICES_MAX = 50, 200
_CHOSEN_STATES = ("registered", "serving", "retired", "rolled_back")

Share = Annotated[float, Meta(ge=0, le=1)]


class PromotionForm(Request):
    """A promotion. It is refused if the channel's `version` changed since the page was made."""

    name: str
    checkpoint: str
    version: int
    reason: str
    share: Share | None = None


class RollbackForm(Request):
    name: str
    version: int
    reason: str
    to: str | None = None


def channel_path(name: str) -> str:
    return f"/channels/{part(name)}"


# Channels


@PAGES.page(
    "/channels", "Channels", "channels.html.jinja", roles=_READERS,
    group="Release", place=0, shortcut="c",
)  # fmt: skip
def _list(visitor: Visitor, _question: ListRequest) -> Content:
    return {"channels": visitor.call(LIST_CHANNELS, ListRequest()).channels}


@PAGES.page("/channels/{name}", "Channel", "channel.html.jinja", roles=_READERS)
def _show(visitor: Visitor, request: AuditRequest) -> Content:
    name = request.name
    channel = visitor.call(SHOW_CHANNEL, ChannelRequest(name=name))
    audit = visitor.call(AUDIT_CHANNEL, structs.replace(request, last=_CHANGES_SHOWN))
    fleet = visitor.call(SHOW_FLEET, FleetRequest(name=name, limit=_REPLICAS_SHOWN))
    rows = [
        {"change": change, "text": describe_change(change, before), "marks": change_marks(change)}
        for before, change in zip([audit.before, *audit.changes], audit.changes, strict=False)
    ]
    changes = audit.changes if request.cursor is None else []
    return {
        "channel": channel,
        "policy": visitor.call(SHOW_POLICY, ChannelRequest(name=name)),
        "audit": audit,
        "rows": rows[::-1],
        "fleet": fleet,
        "choices": _choices(visitor, channel.checkpoint),
        "targets": rollback_candidates([(each.action, each.checkpoint) for each in changes]),
        "may_promote": visitor.may_call(PROMOTE),
        "may_set_policy": visitor.may_call(SET_POLICY),
    }


def _choices(visitor: Visitor, present: str | None) -> list[Checkpoint]:
    """Checkpoints that may be promoted, the newest first, and last those that were rolled back."""
    if not visitor.may_call(LIST_CHECKPOINTS):
        return []
    known = visitor.call(LIST_CHECKPOINTS, CheckpointsRequest()).checkpoints
    usable = [each for each in known if each.state in _CHOSEN_STATES and each.name != present]
    usable.reverse()
    usable.sort(key=lambda each: each.state == "rolled_back")
    return usable[:_CHOICES_MAX]


# Verdicts


@PAGES.page("/channels/{name}/verdict", "Verdict", "verdict.html.jinja", roles=_READERS)
def _judge(visitor: Visitor, request: VerdictRequest) -> Content:
    verdict = visitor.call(ASK_GATE, request)
    facts = {"outcome": verdict.outcome, "id": verdict.id}
    return _verdict_content(visitor, request.name, verdict.verdict) | facts


def _verdict_content(visitor: Visitor, name: str, document: dict[str, Any]) -> dict[str, Any]:
    incumbent = document.get("incumbent")
    return {
        "channel": visitor.call(SHOW_CHANNEL, ChannelRequest(name=name)),
        "checkpoint": document["candidate"]["name"],
        "incumbent": incumbent["name"] if incumbent else None,
        "document": document,
        "parts": drawn_parts(document),
        "sides": list(side_rows(document)),
        "may_promote": visitor.may_call(PROMOTE),
        "problem": "",
    }


# Changes of a channel


@PAGES.form("/channels/{name}/promote", "Verdict", "verdict.html.jinja", roles=("promote",))
def _promote(visitor: Visitor, form: PromotionForm) -> Redirect | Refusal:
    name = form.name
    order = PromoteRequest(
        name=name, checkpoint=form.checkpoint, reason=form.reason, expect_version=form.version,
        share=form.share,
    )  # fmt: skip
    try:
        change = visitor.call(PROMOTE, order)
    except GateRefused as refused:
        fields = refused.http_fields
        content = _verdict_content(visitor, name, fields["verdict"])
        content |= {"outcome": fields["outcome"], "id": fields["verdict_id"]}
        return Refusal(content | {"problem": one_line(refused)}, refused.http_status)
    except PromotionConflict as conflict:
        asked = VerdictRequest(name=name, checkpoint=form.checkpoint, canary=bool(form.share))
        content = dict(_judge(visitor, asked)) | {"problem": one_line(conflict)}
        return Refusal(content, conflict.http_status)
    share = f" as a canary on {100 * form.share:g} % of the traffic" if form.share else ""
    notice = f"{name} is at version {change.version}: {form.checkpoint} was promoted{share}."
    return Redirect(channel_path(name), notice)


@PAGES.form("/channels/{name}/approve", "Approve", roles=("promote",))
def _approve(visitor: Visitor, form: ApproveRequest) -> Redirect:
    given = visitor.call(APPROVE, form)
    notice = f"{given.actor} approved {given.checkpoint} for {given.channel}."
    path = url(f"{channel_path(form.name)}/verdict", checkpoint=form.checkpoint)
    return Redirect(path, notice)


@PAGES.form("/channels/{name}/rollback", "Roll back", roles=("promote",))
def _roll_back(visitor: Visitor, form: RollbackForm) -> Redirect:
    order = RollbackRequest(
        name=form.name, reason=form.reason, to=form.to, expect_version=form.version
    )
    change = visitor.call(ROLL_BACK, order)
    notice = f"{form.name} serves {change.checkpoint} again, and is pinned until you release it."
    return Redirect(channel_path(form.name), notice)


@PAGES.form("/channels/{name}/release", "Release", roles=("promote",))
def _release(visitor: Visitor, form: ReleaseRequest) -> Redirect:
    visitor.call(RELEASE, form)
    return Redirect(channel_path(form.name), f"{form.name} can be promoted again.")


@PAGES.form("/channels/{name}/policy", "Policy")
def _set_policy(visitor: Visitor, form: SetPolicyRequest) -> Redirect:
    change = visitor.call(SET_POLICY, form)
    notice = f"{form.name} has a new policy at version {change.version}."
    if change.unknown_suites:
        notice += f" Not registered yet: {', '.join(change.unknown_suites)}."
    return Redirect(channel_path(form.name), notice)


# Charts of a verdict: each statistic as an interval against its margin


Part = Mapping[str, Any]
_TONES = {"PASS": "good", "FAIL": "bad", "ERROR": "bad", "INCONCLUSIVE": "warn"}
_SHARES = ("max_increase", "max_decrease")
_ROLES = ("candidate", "incumbent")
_OTHER_PARTS = (
    ("live", "live traffic of the canary"),
    ("approval", "people who approve"),
    ("data", "training data"),
)


class DrawnPart(msgspec.Struct, frozen=True):
    name: str
    outcome: str
    why: str
    charts: list[Markup] = msgspec.field(default_factory=list)
    facts: list[tuple[str, str]] = msgspec.field(default_factory=list)


def drawn_parts(document: Part) -> list[DrawnPart]:
    parts = [_requirement(part) for part in document.get("requirements") or ()]
    parts += [_guard(part) for part in document.get("guards") or ()]
    for name, label in _OTHER_PARTS:
        if part := document.get(name):
            parts.append(DrawnPart(label, part["outcome"], part["why"]))
    return parts


def side_rows(document: Part) -> Iterator[Part]:
    for suite, facts in (document.get("suites") or {}).items():
        for role in _ROLES:
            if side := facts.get(role):
                place = {"suite": suite, "version": facts["version"], "role": role}
                unscored = len(side.get("unscored", ()))
                yield {**side, **place, "unscored": unscored, "tasks": facts["tasks"]}


def _requirement(part: Part) -> DrawnPart:
    tone, charts = _TONES.get(part["outcome"], ""), []
    if part.get("margin") is not None and "difference" in part:
        margin, bounds = -part["margin"], (part.get("lower"), part["difference"], part.get("upper"))
        note = f"margin {margin:g}"
        row = Interval("gain over the incumbent", *bounds, margin, tone, note)
        title = f"{part['metric']}: difference from the incumbent; right is better"
        charts.append(interval_chart([row], title=title, value_format=_decimals))
    own, name = part.get("own"), "maximum" if part["direction"] == "min" else "minimum"
    limit = part.get(name)
    if own and limit is not None:
        bounds, note = (own["lower"], own["mean"], own["upper"]), f"{name} {limit:g}"
        row = Interval("mean", *bounds, limit, tone, note)
        title = f"{part['metric']}: mean against the {name}"
        charts.append(interval_chart([row], title=title, value_format=_decimals))
    return _drawn(part, f"{part['metric']} on {part['suite']}", charts)


def _guard(part: Part) -> DrawnPart:
    relative, charts = part["kind"] in _SHARES, []
    form = _signed_share if relative else _decimals
    limit = form(part["limit"]) if relative else f"{part['limit']:g}"
    if part.get("value") is not None:
        label = "change for the worse" if relative else "mean"
        bounds = (part.get("lower"), part["value"], part.get("upper"))
        tone, note = _TONES.get(part["outcome"], ""), f"limit {limit}"
        row = Interval(label, *bounds, part["limit"], tone, note)
        title = f"guard on {part['metric']}: {label} against the limit"
        charts.append(interval_chart([row], title=title, value_format=form))
    return _drawn(part, f"guard on {part['metric']} of {part['suite']}", charts)


def _drawn(part: Part, name: str, charts: list[Markup]) -> DrawnPart:
    outcome = "no incumbent" if part.get("idle") else part["outcome"]
    return DrawnPart(name, outcome, part["why"], charts, list(_facts(part)))


def _facts(part: Part) -> Iterator[tuple[str, str]]:
    for role in _ROLES:
        if (mean := part.get(f"{role}_mean")) is not None:
            yield role, _decimals(mean)
    p_value = part.get("p", (part.get("own") or {}).get("p"))
    if p_value is not None:
        yield "p", f"{p_value:.3g}"
    yield "alpha", f"{part['alpha']:.3g}"
    if (tasks := part.get("tasks")) is not None:
        yield "tasks", count(tasks)


def _decimals(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _signed_share(value: float) -> str:
    return f"{100 * value:+.3g} %".replace("-", "−")
