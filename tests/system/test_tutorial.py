"""The ten lines of the README, docs/tutorial.md block by block in the same folder, and
docs/connect.md with the tutorial's service, by the wheel alone and outside of the checkout."""

import json
import re
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.commands import penstock
from tests.support.installed_wheel import InstalledWheel
from tests.support.repository import ROOT
from tests.support.servers.ports import free_port

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SECONDS_MAX = 3000
_MARK = "==== block"
#: By a part of a block, what its output holds.
EXPECTED = {
    "penstock gate check ckpt-1": r"^PASS: ckpt-1 for production",
    'penstock query "select session_id, ts': r"the streaming is broken(.|\n)*edit",
    'group by all"\npenstock ledger': r"s-1 +2\b",
    "penstock rewards show sample-reverted": r"sample-reverted|edit_persistence",
    "penstock survival": r"Agents wrote \d+ lines in the last 90 days",
    "penstock shards verify": r"sha256:[0-9a-f]{64}|rows|samples",
    "penstock gate check careful": r"PASS(.|\n)*FAIL",
    "penstock channels history production": r"users complain",
    "penstock.open(": r"'type': 'user_message'",
    "@events.jsonl": r'"accepted":1',
    "penstock.Recorder(": r"sent=7, rejected=0",
    "penstock record ": r'"dropped":0',
    "penstock observe ": r"observations of files sent",
}
#: What docs/connect.md leaves to its reader.
LEFT_TO_THE_READER = {
    "@events.jsonl": """export PENSTOCK_KEY=$KEY
echo '{"session_id":"s-2","ts":"2026-11-20T09:00:00Z","type":"user_message",
"payload":{"text":"hello"}}' | tr -d '\\n' > events.jsonl
git init -q shop && mkdir shop/src && echo "a = 2" > shop/src/app.py
""",
    "penstock.Recorder(": "import os\na, b = 'a = 1\\n', 'a = 2\\n'\n",
}
#: What a walk writes otherwise: names of machines, and commands that run until they are ended.
OTHERWISE = {
    "https://penstock.example.org": "http://127.0.0.1:8787",
    "http://penstock:8787": """http://127.0.0.1:8787 > proxy.log 2>&1 &
until curl -sf http://127.0.0.1:8788/penstock/status; do kill -0 $! || break; sleep 0.2; done
kill $!""",
    "key=...": "key=os.environ['PENSTOCK_KEY']",
    'thumbs", 1)\n': 'thumbs", 1)\nrecorder.flush(60)\nprint(recorder.counts())\n',
    "penstock observe ~/src/shop": "penstock observe shop --once",
}
#: What refuses on purpose, and with which status its block ends.
STATUSES = {"penstock gate check hasty": 1}


@dataclass(frozen=True)
class Block:
    language: str
    text: str


def blocks() -> list[Block]:
    """What a reader types, and what is shown of its answers."""
    _, begun = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## Ten lines\n")
    [lines] = _BLOCK.findall(begun.partition("\n## ")[0])
    text = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    _, walked = text.split("\n## Send events\n")  # before it stands how to install
    ten = [Block("", line) for line in lines[1].splitlines()]
    *tutorial, end = _BLOCK.findall(walked)  # at the end the service is ended
    connect = _BLOCK.findall((ROOT / "docs" / "connect.md").read_text(encoding="utf-8"))
    return ten + [Block(*found) for found in (*tutorial, *connect, end)]


def script(port: int, proxy_port: int) -> str:
    """All blocks in one shell, whose variables live on, each followed by a mark and its status."""
    parts = ["trap 'kill $SERVER 2>/dev/null' EXIT"]
    for number, block in enumerate(blocks()):
        text = "".join(own for part, own in LEFT_TO_THE_READER.items() if part in block.text)
        text += block.text
        for part, other in OTHERWISE.items():
            text = text.replace(part, other)
        text = text.replace("127.0.0.1:8787", f"127.0.0.1:{port}")
        text = text.replace("penstock record ", f"penstock record --port {proxy_port} ")
        text = text.replace("127.0.0.1:8788", f"127.0.0.1:{proxy_port}")
        if block.language == "python":
            # What the reader copies from the build's output.
            text = f"python - <<'PYTHON'\n{text}PYTHON\n".replace('"sha256:…"', "open('id').read()")
        if block.language in ("json", "toml"):
            text = ""
        parts.append(f"{text}\nSTATUS=$?; echo; echo '{_MARK}' {number} $STATUS")
        if "penstock shards build" in text:
            first = 'print(json.load(sys.stdin)[-1]["id"], end="")'
            parts.append(
                f"penstock shards list --json | python -c 'import json, sys; {first}' > id"
            )
    return "\n".join(parts)


def outputs(wheel: InstalledWheel, directory: Path) -> dict[int, tuple[int, str]]:
    """By the number of its block: status and output."""
    port = free_port()
    done = subprocess.run(
        ["bash", "-c", script(port, free_port())],
        cwd=directory,
        env=wheel.environment() | {"PENSTOCK_PORT": str(port), "HOME": str(directory)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=_SECONDS_MAX,
    )
    pieces = re.split(rf"^{_MARK} (\d+) (\d+)\n", done.stdout, flags=re.MULTILINE)
    return {
        int(number): (int(status), output)
        for output, number, status in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=False)
    }


@pytest.mark.long
@pytest.mark.timeout(_SECONDS_MAX + 300)
def test_each_line_and_block_does_what_its_page_says(wheel: InstalledWheel, tmp_path: Path) -> None:
    directory = tmp_path / "walk"
    directory.mkdir()
    walked, seen = outputs(wheel, directory), set()
    for number, block in enumerate(blocks()):
        assert number in walked, f"the walk ended before: {block.text}"
        status, output = walked[number]
        if block.language == "toml":
            assert tomllib.loads(block.text)
        if block.language == "json" and "…" not in block.text:  # the answer to the block above it
            assert json.loads(block.text) == json.loads(walked[number - 1][1])
        wanted = [code for part, code in STATUSES.items() if part in block.text]
        assert status == (wanted[0] if wanted else 0), f"{block.text}\n{output}"
        for part, pattern in EXPECTED.items():
            if part in block.text:
                seen.add(part)
                assert re.search(pattern, output), f"{block.text}\n{output}"
    assert seen == EXPECTED.keys()
    left = {f"{path.name}{'/' * path.is_dir()}" for path in directory.iterdir()}
    left -= {"examples/", "id", "events.jsonl", "shop/", "proxy.log", ".local/"}
    ignored = subprocess.run(
        ["git", "check-ignore", *left], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    assert set(ignored.stdout.split()) == left


def test_the_pages_have_blocks_to_be_walked() -> None:
    """And what is looked for stands in them."""
    assert [block.text.split()[0] for block in blocks()[:10]] == 10 * ["penstock"]
    texts = [block.text for block in blocks()]
    for part in (*EXPECTED, *STATUSES, *LEFT_TO_THE_READER):
        assert sum(part in text for text in texts) == 1, part
    assert not any("pkill" in text for text in texts)


def test_the_examples_are_copied_to_where_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = penstock("examples")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "examples" / "recipes" / "sft-persistent.toml").is_file()
    assert penstock("examples").returncode == 2  # it overwrites nothing
