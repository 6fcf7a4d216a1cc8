"""`penstock rewards label` and `penstock rewards judge`."""

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer

from penstock.errors import InvalidInput
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.lake import Lake, open_existing
from penstock.terminal import options
from penstock.terminal.output import say, show_json, show_text

if TYPE_CHECKING:
    from penstock_jobs.rewards.followups.judge import Evaluation, Example, Judge
    from penstock_jobs.rewards.followups.llm_judge import LlmJudge
    from penstock_jobs.rewards.followups.questions import QuestionFrame

Definition = Annotated[
    str, typer.Option("--definition", help="By whose judge messages are chosen.")
]


def label(
    *,
    count: Annotated[int, typer.Option("--count", min=1, help="How many labels at most.")] = 40,
    chosen: Annotated[
        float,
        typer.Option(
            "--chosen", min=0, max=1, help="The share that is chosen; chance draws the others."
        ),
    ] = 0.25,
    model: Annotated[
        bool, typer.Option("--model", help="The model of PENSTOCK_JUDGE_URL labels, not a person.")
    ] = False,
    checkpoint: Annotated[
        str | None, typer.Option("--checkpoint", help="Only sessions of this checkpoint.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", help="Only sessions heard of since: a time, or an age such as 24h."
        ),
    ] = None,
    by: options.By = None,
    definition: Definition = "default",
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Label messages of users, one key for each: they settle and correct what the judge says.

    Most are drawn by chance, so that rates can be corrected; some are chosen since they tell much.
    Stop when you like, and go on later. With --json it shows what it would ask.

    Example: penstock rewards label --count 20
    """
    from penstock_jobs.rewards.due_sessions import definition_known_as
    from penstock_jobs.rewards.followups.questions import read_frame

    with open_existing(data) as lake:
        known = definition_known_as(lake.database, definition)
        since_us = options.since_us(since) if since else None
        frame = read_frame(lake, known.version, tenant, checkpoint, since_us)
        if not frame.follow_ups:
            narrowed = "with these options, " if checkpoint or since else ""
            why = f"{narrowed}it has no follow-ups: `penstock rewards run` computes them where the"
            why += " definition names judged_follow_up"
            raise InvalidInput(what=f"The definition {known.name}", why=why)
        if json:
            show_json(_questions(lake, frame, chosen, count))
        elif model:
            _label_by_model(lake, frame, count)
        else:
            _label_by_person(lake, frame, count, chosen, options.actor(by))


def _label_by_person(
    lake: Lake, frame: "QuestionFrame", count: int, chosen: float, by: str
) -> None:
    from penstock_jobs.rewards.followups.label_prompt import LabelPrompt

    prompt = LabelPrompt(lake, frame, by, count, chosen)
    prompt.run()
    show_text(f"{len(prompt.answered)} labels by {by} are kept.")
    if prompt.gone:
        say(f"{prompt.gone} messages are not in the lake any more.")
    say("`penstock rewards run` uses them, and `penstock rewards rates` corrects by them.")


def _label_by_model(lake: Lake, frame: "QuestionFrame", count: int) -> None:
    from penstock_jobs.rewards.followups.questions import label_by_model

    tally = label_by_model(lake, frame, _language_model(lake), count)
    show_text(f"{tally.labelled} labels by the model are kept.")
    for why, times in tally.without.items():
        say(f"The model said nothing of {times}: {why}.")
    if tally.without:
        raise typer.Exit(3)


def _language_model(lake: Lake) -> "LlmJudge":
    from penstock_jobs.rewards.followups.llm_judge import open_judge

    judge = open_judge(lake.settings, lake.database, f"label-{uuid4()}")
    if judge is None:
        why = "set PENSTOCK_JUDGE_URL and PENSTOCK_JUDGE_MODEL"
        raise InvalidInput(what="A language model", why=why)
    return judge


def _questions(
    lake: Lake, frame: "QuestionFrame", chosen: float, count: int
) -> list[dict[str, object]]:
    from penstock_jobs.rewards.followups.labels import by_people, current_labels
    from penstock_jobs.rewards.followups.questions import follow_up_at, open_questions

    labels = by_people(current_labels(lake.database, frame.tenant))
    rows: list[dict[str, object]] = []
    for question in islice(open_questions(frame, labels, chosen), count):
        follow_up = follow_up_at(lake, frame.tenant, question.place)
        facts = {"judged": question.judged, "drawn": question.drawn}
        message = follow_up.message if follow_up else None
        rows.append({**question.place._asdict(), **facts, "message": message})
    return rows


def judge(
    *,
    model: Annotated[
        bool, typer.Option("--model", help="Ask the model of PENSTOCK_JUDGE_URL too.")
    ] = False,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """How good the judges of follow-ups are, on the labels that your people gave.

    Without a data directory, or without labels, on those that come with Penstock: half of them were
    written together with what the judges learned from, the fresh ones afterwards.

    Example: penstock rewards judge
    """
    from penstock.errors import PenstockError
    from penstock_jobs.rewards.followups.judge import fresh_examples, held_out_examples

    try:
        lake = open_existing(data)
    except PenstockError:
        if data is not None or model:
            raise
        lake = None
    results: list[tuple[str, Evaluation]] = []
    if lake is not None:
        with lake:
            own = _labelled(lake, tenant)
            judges = [*_local_judges(), *([_language_model(lake)] if model and own else [])]
            results = _evaluated(judges, {"labels drawn by chance": own} if own else {})
    if not results:
        say("No label of yours to go by (`penstock rewards label`): those of Penstock.")
        held_out = [example for example in held_out_examples() if not example.fresh]
        sets = {"held out": held_out, "fresh": list(fresh_examples())}
        results = _evaluated(_local_judges()[-1:], sets)
    _show_evaluations(results, json=json)


def _show_evaluations(results: "list[tuple[str, Evaluation]]", *, json: bool) -> None:
    from penstock_jobs.rewards.report import show_evaluation

    if json:
        judges = {result.judge for _, result in results}
        several = len(judges) > 1
        show_json({f"{name}, {each.judge}" if several else name: each for name, each in results})
        return
    for name, result in results:
        show_evaluation(name, result)


def _local_judges() -> "list[Judge]":
    from penstock_jobs.rewards.followups.local_judge import NEWEST, LocalJudge

    return [LocalJudge(generation) for generation in range(1, NEWEST + 1)]


def _evaluated(
    judges: "Iterable[Judge]", sets: "dict[str, list[Example]]"
) -> "list[tuple[str, Evaluation]]":
    from penstock_jobs.rewards.followups.judge import evaluate

    return [(name, evaluate(each, examples)) for name, examples in sets.items() for each in judges]


def _labelled(lake: Lake, tenant: str) -> "list[Example]":
    """What people said of messages that chance drew; what they could not tell is left out."""
    from penstock_jobs.rewards.followups.judge import LABELS, Example
    from penstock_jobs.rewards.followups.labels import by_people, current_labels, digest_of
    from penstock_jobs.rewards.followups.questions import follow_up_at

    examples = []
    for stored in by_people(current_labels(lake.database, tenant)):
        if not stored.drawn or stored.label not in LABELS:
            continue
        follow_up = follow_up_at(lake, tenant, stored.place)
        if follow_up is not None and digest_of(follow_up.message) == stored.message:
            known = next(label for label in LABELS if label == stored.label)
            examples.append(Example(follow_up.message, known, language=""))
    return examples
