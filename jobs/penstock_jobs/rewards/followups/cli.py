"""`penstock rewards label` and `penstock rewards judge`."""

import sys
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer

from penstock.backends.terminal import options
from penstock.backends.terminal.output import say, show_json, show_text
from penstock.core.endpoint import Caller
from penstock.core.errors import InvalidInput, PenstockError
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.client import LocalClient
from penstock.lake.commands import command
from penstock.lake.lake import Lake, open_existing

if TYPE_CHECKING:
    from penstock_jobs.rewards.followups.judge import Evaluation, Example, Judge
    from penstock_jobs.rewards.followups.label_endpoints import OpenMessage
    from penstock_jobs.rewards.followups.llm_judge import LlmJudge

_LINES_MAX = 40
_CHARS_MAX = 4_000
_SHORT_CHARS_MAX = 600


@command()
def label(
    lake: Lake,
    *,
    count: Annotated[int, typer.Option("--count", min=1, help="The most labels to ask for.")] = 40,
    model: Annotated[
        bool,
        typer.Option("--model", help="Let the model of PENSTOCK_JUDGE_URL label, not a person."),
    ] = False,
    checkpoint: Annotated[
        str | None, typer.Option("--checkpoint", help="Only sessions of this checkpoint.")
    ] = None,
    by: options.By = None,
    definition: Annotated[
        str, typer.Option("--definition", help="The definition whose messages are asked about.")
    ] = "default",
    tenant: options.Tenant = TENANT_DEFAULT,
) -> None:
    """Label messages of users, one key for each. Labels overrule and correct the judge.

    Messages are drawn at random, so that rates can be corrected, with those before them that decide
    a request. Stop and continue at any time.

    Example: penstock rewards label --count 20
    """
    from penstock_jobs.rewards.due_sessions import definition_known_as
    from penstock_jobs.rewards.followups.questions import label_by_model, read_frame

    known = definition_known_as(lake.database, definition)
    frame = read_frame(lake, known.version, tenant, checkpoint)
    if not frame.waiting:
        narrowed = "of this checkpoint " if checkpoint else ""
        why = f"it has no follow-ups {narrowed}yet; `penstock rewards run` computes them if the"
        why += " definition names judged_follow_up"
        raise InvalidInput(what=f"The definition {known.name}", why=why)
    if model:
        labels, stopped = label_by_model(lake, tenant, frame, _language_model(lake), count)
        show_text(f"{labels} labels by the model are stored.")
        if stopped:
            say(f"The model did not label another: {stopped}.")
            raise typer.Exit(3)
    else:
        who = options.actor(by)
        client = LocalClient(lake, Caller(tenant, who))
        labels = _label_by_person(client, definition, checkpoint, count)
        show_text(f"{labels} labels by {who} are stored.")
        say("`penstock rewards run` uses them, and `penstock rewards rates` corrects by them.")


def _language_model(lake: Lake) -> "LlmJudge":
    from penstock_jobs.rewards.followups.llm_judge import open_judge

    judge = open_judge(lake.settings, lake.database, f"label-{uuid4()}")
    if judge is None:
        why = "set PENSTOCK_JUDGE_URL and PENSTOCK_JUDGE_MODEL"
        raise InvalidInput(what="A language model", why=why)
    return judge


# A person labels


def _label_by_person(
    client: LocalClient, definition: str, checkpoint: str | None, count: int
) -> int:
    """Ask a person until enough is labelled, nothing is left, or the person stops.

    Each answer is stored at once. Returns the number of labels."""
    from penstock_jobs.rewards.followups import label_endpoints as calls

    text = ["What does the message say about the agent's work just before it?"]
    text += [f"  {key}  {label}: {calls.ANSWERS[label]}" for key, label in calls.KEYS.items()]
    text += ["  u  undo your newest label    s  stop; your answers are stored"]
    show_text(*text)
    asked = calls.NextLabelRequest(definition=definition, checkpoint=checkpoint)
    labels = 0
    while labels < count and (message := client.call(calls.NEXT_LABEL, asked).next):
        show_text(f"\n{labels + 1} of {count}, {_about(message)}", *_message_lines(message))
        show_text(" ".join(f"{key} {label}" for key, label in calls.KEYS.items()))
        while (key := _pressed_key().lower()) not in (*calls.KEYS, "u", *_STOPS):
            show_text(*text)
        if key in _STOPS:
            break
        try:
            if key == "u":
                client.call(calls.UNDO, calls.UndoRequest(definition=definition))
                labels -= 1
                say("Taken back.")
                continue
            names = ("session_id", "turn", "message", "drawn", "until_us", "again")
            facts = {name: getattr(message, name) for name in names}
            given = calls.LabelOrder(**facts, label=calls.KEYS[key], definition=definition)
            client.call(calls.LABEL, given)
        except PenstockError as error:
            say(str(error))
            continue
        labels += 1
        show_text(f"→ {calls.KEYS[key]}")
    return max(labels, 0)


_STOPS = ("s", "q")


def _pressed_key() -> str:
    try:
        if sys.stdin.isatty():
            # An arrow key is several characters that end in a letter: no answer.
            pressed = typer.getchar()
            return pressed if len(pressed) == 1 else ""
        line = sys.stdin.readline()
    except (KeyboardInterrupt, EOFError):
        return "s"
    return line.strip()[:1] if line else "s"


def _about(message: "OpenMessage") -> str:
    why = "drawn at random" if message.drawn else "decides a drawn request"
    why = "asked a second time" if message.again else why
    return f"{why}: session {message.session_id!r}, turn {message.turn}"


def _message_lines(message: "OpenMessage") -> list[str]:
    facts = ["edited files" if message.edited else "edited nothing"]
    facts += [f"its tests {message.tests}"] if message.tests else []
    lines = []
    if message.previous:
        lines += ["before, the user said", *_behind_bars(message.previous, _SHORT_CHARS_MAX)]
    lines += [f"the agent {', '.join(facts)}, and said"]
    lines += _behind_bars(message.agent or "(nothing)", _SHORT_CHARS_MAX)
    return [*lines, "the user says", *_behind_bars(message.text, _CHARS_MAX)]


def _behind_bars(text: str, chars_max: int) -> list[str]:
    """Mark each line as quoted, and leave out the middle of a long text.

    Users paste in the middle and write before or after it."""
    if len(text) > chars_max:
        half = chars_max // 2
        text = f"{text[:half]}\n[… {len(text) - 2 * half} characters …]\n{text[-half:]}"
    lines = text.splitlines() or [""]
    if len(lines) > _LINES_MAX:
        half = _LINES_MAX // 2
        lines = [*lines[:half], f"[… {len(lines) - 2 * half} lines …]", *lines[-half:]]
    return [f"  │ {line}" for line in lines]


# The quality of judges


def judge(
    *,
    model: Annotated[
        bool, typer.Option("--model", help="Ask the model of PENSTOCK_JUDGE_URL too.")
    ] = False,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Evaluate the judges of follow-ups on the labels that your people gave.

    Without a data directory or labels, shipped examples are used: the held-out ones were written
    together with the judge's training examples, the fresh ones afterwards.

    Example: penstock rewards judge
    """
    from penstock_jobs.rewards.followups.judge import evaluate, fresh_examples, held_out_examples
    from penstock_jobs.rewards.followups.local_judge import local_judge
    from penstock_jobs.rewards.report import show_evaluation

    try:
        lake = open_existing(data)
    except PenstockError:
        if data is not None or model:
            raise
        lake = None
    judges: list[Judge] = [local_judge()]
    results: list[tuple[str, Evaluation]] = []
    if lake is not None:
        with lake:
            if own := _labelled(lake, tenant):
                judges += [_language_model(lake)] if model else []
                results = [("labels drawn by chance", evaluate(each, own)) for each in judges]
    if not results:
        say("No labels of yours (`penstock rewards label`): using shipped examples.")
        held_out = [example for example in held_out_examples() if not example.fresh]
        sets = {"held out": held_out, "fresh": fresh_examples()}
        results = [(name, evaluate(judges[0], examples)) for name, examples in sets.items()]
    if json:
        several = len({result.judge for _, result in results}) > 1
        show_json({f"{name}, {each.judge}" if several else name: each for name, each in results})
        return
    for name, result in results:
        show_evaluation(name, result)


def _labelled(lake: Lake, tenant: str) -> "list[Example]":
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
