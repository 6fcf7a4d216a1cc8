"""The recorder for TypeScript masks what the service would, in plain texts."""

import json
import subprocess
from pathlib import Path

from bench.typescript_rules import PAGE, rules_page
from penstock.events.redaction.line_redaction import LineRedactor
from penstock.events.redaction.rules import rule_book
from tests.support.node import PACKAGE, compiler_ready, node_environment
from tests.support.redaction_corpus import Half, corpus

_PROGRAM = """
import { Mask } from %s;
import { createInterface } from "node:readline";
const mask = new Mask(process.argv[2]);
for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(JSON.parse(mask.line("s", line)).text));
}
"""


def test_the_rules_are_those_of_the_service() -> None:
    assert PAGE.read_text(encoding="utf-8") == rules_page()


def test_what_the_service_masks_it_masks_and_no_more(tmp_path: Path) -> None:
    compiler_ready()
    built = tmp_path / "dist"
    compiler = PACKAGE / "node_modules" / ".bin" / "tsc"
    subprocess.run(
        [compiler, "--project", PACKAGE / "tsconfig.json", "--outDir", built], check=True
    )
    (built / "package.json").write_text('{"type": "module"}')
    program = tmp_path / "program.mjs"
    program.write_text(_PROGRAM % json.dumps(str(built / "masking.js")))
    halves: tuple[Half, ...] = ("tuned", "held out")
    samples = [sample for half in halves for sample in corpus(half)]
    lines = "".join(json.dumps({"text": sample.text}) + "\n" for sample in samples)
    done = subprocess.run(
        ["node", program, tmp_path],
        input=lines, capture_output=True, text=True, check=True, env=node_environment(),
    )  # fmt: skip
    masked = [json.loads(line) for line in done.stdout.splitlines()]
    redactor = LineRedactor(rule_book("mask", "off"), lambda: b"key")
    kept = other = wrong = 0
    for (text, secret), own in zip(samples, masked, strict=True):
        line, _ = redactor.mask_line(json.dumps({"text": text}).encode())
        expected = json.loads(line)["text"]
        kept += own == text != expected
        other += _without_digests(own) != _without_digests(expected)
        wrong += not secret and own != text
    # It does not look over line breaks, and what it finds in an encoding it writes decoded.
    assert (kept <= 3, other <= 50, wrong) == (True, True, 0)


def _without_digests(text: str) -> str:
    parts = text.split("[SECRET:")
    rest = [part.partition(":")[0] + part.partition("]")[2] for part in parts[1:]]
    return "[SECRET:".join([parts[0], *rest])
