"""The image installs what the project is made of, and says how it is run."""

import json
import re
from pathlib import PurePosixPath

from tests.support.deploy.reading import (
    PATHS,
    PORT,
    PROJECT,
    dockerfile,
    image_environment,
    instruction,
)
from tests.support.repository import ROOT


def copied() -> set[str]:
    """From the checkout into the image."""
    lines = [rest for verb, rest in dockerfile() if verb == "COPY" and "--from" not in rest]
    return {one for line in lines for one in line.split()[:-1]}


def arguments() -> dict[str, str]:
    lines = [rest for verb, rest in dockerfile() if verb == "ARG"]
    return {name: value.strip('"') for name, value in (line.split("=", 1) for line in lines)}


def test_what_the_wheel_is_made_of_is_copied() -> None:
    build = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    project = PROJECT["project"]
    needed = {*build["packages"], *build["force-include"], project["readme"]}
    needed |= set(project["license-files"])
    roots = {PurePosixPath(one).parts[0] for one in needed}
    assert copied() == roots | {"pyproject.toml", "requirements.lock"}


def test_the_build_sees_what_is_copied_and_nothing_else() -> None:
    rules = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [rule for rule in rules if rule and not rule.startswith("#")]
    assert rules[0] == "*"
    assert {rule[1:] for rule in rules if rule.startswith("!")} == copied()
    assert "**/__pycache__" in rules


def test_its_python_and_its_extras_are_the_project_s() -> None:
    version = re.match(r"(\d+)\.(\d+)\.\d+-slim-\w+$", arguments()["PYTHON"])
    assert version
    needed = PROJECT["project"]["requires-python"].removeprefix(">=").split(".")
    assert (int(version[1]), int(version[2])) >= tuple(map(int, needed))
    extras = set(arguments()["EXTRAS"].split())
    assert extras == PROJECT["project"]["optional-dependencies"].keys() - {"all", "ray"}


def test_every_package_comes_from_the_lock_with_its_hash() -> None:
    installs = [rest for verb, rest in dockerfile() if verb == "RUN" and " pip install" in rest]
    text = " && ".join(installs)
    steps = [step for step in text.split("&&") if re.search("uv (pip install|build)", step)]
    assert len(steps) == 3
    for step in steps:
        assert "--no-deps /wheel/" in step or (
            "--require-hashes" in step and re.search(r"constraints? requirements\.lock", step)
        )


def test_it_runs_as_a_number_that_is_not_root_and_owns_its_data() -> None:
    identity = arguments()["ID"]
    assert int(identity) > 0
    assert instruction("USER") == "${ID}:${ID}"
    assert instruction("VOLUME") == image_environment()["PENSTOCK_DATA"] == instruction("WORKDIR")
    assert any(
        f"--owner penstock --group penstock {instruction('VOLUME')}" in rest
        for verb, rest in dockerfile()
        if verb == "RUN"
    )


def test_it_is_started_asked_and_stopped_as_the_service_expects() -> None:
    assert json.loads(instruction("ENTRYPOINT"))[0] in PROJECT["project"]["scripts"]
    assert json.loads(instruction("CMD")) == ["serve", "--host", "0.0.0.0"]
    assert instruction("EXPOSE") == str(PORT)
    assert instruction("STOPSIGNAL") == "SIGTERM"
    program = json.loads(instruction("HEALTHCHECK").partition("CMD ")[2])[-1]
    [path] = re.findall(r"'GET', '([^']+)'", program)
    assert path in PATHS
    assert f"'127.0.0.1', {PORT}" in program
