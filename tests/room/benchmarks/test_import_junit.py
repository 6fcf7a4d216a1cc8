"""Reports in JUnit's XML."""

import shutil
from pathlib import Path

import pytest

from penstock.core.errors import InvalidInput
from tests.support.benchmarks.import_folders import outcomes, read


def report(path: Path, *tests: str, suite: str = "s") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    body = "".join(tests)
    text = f'<testsuites><testsuite name="{suite}">{body}</testsuite></testsuites>'
    path.write_text(f'<?xml version="1.0" encoding="utf-8"?>{text}', encoding="utf-8")
    return path


def test_each_verdict(tmp_path: Path) -> None:
    found = read(
        report(
            tmp_path / "r.xml",
            '<testcase classname="t.A" name="good" time="1.5"/>',
            '<testcase classname="t.A" name="bad"><failure message="no">x</failure></testcase>',
            '<testcase classname="t.A" name="broken"><error type="OSError"/></testcase>',
            '<testcase classname="t.A" name="left"><skipped message="on Linux"/></testcase>',
            '<testcase name="plain" status="notrun"/>',
            '<testcase name="both"><failure/><error message="teardown"/></testcase>',
        )
    )
    assert outcomes(found) == {
        ("t.A::good", 0): 1,
        ("t.A::bad", 0): 0,
        ("t.A::broken", 0): "OSError",
        ("t.A::left", 0): "skipped: on Linux",
        ("s::plain", 0): "skipped",
        ("s::both", 0): "teardown",
    }
    assert found.problems == {"a test that was skipped is an error": 2}
    [good] = [one for one in found.attempts if one.task == "t.A::good"]
    assert good.latency_s == 1.5


def test_of_a_test_that_was_run_again_the_first_run_counts(tmp_path: Path) -> None:
    found = read(
        report(
            tmp_path / "r.xml",
            '<testcase name="flaky"><flakyFailure message="1"/><flakyError/></testcase>',
            '<testcase name="shaky"><flakyError message="net"/></testcase>',
            '<testcase name="never"><failure/><rerunFailure/><rerunFailure/></testcase>',
        )
    )
    assert outcomes(found) == {("s::flaky", 0): 0, ("s::shaky", 0): "net", ("s::never", 0): 0}
    assert found.problems == {"a test was run again: its first run counts": 3}


def test_the_same_test_again_is_another_attempt_but_a_copy_of_a_file_is_none(
    tmp_path: Path,
) -> None:
    one = '<testcase name="a"/>'
    report(tmp_path / "TEST-1.xml", one, '<testcase name="a"><failure/></testcase>')
    report(tmp_path / "TEST-2.xml", one)
    shutil.copy(tmp_path / "TEST-2.xml", tmp_path / "TEST-3.xml")
    found = read(tmp_path)
    assert outcomes(found) == {("s::a", 0): 1, ("s::a", 1): 0, ("s::a", 2): 1}
    assert found.problems == {"a copy of another file was passed over": 1}


BOMB = """<?xml version="1.0"?><!DOCTYPE b [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>
<testsuite name="&b;"><testcase name="a"/></testsuite>"""
ELSEWHERE = """<?xml version="1.0"?><!DOCTYPE b [<!ENTITY a SYSTEM "file:///etc/passwd">]>
<testsuite name="s"><testcase name="&a;"/></testsuite>"""
DEEP = "<testsuite>" + "<a>" * 100_000


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (BOMB, "declares a document type"),
        (ELSEWHERE, "declares a document type"),
        ("<testsuite><testcase name='a'/>", "not XML"),
        ("<testsuite><testcase name='a'></testsuite>", "not XML"),
        (DEEP, "not XML"),
        ("\x00\x01", "not XML"),
    ],
    ids=["bomb", "elsewhere", "cut off", "crossed", "deep", "bytes"],
)
def test_what_is_no_report_gives_nothing(tmp_path: Path, text: str, why: str) -> None:
    report(tmp_path / "good.xml", '<testcase name="a"/>')
    bad = tmp_path / "bad.xml"
    bad.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput, match=why):
        read(bad, "junit")
    assert outcomes(read(tmp_path)) == {("s::a", 0): 1}
