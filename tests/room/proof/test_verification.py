"""A proof is verified by what docs/promote.md says, without Penstock; and every change is found."""

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

from penstock.core.lake_keys import SigningKey
from penstock.registry.proof.document import differences
from tests.room.proof.conftest import ProvenLake
from tests.support.commands import penstock
from tests.support.repository import ROOT

PAGE = ROOT / "docs" / "promote.md"


def lines_of(language: str) -> str:
    """The block of the page's part on it."""
    _, part = PAGE.read_text().split("### Verify it without Penstock")
    [block] = re.findall(rf"^```{language}\n(.*?)^```$", part, re.DOTALL | re.MULTILINE)
    return str(block)


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
def test_openssl_verifies_it(proven: ProvenLake, tmp_path: Path, plain_path: Path) -> None:
    write_key(proven, tmp_path)
    name = written(tmp_path, "proof.json", proven.proof())
    plain_python(plain_path, "-c", lines_of("python"), name, "lake.pem", cwd=tmp_path)
    lines = lines_of("sh")
    told = subprocess.run(
        ["bash", "-e"], input=lines, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert told.stdout == "Signature Verified Successfully\n"


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
    def no_fractions(value: Any) -> bool:
        if isinstance(value, dict):
            return all(key.isascii() for key in value) and all(map(no_fractions, value.values()))
        if isinstance(value, list):
            return all(map(no_fractions, value))
        return not isinstance(value, float)

    assert no_fractions(proven.proof())


def test_what_is_otherwise_now_is_said(proven: ProvenLake) -> None:
    proven.promote("ckpt-1")
    document = proven.proof()
    assert list(differences(document, proven.proof())) == []
    proven.promote("ckpt-2", "again")
    proven.load("engine-b")
    [file] = (proven.data / "lake" / "shards").rglob("*.parquet")
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    found = "\n".join(differences(document, proven.proof()))
    shard = proven.shard.manifest.id
    assert "parents: state of ckpt-1 was serving, and is now retired" in found
    assert "promotions: production 3 is new" in found
    assert "replicas: production engine-b is new" in found
    assert f"shards: problems of {shard} was [], and is now ['{file.name} has" in found
    file.write_bytes(content)
    report = proven.erase("s03")
    found = "\n".join(differences(document, proven.proof()))
    assert f"erasures: {report['erasure']} is new" in found
    assert f"shards: state of {shard} was there, and is now erased" in found
    # What was in it before and is not now, the other way round.
    lost = "\n".join(differences(proven.proof(), document))
    assert "promotions: production 3 no longer exists" in lost


def test_the_command_writes_and_verifies(proven: ProvenLake, tmp_path: Path) -> None:
    data = ("--data", str(proven.data))
    file, key = tmp_path / "proof.json", tmp_path / "lake.pem"
    file.write_text(penstock("prove", "ckpt-2", *data).stdout)
    key.write_text(penstock("prove", "--public-key", *data).stdout)
    verified = penstock("prove", "--verify", str(file), *data)
    assert (verified.returncode, "is as the key" in verified.stderr) == (0, True)
    elsewhere = ("--data", str(tmp_path / "nowhere"))
    assert penstock("prove", "--verify", str(file), *elsewhere).returncode == 2
    assert penstock("prove", "--verify", str(file), "--key", str(key), *elsewhere).returncode == 0
    document = json.loads(file.read_bytes())
    file.write_text(json.dumps(document | {"made_by": "another"}))
    answer = penstock("prove", "--verify", str(file), *data, "--json")
    assert (answer.returncode, json.loads(answer.stdout)["genuine"]) == (1, False)
    report = tmp_path / "report.json"
    report.write_text(json.dumps(proven.erase("s03")))
    assert penstock("prove", "--verify", str(report), *data).returncode == 0
    assert penstock("prove", *data).returncode == 2
