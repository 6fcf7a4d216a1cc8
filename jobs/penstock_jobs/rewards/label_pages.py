"""The page where people label messages, a key for each label, and what the labels did."""

import msgspec

from penstock.console.charts import Interval, interval_chart
from penstock.console.figures import share, url
from penstock.console.page import Content, PageList, Redirect, Visitor
from penstock.errors import InvalidInput
from penstock_jobs.rewards.calls import LIST_DEFINITIONS, DefinitionsQuestion
from penstock_jobs.rewards.followups.label_calls import (
    ANSWERS,
    LABEL,
    LABEL_RATES,
    NEXT_LABEL,
    UNDO,
    CheckpointLabels,
    EffectQuestion,
    LabelOrder,
    LabelStep,
    NextLabelQuestion,
    UndoQuestion,
)

PAGES = PageList("penstock_jobs.rewards:pages/")

_CHECKPOINTS_SHOWN = 40


class LabelForm(LabelOrder):
    checkpoint: str | None = None


class UndoForm(UndoQuestion):
    checkpoint: str | None = None


@PAGES.page(
    "/labels",
    "Labels",
    "labels.html.jinja",
    group="Training",
    place=1,
    shortcut="m",
    reads_rows=True,
)
def _queue(visitor: Visitor, question: NextLabelQuestion) -> Content:
    names = _definition_names(visitor)
    if names and question.definition not in names:
        # Whoever came without a name asks for the default one, which need not have run.
        question = msgspec.structs.replace(question, definition=names[0])
    content = {
        "asked": question,
        "answers": list(enumerate(ANSWERS.items(), 1)),
        "may_label": visitor.may_ask(LABEL),
        "definitions": names,
        "found": None,
        "problem": "",
    }
    try:
        return content | {"found": visitor.ask(NEXT_LABEL, question)}
    except InvalidInput as error:
        return content | {"problem": " ".join(str(error).split())}


def _definition_names(visitor: Visitor) -> list[str]:
    known = visitor.ask(LIST_DEFINITIONS, DefinitionsQuestion()).definitions
    return list(dict.fromkeys(each.name for each in known))


@PAGES.form("/labels/give", "Label", reads_rows=True)
def _give(visitor: Visitor, form: LabelForm) -> Redirect:
    names = LabelOrder.__struct_fields__
    given = visitor.ask(LABEL, LabelOrder(**{name: getattr(form, name) for name in names}))
    label = (given.label or "").replace("_", " ")
    return Redirect(_queue_path(form.definition, form.checkpoint), f"Kept: {label}. u undoes it.")


@PAGES.form("/labels/undo", "Undo")
def _take_back(visitor: Visitor, form: UndoForm) -> Redirect:
    taken = visitor.ask(UNDO, UndoQuestion(definition=form.definition))
    told = f"Your label of session {taken.session_id}, turn {taken.turn} is taken back."
    printable = "".join(each if each.isprintable() else "?" for each in told)
    return Redirect(_queue_path(form.definition, form.checkpoint), printable)


def _queue_path(definition: str, checkpoint: str | None) -> str:
    return url("/labels", definition=definition, checkpoint=checkpoint)


@PAGES.page(
    "/labels/rates", "What labels did", "label_rates.html.jinja", reads_rows=True, remembered=True
)
def _effect(visitor: Visitor, question: EffectQuestion) -> Content:
    names = _definition_names(visitor)
    if names and question.definition not in names:
        question = msgspec.structs.replace(question, definition=names[0])
    content = {"asked": question, "definitions": names, "effect": None, "problem": ""}
    try:
        effect = visitor.ask(LABEL_RATES, question)
    except InvalidInput as error:
        return content | {"problem": " ".join(str(error).split())}
    shown = effect.checkpoints[:_CHECKPOINTS_SHOWN]
    return content | {
        "effect": effect,
        "checkpoints_chart": interval_chart(
            [_interval(each, each.checkpoint or "several, or none") for each in shown],
            title="Dissatisfied users by checkpoint",
            description="With 95 % intervals by labels; the stroke is what the judge alone says.",
            value_format=share,
        ),
        "steps_chart": interval_chart(
            [_interval(each, f"{each.labels} labels") for each in effect.steps],
            title="The rate over all sessions as labels came in",
            description="With 95 % intervals; the stroke is what the judge alone says.",
            value_format=share,
        ),
    }


def _interval(step: LabelStep | CheckpointLabels, label: str) -> Interval:
    note = f"{step.drawn} drawn" if step.value is not None else f"too few: {step.drawn} drawn"
    return Interval(label, step.low, step.value, step.high, margin=step.judged, note=note)
