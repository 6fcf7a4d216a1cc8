"""Text that others disable is gone, for each measure; text in comments of its own is not."""

import pytest

from penstock_jobs.rewards.measures.work_left import WorkParameters, taken_back
from tests.support.rewards.measures import value
from tests.support.rewards.stories import Story, bucket, found

PERSISTENCE = "edit_persistence"
PY = "def area(w, h):\n    total = w * h\n    return total * factor\n"
JS = "function area(w, h) {\n  const total = w * h\n  return total * factor\n}\n"
C = "int area(int w, int h) {\n    int total = w * h;\n    return total * factor;\n}\n"
GO = "\tall := g(a)\n\tsend(all)\n"


def indented(text: str) -> str:
    return "".join(f"    {line}" for line in text.splitlines(keepends=True))


def commented(text: str, sign: str) -> str:
    return "".join(f"{sign} {line}" for line in text.splitlines(keepends=True))


DISABLED = [
    ("a.py", PY, commented(PY, "#")),
    ("a.py", PY, "if False:\n" + indented(PY)),
    ("a.py", PY, "if (0):\n" + indented(PY)),
    ("a.py", PY, "if not True:\n" + indented(PY)),
    ("a.py", PY, "if False and ready:\n" + indented(PY)),
    ("a.py", PY, "while 0:\n" + indented(PY)),
    ("a.py", PY, '"""\n' + PY + '"""\n'),
    ("a.py", PY, "OLD = r'''\n" + PY + "'''\n"),
    ("a.py", "y = compute(x, 2)\n", 's = "y = compute(x, 2)"\n'),
    ("a.rb", "run(x)\nstop(x)\n", "if false\n  run(x)\n  stop(x)\nend\n"),
    ("a.sh", "make all\nmake go\n", "if false; then\n  make all\n  make go\nfi\n"),
    ("a.yml", "on:\n  - run: make\n", "# on:\n#   - run: make\n"),
    ("a.js", JS, commented(JS, "//")),
    ("a.ts", JS, "/*\n" + JS + "*/\n"),
    ("a.ts", JS, "let z; /* " + JS.rstrip() + " */\n"),
    ("a.ts", JS, "const old = `" + JS + "`\n"),
    ("a.js", JS, "if (false) {\n" + indented(JS) + "}\n"),
    ("a.c", C, "#if 0\n" + C + "#endif\n"),
    ("a.c", "    run(x, y);\n", "    if (0) run(x, y);\n"),
    ("a.go", GO, "\tif false {\n" + indented(GO) + "\t}\n"),
    ("a.jsx", "  <All of={a} />\n  <One />\n", "  {/* <All of={a} />\n  <One /> */}\n"),
    ("a.css", "p { color: red; margin: 1px }\n", "/* p { color: red; margin: 1px } */\n"),
    ("a.sql", "SELECT total, tax FROM prices;\n", "-- SELECT total, tax FROM prices;\n"),
    ("a.html", "<p>The total is 12</p>\n", "<!-- <p>The total is 12</p> -->\n"),
    ("README.md", "Install it by pip.\n", "<!--\nInstall it by pip.\n-->\n"),
]


@pytest.mark.parametrize(("path", "written", "now"), DISABLED)
def test_text_that_others_disable_is_gone(path: str, written: str, now: str) -> None:
    story = Story().edit(0, "", written, path).look(30, now, path)
    assert value(PERSISTENCE, story) == 0
    # Together with other changes, and for later looks; until it is put back.
    story = Story().edit(0, "", written, path).look(25, "\n" + now, path).look(30, now, path)
    assert value(PERSISTENCE, story) == 0
    assert value(PERSISTENCE, story.look(120, written, path), horizon_s=120) == 1


@pytest.mark.parametrize(("path", "written", "now"), DISABLED)
def test_disabled_text_was_taken_back_as_deleted_text_was(
    path: str, written: str, now: str
) -> None:
    values = [
        found(
            taken_back(
                bucket(Story().edit(0, "", written, path).look(30, text, path)),
                WorkParameters(horizons_s=(30,)),
            ),
            "s-1",
            30,
            "session",
        )["value"]
        for text in (now, "")
    ]
    assert values[0] == pytest.approx(values[1])
    assert values[0] < 0


ENTRY, END = "def f(a):\n    b = 1\n", "\n\nf(1)\n"


@pytest.mark.parametrize(
    ("path", "above", "written", "exit_", "below"),
    [
        ("a.py", ENTRY, "    c = g(a)\n    send(c)\n", "    return b\n", END),
        ("a.py", ENTRY, "    c = g(a)\n    send(c)\n", "    raise Stop(\n        b,\n    )\n", END),
        ("a.js", "function f(a) {\n", "  let c = g(a);\n", "  return b;\n", "}\nf(1)\n"),
        ("a.js", "function f(a) {\n", "  let c = g(a)\n", "  throw new Error(b)\n", "}\nf(1)\n"),
        ("a.go", "func f(a int) int {\n\tb := h(a)\n", GO, "\treturn b\n", "}\n"),
    ],
)
def test_text_behind_an_exit_that_others_put_there_is_gone(
    path: str, above: str, written: str, exit_: str, below: str
) -> None:
    story = Story().look(-1, above + below, path)
    story.edit(0, above + below, above + written + below, path)
    assert value(PERSISTENCE, story.look(30, above + exit_ + written + below, path)) == 0


@pytest.mark.parametrize(
    ("path", "before", "after", "now"),
    [
        # Its own comments, and its text in a comment that was there.
        (
            "a.py",
            "x = 1\n",
            "x = 1\n# why x is 1\ny = 2\n",
            "x = 1\n# why x is 1\ny = 2\n# of the user\n",
        ),
        ("a.py", '"""\nD\n"""\n', '"""\nD\nof (x)\n"""\n', '"""\nD\nof (x)\n"""\n# user\n'),
        (
            "a.py",
            'def f():\n    """D."""\n',
            'def f():\n    """D."""\n    g()\n',
            'def f():\n    """D.\n\n    More.\n    """\n    g()\n',
        ),
        # What only looks like it.
        ("a.py", "x = 1\n", "x = 1\nurl = 'a'\n", "x = 1\nurl = 'a'  # the user's remark\n"),
        ("a.py", "x = 1\n", "x = 1\ny = 2\n", 'S = """\nif False:\n"""\nx = 1\ny = 2\n'),
        ("a.py", "x = 1\n", "x = 1\ngo(x)\n", "if False:\n    stop()\nx = 1\ngo(x)\n"),
        ("a.py", "x = 1\n", "x = 1\ngo(x)\n", "if 0 < z:\n    x = 1\n    go(x)\n"),
        ("a.py", ENTRY, ENTRY + "    go(b)\n", ENTRY + "    if a:\n        return\n    go(b)\n"),
        ("a.yml", "a: 1\n", "a: 1\nb: http://x/y#z\n", "a: 1\nb: http://x/y#z\nc: 3 # user\n"),
        ("a.md", "# A\n", "# A\nDon't (ever) `go`.\n", "<!-- t -->\n# A\nDon't (ever) `go`.\n"),
        ("a.tsx", "<p></p>\n", "<p>Hello there, all</p>\n", '<p>{t("Hello there, all")}</p>\n'),
        # Conditions around an exit, and what goes on behind it.
        ("a.js", "{\n}\n", "{\n  go(a)\n}\n", "{\n  if (!a) return\n  go(a)\n}\n"),
        ("a.js", "{\n}\n", "{\n  go(a)\n}\n", "{\n  if (!a)\n    return\n  go(a)\n}\n"),
        ("a.js", "{\n}\n", "{\n  go(a)\n}\n", "{\n  if (!a ||\n    !b)\n    return;\n  go(a)\n}\n"),
        ("a.go", "{\n}\n", "{\n  go(a)\n}\n", "{\n  if x {\n    return\n  }\n  go(a)\n}\n"),
        ("a.ts", "{\n}\n", "{\ncase 2:\n  go(a)\n}\n", "{\ncase 1:\n return\ncase 2:\n go(a)\n}\n"),
        ("a.c", "#endif\n", "#else\ngo(a);\n#endif\n", "#if B\n  return;\n#else\ngo(a);\n#endif\n"),
        ("a.js", "x()\n", "x()\ngo(a, b)\n", "all.map(e => {\n  return e\n})\nx()\ngo(a, b)\n"),
    ],
)  # fmt: skip
def test_text_that_still_runs_is_there(path: str, before: str, after: str, now: str) -> None:
    story = Story().look(-1, before, path).edit(0, before, after, path).look(30, now, path)
    assert value(PERSISTENCE, story) == 1


@pytest.mark.parametrize(
    ("written", "now"),
    [
        ('say("the sum is (all) of it")\n', "say('the sum is (all) of it')\n"),
        ("c = go(all, 'x(y)', more)\n", "return go(all, 'x(y)', more)\n"),
    ],
)
def test_a_line_that_is_written_anew_is_not_disabled(written: str, now: str) -> None:
    """Other quotes, and an exit in place of an assignment, change a line and disable nothing."""
    assert value(PERSISTENCE, Story().edit(0, "", written).look(30, now)) > 0.6


def test_a_region_of_a_docstring_that_nobody_had_seen_was_one_before() -> None:
    whole = 'class A:\n    """All.\n\n    One.\n    """\n\n    def f(self):\n        return 1\n'
    story = Story().edit(0, "    One.\n", "    One (1).\n    And a half (1.5).\n")
    story.look(30, whole.replace("    One.\n", "    One (1).\n    And a half (1.5).\n"))
    assert value(PERSISTENCE, story) == 1


def test_what_one_of_two_copies_disables_is_there() -> None:
    story = Story().edit(0, "", PY).look(5, PY + "\n" + PY).look(30, commented(PY, "#") + "\n" + PY)
    assert value(PERSISTENCE, story) == 1


def test_the_agent_s_own_comments_are_not_the_user_s_doing() -> None:
    story = Story().edit(0, "", PY).edit(5, PY, commented(PY, "#"))
    assert value(PERSISTENCE, story.look(30, commented(PY, "#"))) > 0.9
