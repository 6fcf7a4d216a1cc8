"""Export: the taken proposals as a suite that `penstock bench run` takes."""

import shutil
from pathlib import Path
from typing import Any

from penstock.core import toml_document
from penstock.core.errors import InvalidInput
from penstock.lake.lake import Lake
from penstock_jobs.benchmarks.mine.proposals import Proposal, ProposalFiles, files_of, proposals_of
from penstock_jobs.benchmarks.mine.verification import LIMITS, SCRIPT, check_files
from penstock_jobs.benchmarks.run import register_suite
from penstock_jobs.benchmarks.sandbox.sandbox_files import File, write_folder
from penstock_jobs.benchmarks.suite import Suite, read_suite


def export_suite(lake: Lake, tenant: str, suite: str, folder: Path) -> Suite:
    """Write and register a suite, so that shards leave out what it was made from.

    Raises InvalidInput."""
    taken = [each for each in proposals_of(lake.database, tenant, suite) if each.state == "taken"]
    if not taken:
        why = f"no proposal is taken yet; `penstock suites review {suite}` lists them"
        raise InvalidInput(what=f"The suite {suite}", why=why)
    if folder.exists():
        raise InvalidInput(what=f"The folder {folder}", why="it is there already")
    making = folder.with_name(f"{folder.name}.making")
    shutil.rmtree(making, ignore_errors=True)  # of an export that was killed
    making.mkdir(parents=True)
    commits = {each.facts[name] for each in taken for name in ("base", "settled")}
    sessions = {each.session_id for each in taken if each.session_id}
    head = {
        "name": suite,
        "limits": {"check_seconds": LIMITS.check_seconds},
        "check": {"command": ["python", SCRIPT.name]},
        "sources": {"sessions": sorted(sessions), "commits": sorted(commits)},
    }
    files = [File("suite.toml", toml_document.toml_text(head).encode())]
    write_folder(str(making), [*files, File(f"check/{SCRIPT.name}", SCRIPT.read_bytes())])
    for each in taken:
        place = making / "tasks" / each.task
        place.mkdir(parents=True)
        write_folder(str(place), _task_files(each, files_of(lake, tenant, suite, each.task)))
    making.rename(folder)
    written = read_suite(folder)
    register_suite(lake.database, tenant, written)
    return written


def _task_files(proposal: Proposal, kept: ProposalFiles) -> list[File]:
    facts = proposal.facts
    document: dict[str, Any] = {"tags": [facts["work"], *facts["languages"][:1], facts["source"]]}
    document["check"] = {"judged": kept.plan.check == "rubric"}
    if facts["environment"]:
        document["environment"] = facts["environment"]
    parts = {"tree": kept.change.tree, "solution": kept.change.solution}
    parts |= {"check": check_files(kept.change, kept.plan), "environment": kept.setup}
    return [
        File("task.toml", toml_document.toml_text(document).encode()),
        File("prompt.md", f"{proposal.prompt}\n".encode()),
        *(each._replace(path=f"{part}/{each.path}") for part in parts for each in parts[part]),
    ]
