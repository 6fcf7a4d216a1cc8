"""What a file or folder is, by what is in it."""

import os
from pathlib import Path

import pytest

from penstock.core.errors import InvalidInput
from penstock_jobs.benchmarks.result_import import FORMATS, format_of
from tests.support.benchmarks.import_folders import (
    eval_log,
    harbor_job,
    harbor_trial,
    header,
    outcomes,
    read,
    sample,
    swe_instance,
    swe_summary,
    write,
)


def make(form: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if form == "penstock":
        write(folder / "r.jsonl", {"task": "a", "attempt": 0, "score": 1})
    elif form == "inspect":
        eval_log(folder / "l.eval", header(["a"]), [sample("a")])
        write(folder / "l.json", header(["a"], task_id="T2") | {"samples": [sample("a")]})
    elif form == "harbor":
        harbor_trial(folder, "a__1")
        harbor_job(folder, 1)
    elif form == "swe-bench":
        swe_instance(folder, "a")
        swe_summary(folder / "model.run1.json", resolved_ids=["a"], completed_ids=["a"])
    else:
        (folder / "r.xml").write_text('<testsuite><testcase name="a"/></testsuite>', "utf-8")


@pytest.mark.parametrize("form", FORMATS)
def test_each_format_is_recognised_and_no_other_takes_it(form: str, tmp_path: Path) -> None:
    make(form, tmp_path)
    assert format_of(tmp_path) == form
    assert outcomes(read(tmp_path))
    for name, one in FORMATS.items():
        assert one.recognises(tmp_path) == (name == form)


def test_a_mixture_is_refused_with_what_it_may_be(tmp_path: Path) -> None:
    make("harbor", tmp_path / "1")
    make("junit", tmp_path / "2")
    with pytest.raises(InvalidInput, match=r"harbor, junit; name one with --format"):
        format_of(tmp_path)
    assert outcomes(read(tmp_path, "harbor")) == {("a", 0): 1}


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[]", b"null", b'{"a": NaN}', b"PK\x03\x04", b"\xff\xfe{\x00}\x00", b"[" * 10**6,
     b'{"results": []', b"<html/>", b'{"resolved_ids": []}'],
)  # fmt: skip
def test_what_is_none_of_them_is_refused(data: bytes, tmp_path: Path) -> None:
    for name in ("x.json", "result.json", "results.json", "x.jsonl", "x.xml", "x.eval"):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InvalidInput, match="in a known format: penstock, inspect, harbor"):
            format_of(tmp_path / name)
    with pytest.raises(InvalidInput, match=r"The folder .* in a known format"):
        format_of(tmp_path)


def test_links_in_circles_and_pipes_are_not_followed(tmp_path: Path) -> None:
    make("penstock", tmp_path)
    (tmp_path / "again").symlink_to(tmp_path)
    (tmp_path / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert outcomes(read(tmp_path)) == {("a", 0): 1}


def test_more_attempts_than_the_setting_allows(tmp_path: Path) -> None:
    for at in range(4):
        harbor_trial(tmp_path, f"a__{at}")
    with pytest.raises(InvalidInput, match="more than 3 attempts"):
        read(tmp_path, attempts_max=3)
