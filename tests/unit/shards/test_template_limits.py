"""Templates that would never end, or need more than the machine has."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.errors import InvalidInput
from penstock_jobs.shards.rows.rendered_branches import (
    TEMPLATE_CHARS_MAX,
    ChatTemplate,
    TemplateLimitReached,
)
from penstock_jobs.shards.rows.template_process import Refused, TemplateProcess, TextDraft
from tests.support.shards.talks import Talk

HONEST = "{% for m in messages %}[{{ m.content }}]{% endfor %}{{ '[' if add_generation_prompt }}"
EXPECTED = [TextDraft("[go][a]", [(1, 5, 7)])]
LOOP = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
DOUBLE = (
    "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}"
)
MESSAGES = Talk().user("go").model("a").conversation().contexts[0]


@pytest.fixture(scope="module")
def process() -> Iterator[TemplateProcess]:
    process = TemplateProcess(memory_bytes=256 << 20)
    yield process
    process.close()


@pytest.fixture(scope="module")
def brief() -> Iterator[TemplateProcess]:
    process = TemplateProcess(cpu_seconds=0.2)
    yield process
    process.close()


def drafts(template: str, process: TemplateProcess) -> list[TextDraft] | Refused:
    return ChatTemplate(template, "bad.jinja", process=process).drafts(
        MESSAGES, None, session="s-1"
    )


@pytest.fixture(autouse=True)
def _goes_on(process: TemplateProcess) -> Iterator[None]:
    """Whatever a template did, the next renders."""
    yield
    assert drafts(HONEST, process) == EXPECTED


@pytest.mark.parametrize(
    ("template", "work"),
    [
        (LOOP, "rendered the session s-1"),
        ("{{ (messages | length + 7) ** (9 ** 9) }}", "rendered the session s-1"),
        ("{{ 9 ** (9 ** 9) }}", "was compiled"),
    ],
)
def test_cpu_time_is_bounded(template: str, work: str, brief: TemplateProcess) -> None:
    with pytest.raises(TemplateLimitReached) as refused:
        drafts(template, brief)
    assert drafts(HONEST, brief) == EXPECTED
    message = " ".join(str(refused.value).split())
    start = f"The chat template bad.jinja was stopped while it {work}: it needed "
    assert message.startswith(start)
    assert "more than 0.2 seconds of CPU time" in message
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


@pytest.mark.parametrize(
    "template",
    [
        "{{ 'a' * 10 ** 10 }}",
        "{{ ([messages[0].content * 9999] * 10 ** 6) | join }}",
        "{{ messages[0].content | center(10 ** 10) }}",
        "{{ '%1000000000d' % messages | length }}",
        DOUBLE + "{{ n.x }}",
        "{% set n = namespace(x=[1]) %}"
        "{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
    ],
)
def test_memory_is_bounded(template: str, process: TemplateProcess) -> None:
    with pytest.raises(TemplateLimitReached, match="it needed more than 256 MiB of memory"):
        drafts(template, process)


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{{ messages[0].content * 17 * 1024 * 1024 }}", "wrote more than 33554432 characters"),
        ("{% for i in range(999999999) %}{% endfor %}", "Range too big"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion"),
        ("{{ raise_exception('x' * 9999) }}", "x" * 200),
        ("{{ '\\ud800' }}", "surrogates"),
    ],
)
def test_what_every_machine_refuses_alike_is_refused(
    template: str, why: str, process: TemplateProcess
) -> None:
    """These leave a session out; other limits depend on the machine, and a shard may not."""
    refused = drafts(template + HONEST, process)
    assert isinstance(refused, Refused)
    assert why in refused.why
    assert len(refused.why) <= 200


@pytest.mark.parametrize(
    "template", ["{{ " + "(" * 30_000 + ")" * 30_000 + " }}", "{% if 1 %}" * 20_000, "{{ -" * 9]
)
def test_a_template_that_cannot_be_compiled_is_named(
    template: str, process: TemplateProcess
) -> None:
    with pytest.raises(InvalidInput, match=r"bad\.jinja"):
        drafts(template, process)


def test_a_template_is_no_book(process: TemplateProcess) -> None:
    with pytest.raises(InvalidInput, match=f"over the limit of {TEMPLATE_CHARS_MAX}"):
        drafts("a" * (TEMPLATE_CHARS_MAX + 1), process)


def test_its_process_can_do_nothing_else(process: TemplateProcess) -> None:
    drafts(HONEST, process)
    assert process._process is not None
    status = Path(f"/proc/{process._process.process.pid}/status")
    if not status.exists():
        pytest.skip("the kernel of Linux is asked")
    assert "Seccomp:\t2" in status.read_text()


def test_a_process_that_was_killed_is_replaced(process: TemplateProcess) -> None:
    drafts(HONEST, process)
    assert process._process is not None
    process._process.process.kill()
    process._process.process.wait()
    assert drafts(HONEST, process)
