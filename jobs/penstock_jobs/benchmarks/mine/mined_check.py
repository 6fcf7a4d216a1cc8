"""The check of a mined task, as it runs in the sandbox, with nothing but the standard library.

`check.json` beside it says how: by pytest, where named tests have to pass; by a command; or by a
rubric, which a model judges."""

import difflib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

CHECK = Path(__file__).parent
#: The check cannot judge, which is neither a pass nor a fail.
UNDECIDED = 3
LINES_SHOWN = 200


def main() -> int:
    plan = json.loads((CHECK / "check.json").read_text())
    if plan["check"] == "rubric":
        return judge(plan)
    given, copy = CHECK / "tests", shutil.copyfile
    shutil.copytree(
        given, ".", False, None, copy, ignore_dangling_symlinks=True, dirs_exist_ok=True
    )
    environment = {name: value for name, value in os.environ.items() if "PENSTOCK" not in name}
    paths = [str(Path.cwd() / "src"), str(Path.cwd()), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    if plan["check"] == "command":
        ended = subprocess.run(["sh", "-c", plan["command"]], env=environment, check=False)
        return int(bool(ended.returncode))
    return run_pytest(plan, environment)


def run_pytest(plan: dict[str, Any], environment: dict[str, str]) -> int:
    report = Path(tempfile.mkdtemp()) / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts="]
    command += [f"--junitxml={report}", "--tb=short", *plan["files"]]
    ended = subprocess.run(command, env=environment, text=True, check=False, capture_output=True)
    print("\n".join((ended.stdout + ended.stderr).splitlines()[-LINES_SHOWN:]))
    if "No module named pytest" in ended.stderr:
        return UNDECIDED
    passed = set()
    if report.is_file():
        for case in ElementTree.parse(report).iter("testcase"):
            if all(part.tag.startswith("system-") for part in case):
                passed.add(f"{case.get('classname')}::{case.get('name')}")
    if plan["tests"] is None:  # which ones pass is asked for
        print(json.dumps(sorted(passed)))
        return int(not passed)
    missing = sorted(set(plan["tests"]) - passed)
    print(f"{len(plan['tests']) - len(missing)} of {len(plan['tests'])} tests pass")
    print("\n".join(f"does not pass: {test}" for test in missing[:LINES_SHOWN]))
    return int(bool(missing))


def judge(plan: dict[str, Any]) -> int:
    if os.environ.get("PENSTOCK_EDITED") == "0":
        return 1
    if "PENSTOCK_JUDGE_URL" not in os.environ:
        print("a model judges this task: PENSTOCK_JUDGE_URL names none")
        return UNDECIDED
    before, lines = json.loads((CHECK / "before.json").read_text()), list[str]()
    files = {str(path.relative_to(Path.cwd())) for path in Path.cwd().rglob("*") if path.is_file()}
    for path in sorted(files | before.keys()):
        now = Path(path).read_text(errors="replace") if path in files else ""
        old = before.get(path, "")
        if now != old and "\0" not in now:
            names = f"a/{path}", f"b/{path}"
            lines += difflib.unified_diff(old.splitlines(), now.splitlines(), *names, lineterm="")
    told = {"solution": plan["solution"], "work": "\n".join(lines)}
    told["prompt"] = Path(os.environ["PENSTOCK_PROMPT_FILE"]).read_text()
    messages = [{"role": "user", "content": plan["rubric"].format(**told)}]
    body = {"messages": messages, "temperature": 0, "model": os.environ["PENSTOCK_JUDGE_MODEL"]}
    headers = {"Content-Type": "application/json"}
    headers["Authorization"] = f"Bearer {os.environ.get('PENSTOCK_JUDGE_KEY', '')}"
    place = f"{os.environ['PENSTOCK_JUDGE_URL'].rstrip('/')}/chat/completions"
    request = urllib.request.Request(place, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=100) as answer:
        text = json.load(answer)["choices"][0]["message"]["content"].strip()
    print(text)
    verdict = text.split()[-1].strip(".*`").upper() if text else ""
    return {"PASS": 0, "FAIL": 1}.get(verdict, UNDECIDED)


if __name__ == "__main__":
    sys.exit(main())
