"""Dockerfiles as commands, and rewards of Harbor's tests."""

import subprocess
from pathlib import Path

import pytest

from penstock_jobs.benchmarks.harbor.dockerfile import (
    CannotBeMade,
    expand,
    read_dockerfile,
    stand_in,
)
from penstock_jobs.benchmarks.harbor.task import Network, needed, read_reward
from penstock_jobs.benchmarks.sandbox.sandbox_files import File


def test_what_an_image_is_made_of() -> None:
    build = read_dockerfile(
        """
# syntax=docker/dockerfile:1
ARG VERSION=3.11
FROM --platform=linux/amd64 python:${VERSION}-slim
ENV PATH="/opt/bin:$PATH" HOME_OF=${NOTHING:-/opt}
ENV LEGACY a b
WORKDIR /app
workdir src
# a comment
RUN apt-get update && \\
    # within a command
    apt-get install -y curl
RUN ["echo", "a b"]
RUN python3 << 'PY'
print("FROM nowhere")
PY
CMD ["bash"]
"""
    )
    assert build.image == "python:3.11-slim"
    assert build.workdir == "/app/src"
    assert build.variables == {"PATH": "/opt/bin:$PATH", "HOME_OF": "/opt", "LEGACY": "a b"}
    place = "cd /app/src\nexec env VERSION=3.11"
    update = "'apt-get update &&     apt-get install -y curl'"
    assert build.commands == [
        "mkdir -p /app",
        "mkdir -p /app/src",
        f"{place} /bin/sh -c {update}",
        f"{place} echo 'a b'",
        f"""{place} /bin/sh -c 'python3 << '"'"'PY'"'"'\nprint("FROM nowhere")\nPY'""",
    ]


def test_hosts_that_a_task_cannot_do_without() -> None:
    files = {
        "Dockerfile": b"# curl https://no.example\nRUN apt-get update && \\\n"
        b"  curl -sL https://setup.example/a.sh | sh\nRUN wget http://or.example/b || true\n",
        "test.sh": b"git clone http://code.example/x\necho https://no.example\n",
        "README.md": b"curl https://no.example",
        "fetch.py": b"get('https://no.example')\nhf_hub_download(repo)\n",
    }
    found = {*needed(File(name, content) for name, content in files.items())}
    hub = {"huggingface.co:443", "cas-bridge.xethub.hf.co:443"}
    assert found == {"setup.example:443", "code.example:80"} | hub
    named = Network().addresses([File("fetch.py", files["fetch.py"])])
    assert {*named} == {"packages", "no.example:443"} | hub


COPIES = {
    "one.txt /new/name": ["new/name"],
    "one.txt /new/": ["new/one.txt"],
    "one.txt two.txt /new/": ["new/one.txt", "new/two.txt"],
    "*.txt /new/": ["new/one.txt", "new/two.txt"],
    "folder /new": ["new/a b", "new/deep/c"],
    "folder/deep/ /new/deeper/": ["new/deeper/c"],
    '["folder/a b", "/new/name"]': ["new/name"],
    "--chown=root:root --link . /new": [
        "new/folder/a b",
        "new/folder/deep/c",
        "new/one.txt",
        "new/two.txt",
    ],
}


@pytest.mark.parametrize("copy", COPIES)
def test_copies(tmp_path: Path, copy: str) -> None:
    context, root = tmp_path / "context", tmp_path / "root"
    for name in ("one.txt", "two.txt", "folder/a b", "folder/deep/c"):
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        (context / name).write_text(name)
    build = read_dockerfile(f"FROM debian:12\nCOPY {copy.replace('/new', f'{root}/new')}")
    subprocess.run(["sh", "-ec", *build.commands], cwd=context, check=True)
    found = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
    assert sorted(found) == COPIES[copy]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("FROM a:1\nFROM b:1", "only one base"),
        ("FROM a:1\nUSER nobody", "run as root"),
        ("FROM a:1\nCOPY --from=uv /uv /bin/", "cannot be done here"),
        ("FROM a:1\nCOPY ../secret /x", "leads out"),
        ("FROM a:1\nADD https://a.example/x /x", "has ADD"),
        ("FROM a:1\nRUN --mount=type=secret,id=x true", "a mount cannot be made"),
        ('FROM a:1\nENTRYPOINT ["/start"]', "nothing is started"),
        ("FROM a:1\nONBUILD RUN true", "has ONBUILD"),
        ("FROM a:1\nENV A='", "No closing quotation"),
        ("RUN true", "names no base"),
    ],
)
def test_what_cannot_be_made(lines: str, why: str) -> None:
    with pytest.raises(CannotBeMade, match=why):
        read_dockerfile(lines)


def test_bases_that_are_no_plain_ones() -> None:
    for image in ("debian", "debian:1", "company/python:3.11", "python:2.7", "python:3-alpine"):
        with pytest.raises(CannotBeMade, match="its base"):
            stand_in(image)


def test_variables() -> None:
    known = {"A": "1", "EMPTY": ""}
    assert expand("$A ${A}2 ${B:-x} ${A:+y} ${EMPTY:+z}$B:$PATH", known) == "1 12 x y :$PATH"


def test_a_public_network_has_the_hosts_that_files_name() -> None:
    file = File("a", b"curl https://a.example/x http://b.example:8080 http://localhost/")
    addresses = Network().addresses([file])
    assert "a.example:443" in addresses
    assert "packages" in addresses
    assert not [address for address in addresses if "b.example" in address or "local" in address]
    assert Network("no-network").addresses([file]) == ()
    allowed = Network("allowlist", ("a.example",)).addresses([file])
    assert allowed == ("a.example:80", "a.example:443")


def test_rewards() -> None:
    assert read_reward(None, b"0.5\n") == 0.5
    assert read_reward(b'{"reward": 1, "speed": 30}', b"0") == 1.0
    assert read_reward(b'{"only": 0}', None) == 0.0
    for as_json, as_text, why in (
        (None, None, "no reward"),
        (b'{"a": 1, "b": 1}', None, "several rewards"),
        (b'{"reward": NaN}', None, "not between"),
        (b'{"reward": "1"}', None, "not between"),
        (None, b"2", "not between"),
        (None, b"", "could not convert"),
    ):
        with pytest.raises(ValueError, match=why):
            read_reward(as_json, as_text)
