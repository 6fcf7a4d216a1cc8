"""A proof is verified by what docs/proof.md says, without Penstock; and every change is found."""

import copy
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.events.event import TENANT_DEFAULT
from penstock.proof.comparison import differences
from penstock.proof.shard_records import kept_record
from penstock.signatures import SigningKey, canonical
from tests.room.proof.conftest import ProvenLake
from tests.support.commands import penstock
from tests.support.engine_lake import SESSIONS
from tests.support.repository import ROOT

PAGE = ROOT / "docs" / "proof.md"


def lines_of(language: str, number: int = 0) -> str:
    """A block of the page."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return str(blocks[number])


@pytest.fixture(scope="session")
def plain_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `cryptography` and what it needs, and nothing of Penstock."""
    folder = tmp_path_factory.mktemp("plain")
    for name in ("cryptography", "cffi", "_cffi_backend"):
        found = importlib.util.find_spec(name)
        if found is not None and found.origin is not None:
            place = Path(found.origin)
            place = place.parent if place.name == "__init__.py" else place
            (folder / place.name).symlink_to(place)
    return folder


def plain_python(path: Path, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Without site-packages."""
    return subprocess.run(
        [sys.executable, "-S", "-s", *words],
        env={"PYTHONPATH": str(path)},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


def written(folder: Path, name: str, document: dict[str, Any]) -> str:
    (folder / name).write_text(json.dumps(document, indent=1), encoding="utf-8")
    return name


def write_key(proven: ProvenLake, folder: Path) -> None:
    (folder / "lake.pem").write_text(SigningKey.of(proven.lake.settings).public.pem)


def test_the_lines_of_the_page_verify_it_without_penstock(
    proven: ProvenLake, tmp_path: Path, plain_path: Path
) -> None:
    write_key(proven, tmp_path)
    document = proven.proof()
    missing = plain_python(plain_path, "-c", "import penstock", cwd=tmp_path)
    assert "ModuleNotFoundError" in missing.stderr
    lines = ("-c", lines_of("python"))
    name = written(tmp_path, "proof.json", document)
    verified = plain_python(plain_path, *lines, name, "lake.pem", cwd=tmp_path)
    assert verified.stdout == "signed penstock proof 1\n", verified.stderr
    document["checkpoint"]["digest"] = "sha256:" + "f" * 64
    name = written(tmp_path, "changed.json", document)
    refused = plain_python(plain_path, *lines, name, "lake.pem", cwd=tmp_path)
    assert "InvalidSignature" in refused.stderr
    name = written(tmp_path, "report.json", proven.erase("s03"))
    verified = plain_python(plain_path, *lines, name, "lake.pem", cwd=tmp_path)
    assert verified.stdout == "signed None\n", verified.stderr


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_openssl_verifies_it(proven: ProvenLake, tmp_path: Path) -> None:
    write_key(proven, tmp_path)
    written(tmp_path, "proof.json", proven.proof())
    lines = lines_of("sh")
    told = subprocess.run(
        ["bash", "-e"], input=lines, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert told.stdout == "Signature Verified Successfully\n"


@pytest.mark.parametrize("session", ["s00", "s07", "nobody", "somebody", "anybody", "no one"])
def test_the_lines_of_the_page_show_whether_a_session_is_in_it(
    proven: ProvenLake, tmp_path: Path, plain_path: Path, session: str
) -> None:
    names = [
        written(tmp_path, "session.json", proven.session(session)),
        written(tmp_path, "proof.json", proven.proof()),
    ]
    told = plain_python(plain_path, "-c", lines_of("python", 1), *names, cwd=tmp_path)
    shard = proven.shard.manifest.id
    verb = "is in" if session.startswith("s0") else "is not in"
    known = " as unknown" if session.startswith("s0") else ""
    assert told.stdout == f"{session} {verb} {shard}{known}\n", told.stderr


def test_a_path_of_another_leaf_or_place_is_refused(
    proven: ProvenLake, tmp_path: Path, plain_path: Path
) -> None:
    proof = written(tmp_path, "proof.json", proven.proof())
    lines = lines_of("python", 1)

    def refused(genuine: Any, field: str, value: object) -> bool:
        document = copy.deepcopy(genuine)
        document["shards"][0]["leaves"][0][field] = value
        name = written(tmp_path, "session.json", document)
        told = plain_python(plain_path, "-c", lines, name, proof, cwd=tmp_path)
        return "AssertionError" in told.stderr

    for field, value in (("consent", "train"), ("index", 99), ("digest", "0" * 64), ("path", [])):
        assert refused(proven.session("s03"), field, value), field
    # Beyond the last leaf, or before the first, with the turns of the true place at each level.
    answers = [proven.session(f"s{number:02d}") for number in range(SESSIONS)]
    [third] = [each for each in answers if each["shards"][0]["leaves"][0]["index"] == 3]
    for place in (3 + 64, 3 - 64):
        assert refused(third, "index", place), place


def test_every_session_of_the_shard_has_a_path_and_the_same_root(proven: ProvenLake) -> None:
    record = kept_record(proven.lake, proven.shard.manifest.id, TENANT_DEFAULT)
    assert record is not None
    answers = [proven.session(f"s{number:02d}")["shards"][0] for number in range(SESSIONS)]
    assert {answer["root"] for answer in answers} == {record["sessions"]["root"]}
    assert sorted(answer["leaves"][0]["index"] for answer in answers) == list(range(SESSIONS))


def changed(document: Any) -> Iterator[Any]:
    """The document with each field changed, removed, and each list shortened, in turn."""
    if isinstance(document, dict):
        for name, value in document.items():
            yield {key: each for key, each in document.items() if key != name}
            yield from (document | {name: other} for other in changed(value))
    elif isinstance(document, list):
        for place, value in enumerate(document):
            yield document[:place] + document[place + 1 :]
            for other in changed(value):
                yield [*document[:place], other, *document[place + 1 :]]
        yield [*document, None]
    elif isinstance(document, bool) or document is None:
        yield not document
    elif isinstance(document, int):
        yield document + 1
    else:
        yield document + "x"
        yield document[1:] if document else None


def test_a_change_of_any_field_is_found(proven: ProvenLake) -> None:
    document = proven.proof()
    public = SigningKey.of(proven.lake.settings).public
    changes = list(changed(document))
    assert len(changes) > 200
    assert not [each for each in changes if public.has_signed(each)]


def test_a_document_has_one_form_for_all_readers(proven: ProvenLake) -> None:
    """Fractions are written differently here and there."""

    def no_fractions(value: Any) -> bool:
        if isinstance(value, dict):
            return all(key.isascii() for key in value) and all(map(no_fractions, value.values()))
        if isinstance(value, list):
            return all(map(no_fractions, value))
        return not isinstance(value, float)

    assert no_fractions(proven.proof())
    assert no_fractions(proven.session("s01"))


def test_what_is_otherwise_now_is_said(proven: ProvenLake) -> None:
    proven.promote("ckpt-1")
    document = proven.proof()
    assert differences(document, proven.proof()) == []
    proven.promote("ckpt-2", "again")
    proven.load("engine-b")
    [file] = (proven.data / "lake" / "shards").rglob("*.parquet")
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    found = "\n".join(differences(document, proven.proof()))
    assert "checkpoint ckpt-1 was serving, now it is retired" in found
    assert "since then, production version 3: promote, at ckpt-2" in found
    assert "since then, verdict" in found
    assert "replica engine-b of production serves it since" in found
    assert f"shard {proven.shard.manifest.id}: {file.name} has" in found
    file.write_bytes(content)
    report = proven.erase("s03")
    found = "\n".join(differences(document, proven.proof()))
    assert f"erasure {report['erasure']}" in found
    assert f"shard {proven.shard.manifest.id} was there, now it is erased" in found
    # What was in it before and is not now, the other way round.
    lost = "\n".join(differences(proven.proof(), document))
    assert "production version 3: promote, at ckpt-2 is not there any more" in lost


def test_the_command_writes_and_verifies(proven: ProvenLake, tmp_path: Path) -> None:
    data = ("--data", str(proven.data))
    file, key = tmp_path / "proof.json", tmp_path / "lake.pem"
    assert penstock("prove", "ckpt-2", "--output", str(file), *data).returncode == 0
    key.write_text(penstock("prove", "--public-key", *data).stdout)
    verified = penstock("prove", "--verify", str(file), *data)
    assert (verified.returncode, "is as the key" in verified.stderr) == (0, True)
    elsewhere = ("--data", str(tmp_path / "nowhere"))
    assert penstock("prove", "--verify", str(file), *elsewhere).returncode == 2
    assert penstock("prove", "--verify", str(file), "--key", str(key), *data).returncode == 0
    document = json.loads(file.read_bytes())
    assert canonical(document) + b"\n" == file.read_bytes()
    file.write_text(json.dumps(document | {"made_by": "another"}))
    answer = penstock("prove", "--verify", str(file), *data, "--json")
    assert (answer.returncode, json.loads(answer.stdout)["genuine"]) == (1, False)
    report = tmp_path / "report.json"
    report.write_text(json.dumps(proven.erase("s03")))
    assert penstock("prove", "--verify", str(report), *data).returncode == 0
    assert penstock("prove", *data).returncode == 2


def test_the_digests_of_all_sessions_go_into_a_file(proven: ProvenLake, tmp_path: Path) -> None:
    file = tmp_path / "leaves.txt"
    words = ("prove", "ckpt-2", "--leaves", str(file), "--data", str(proven.data))
    assert penstock(*words, "--output", str(tmp_path / "proof.json")).returncode == 0
    lines = file.read_text().splitlines()
    assert len(lines) == SESSIONS
    assert lines == sorted(lines)
    digest = proven.session("s05")["shards"][0]["digest"]
    assert f"{proven.shard.manifest.id} {digest} unknown" in lines
