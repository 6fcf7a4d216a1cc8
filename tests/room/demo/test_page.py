"""The page of the demonstration: whole, true to what it is given, and from nowhere else."""

import re
from html.parser import HTMLParser
from pathlib import Path

from penstock_jobs.demo.story import (
    COLUMNS,
    StoryEnding,
    UserReaction,
    largest_miss,
    plots,
    table_rows,
    write_page,
)
from tests.support.demo.chapters import chapter

VOID = {"meta"}


ENDING = StoryEnding("demo-0002", UserReaction(0.9, 0.2), UserReaction(0.88, 0.25))


class Reader(HTMLParser):
    """Fails where a tag is not closed in its order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """`<circle/>` opens nothing."""

    def handle_data(self, data: str) -> None:
        self.text += data


def read(path: Path) -> Reader:
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    assert reader.open == []
    return reader


def test_it_is_one_file_that_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", [chapter(1), chapter(2)], ENDING)
    page = read(tmp_path / "page.html")
    assert page.links == []
    assert not re.search(r"https?://|@import|url\(", (tmp_path / "page.html").read_text())
    for said in ("demo-0001", "80%", "75%", "promoted", "A weak model serves"):
        assert said in page.text


def test_what_is_told_cannot_become_a_tag(tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", [chapter(1, why="<script>x</script>")], ENDING)
    assert "<script>x</script>" in read(tmp_path / "page.html").text


def test_what_nobody_knows_is_no_point_and_no_number(tmp_path: Path) -> None:
    unknown = chapter(
        2, measured=UserReaction(None, None), checkpoint=None, score=None, verdict=None,
        outcome="failed", why="the trainer ended with 1",
    )  # fmt: skip
    kept, _, scores = plots([chapter(1), unknown], ENDING)
    assert [len(one.points) for one in kept.lines] == [2, 3]
    assert [len(one.points) for one in scores.lines] == [2, 1]
    write_page(tmp_path / "page.html", [chapter(1), unknown], ENDING)
    assert "—" in read(tmp_path / "page.html").text


def test_points_of_what_a_cycle_made_say_what_became_of_it() -> None:
    scores = plots([chapter(1), chapter(2, outcome="refused")], ENDING)[2]
    assert [[one.outcome for one in line.points] for line in scores.lines] == [
        ["", ""],
        ["promoted", "refused"],
    ]
    assert scores.lines[0].points[1].title == "demo-0001: 40.0%"
    assert scores.lines[1].points[1].title == "demo-0002: 50.0%"


def test_columns_tell_what_was_measured_from_what_is_true(tmp_path: Path) -> None:
    first = chapter(1, measured=UserReaction(0.8, 0.4, 0.034, 0.06))
    [row, last] = table_rows([first], ENDING)
    named = dict(zip(COLUMNS, row, strict=True))
    assert len(named) == len(COLUMNS)
    assert (named["edits kept: measured"], named["edits kept: truth"]) == ("80% ± 3", "75%")
    assert (named["dissatisfied: measured"], named["dissatisfied: truth"]) == ("40% ± 6", "50%")
    assert (last[0], last[-1]) == ("after", "serves")
    write_page(tmp_path / "page.html", [first], ENDING)
    page = (tmp_path / "page.html").read_text()
    for name in COLUMNS:  # a phone shows it beside each cell
        assert page.count(f'data-column="{name}"') == 2


def test_the_page_says_whether_the_largest_miss_is_within_its_interval(tmp_path: Path) -> None:
    wide = chapter(1, measured=UserReaction(0.74, 0.41, 0.02, 0.11))
    text = largest_miss([wide], ENDING)
    assert "9 points: 41% of turns dissatisfied in cycle 1, and 50% in truth" in text
    assert "That is within the interval of ± 11 points" in text
    narrow = chapter(2, measured=UserReaction(0.74, 0.41, 0.02, 0.05))
    assert "more than the interval of ± 5 points" in largest_miss([narrow], ENDING)
    assert largest_miss([chapter(1)], ENDING) == ""  # no interval is known
    write_page(tmp_path / "page.html", [wide], ENDING)
    assert text in read(tmp_path / "page.html").text


def test_a_verdict_is_a_list(tmp_path: Path) -> None:
    why = "the gate says FAIL of demo-0002: sums: 0.31 worse; at most 0.1; tokens: 34 % more"
    refused = chapter(2, outcome="refused", why=why)
    points = ["sums: 0.31 worse; at most 0.1", "tokens: 34 % more"]
    assert refused.reasons == ("the gate says FAIL of demo-0002", points)
    assert chapter(1, why="the trainer ended").reasons == ("the trainer ended", [])
    write_page(tmp_path / "page.html", [refused], ENDING)
    page = (tmp_path / "page.html").read_text()
    assert re.findall(r"<li>(.*?)</li>", page) == points
