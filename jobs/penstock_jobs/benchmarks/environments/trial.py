"""Trials: the recipes of a tree are tried one after another, until its own tests ran."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from penstock.backends.terminal.output import say
from penstock.core import toml_document
from penstock.core.settings import MIB, Settings
from penstock_jobs.benchmarks.attempt import AttemptTask, RunConditions, attempt_once, score_copy
from penstock_jobs.benchmarks.environments.environment import (
    ENVIRONMENTS,
    Environment,
    EnvironmentFailed,
    Layer,
    make_layer,
)
from penstock_jobs.benchmarks.environments.recipes import (
    COMMANDS_MAX,
    Recipe,
    recipe_of,
    recipes_of,
)
from penstock_jobs.benchmarks.sandbox.sandbox import PathRules, SandboxFailed
from penstock_jobs.benchmarks.sandbox.sandbox_files import File, FilePrint, named_places, prints_in
from penstock_jobs.benchmarks.suite import BenchmarkTask, Suite, TaskFiles, TaskLimits, load_files
from penstock_jobs.rewards.texts.languages import comment_start

_LIMITS = TaskLimits(seconds=1_800, check_seconds=900, memory_mib=4_096, processes=512)
#: The agent writes its commands to it.
_COMMANDS = "environment.sh"
#: Shorter files of code are the same in many projects.
_COPY_BYTES_MIN = 500
_COLOURS = re.compile(r"\x1b\[[\d;]*m")
_PROGRESS = re.compile(r"(?m)^([.FEsxX]{3,})(?: +\[ *\d+%\])?$")
_RAN = re.compile(r"(?m)^Ran (\d+) tests?\b")
_PASSED = re.compile(r"(?m)\b(\d+) pass(?:ed|ing)\b|^\W pass +(\d+)|^\s*--- PASS(): ")
_FAILED = re.compile(
    r"(?m)\b(\d+) (?:fail(?:ed|ing)|errors?)\b|^\W fail +(\d+)|^\s*--- FAIL(): "
    r"|\b(?:failures|errors)=(\d+)"
)
_PROMPT = (files(__package__) / "prompt.md").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Trials:
    """The conditions of trials: where layers are kept, and an agent that may be asked."""

    settings: Settings
    agent: str | None = None
    serving: str | None = None
    visible: tuple[str, ...] = ()


class Believed(NamedTuple):
    source: str
    #: With its digest.
    environment: Environment
    #: What its setup reads.
    files: list[File]


def try_recipes(trials: Trials, tree: Sequence[File]) -> Believed | None:
    """Find the first recipe with which more tests pass than fail, without a network.

    Returns None where the tree tells nothing. Raises EnvironmentFailed with all reasons."""
    recipes = recipes_of(tree)
    reasons = [f"{source}: {why}" for source, why in recipes.unfit.items()]
    for recipe in (*recipes.found, *([None] if trials.agent else ())):
        try:
            return _tried(trials, recipe or _asked(trials, recipes.tests, tree, reasons), tree)
        except (EnvironmentFailed, SandboxFailed) as error:
            reasons.append(f"{recipe.source if recipe else 'the agent'}: {error.facts['why']}")
    if reasons:
        raise EnvironmentFailed(why="\n".join(["nothing that was tried is believed.", *reasons]))
    return None


def prepare(trials: Trials, suite: Suite) -> Iterator[tuple[str, str | None]]:
    """Find an environment for each task that has none and whose tree tells one, and write it into
    its task.toml. Yields the tasks, and why there is none."""
    for task in suite.tasks:
        if task.environment is None and task.container is None:
            try:
                believed = try_recipes(trials, load_files(task).tree)
            except EnvironmentFailed as error:
                yield task.name, str(error)
                continue
            if believed is not None:
                path = task.folder / "task.toml"
                text = path.read_text("utf-8") if path.exists() else ""
                told = toml_document.toml_text({"environment": asdict(believed.environment)})
                path.write_text(f"{text.rstrip()}\n{told}", "utf-8")
        yield task.name, None


def counts_of(output: str) -> tuple[int, int]:
    """Count tests that passed and that failed, as pytest, unittest, Node, Go and Cargo say it."""
    plain = _COLOURS.sub("", output)
    passed, failed = (
        sum(int("".join(groups) or 1) for groups in each.findall(plain))
        for each in (_PASSED, _FAILED)
    )
    ran = sum(map(int, _RAN.findall(plain)))
    if not passed + failed + ran:  # it was cut off
        progress = "".join(_PROGRESS.findall(plain))
        return progress.count("."), progress.count("F") + progress.count("E")
    return passed + (ran and ran - failed), failed


def _tried(trials: Trials, recipe: Recipe, tree: Sequence[File]) -> Believed:
    files = recipe.environment.chosen(tree)
    layer = make_layer(recipe.environment, files, trials.settings.data / ENVIRONMENTS)
    if copied := _copied(layer, tree):
        raise EnvironmentFailed(why=f"its setup copies {copied} of the tree")
    task, conditions = _task(["sh", "-c", recipe.tests]), _conditions(trials)
    said = score_copy(AttemptTask(conditions, task, TaskFiles([*tree], []), layer), [*tree])
    passed, failed = counts_of(said.output)
    if passed <= failed:
        last = said.output.strip()[-1_000:]
        why = f"{recipe.tests!r}: {passed} tests pass, {failed} fail. {said.error or ''}\n{last}"
        raise EnvironmentFailed(why=why)
    environment = replace(recipe.environment, digest=layer.digest)
    say(f"The environment of {recipe.source}: {passed} tests pass, {failed} fail.")
    return Believed(recipe.source, environment, files)


def _copied(layer: Layer, tree: Sequence[File]) -> str | None:
    code = (each for each in tree if len(each.content) >= _COPY_BYTES_MIN)
    own = {FilePrint.of(file).digest: file.path for file in code if comment_start(file.path)}
    laid = (file.digest for file in prints_in(layer.folders[0]).values())
    return next((own[digest] for digest in laid if digest in own), None)


def _asked(trials: Trials, tests: str, tree: Sequence[File], tried: Sequence[str]) -> Recipe:
    """Ask the agent for commands."""
    told = {"tests": tests, "most": COMMANDS_MAX, "file": _COMMANDS, "tried": "\n".join(tried)}
    task = _task(["cat", _COMMANDS], _PROMPT.format(**told))
    conditions = replace(_conditions(trials), agent=trials.agent or "")
    outcome, _ = attempt_once(AttemptTask(conditions, task, TaskFiles([*tree], [])))
    commands = [line.strip() for line in outcome.output.splitlines() if line.strip()]
    if outcome.result.score != 1 or not 0 < len(commands) <= COMMANDS_MAX:
        why = outcome.result.error or f"{len(commands)} commands, and not 1 to {COMMANDS_MAX}"
        raise EnvironmentFailed(why=why)
    return recipe_of("the agent", tests, commands)


def _task(check: Sequence[str], prompt: str = "") -> BenchmarkTask:
    none = Path("/")
    how = _LIMITS, tuple(check), none, none, none
    return BenchmarkTask("environment", prompt, (), "any", *how)


def _conditions(trials: Trials) -> RunConditions:
    shown = *named_places(trials.agent or ""), *trials.visible
    return RunConditions(
        agent="",
        suite="environment",
        checkpoint="",
        serving=trials.serving,
        views=PathRules((str(trials.settings.data),), shown),
        output_bytes_max=4 * MIB,
    )
