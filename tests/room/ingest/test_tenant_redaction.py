"""Redaction modes that one tenant has of its own: followed by all that takes lines in, and nothing
passes while they are not known."""

import json
import random
from pathlib import Path

import pytest
import sqlalchemy as sa

from penstock.access.privacy.endpoints import (
    COUNT_REDACTIONS,
    LIST_REDACTIONS,
    SET_REDACTION,
    CountsRequest,
    RedactionAnswer,
    RedactionRequest,
    SetRedaction,
)
from penstock.backends.audit.chain import audit_entry
from penstock.backends.database import DatabaseUnreachable
from penstock.backends.database.engine import Database
from penstock.core.endpoint import Caller
from penstock.core.errors import InvalidInput
from penstock.events.redaction import SourceRule
from penstock.ingest.file_import import FileImporter
from penstock.lake import RedactionLoosened
from penstock.lake.client import perform
from penstock.lake.tenant_redaction import RedactionTally, TenantModes, read_redaction_counts
from tests.support.lakes import HandLake, body_of, make_event
from tests.support.planted_secrets import aws_key

pytestmark = pytest.mark.usefixtures("each_database")
SECRET = aws_key(random.Random(7))
MAIL = "anna.kern@firma.de"
TEXT = f"the key {SECRET} is of {MAIL}"


def order(
    lake: HandLake,
    tenant: str,
    *,
    is_local: bool = True,
    secrets: str | None = None,
    personal: str | None = None,
) -> RedactionAnswer:
    caller = Caller(tenant, "tester", is_local=is_local)
    question = SetRedaction(secrets=secrets, personal=personal)  # type: ignore[arg-type]
    answer = perform(SET_REDACTION, lake.lake, caller, question)
    lake.lake.redaction_modes.refresh()
    return answer


def texts(lake: HandLake, tenant: str) -> list[str]:
    rows = lake.rows("select payload from events order by ts", tenant=tenant)
    return [json.loads(row["payload"])["text"] for row in rows]


def test_each_tenant_has_its_own_modes_and_the_others_those_of_the_settings(lake: HandLake) -> None:
    order(lake, "careful", personal="mask")
    order(lake, "open", secrets="off")
    order(lake, "strict", secrets="drop")
    for tenant in ("careful", "open", "strict", "plain"):
        lake.store([make_event("s", 1, payload={"text": TEXT})], tenant=tenant)
    [careful], [opened], [plain] = (texts(lake, each) for each in ("careful", "open", "plain"))
    assert SECRET not in careful
    assert MAIL not in careful
    assert opened == TEXT
    assert SECRET not in plain
    assert MAIL in plain
    assert texts(lake, "strict") == []


def test_what_is_set_can_be_taken_back_a_mode_at_a_time(lake: HandLake) -> None:
    order(lake, "t", secrets="quarantine", personal="mask")
    answer = order(lake, "t", secrets="default")
    assert (answer.secrets, answer.personal, answer.own) == ("mask", "mask", ["personal"])
    order(lake, "t", personal="default")
    caller = Caller("t", "tester")
    [told] = perform(LIST_REDACTIONS, lake.lake, caller, RedactionRequest()).tenants
    assert (told.tenant, told.secrets, told.personal, told.own) == ("t", "mask", "off", [])


def test_a_key_makes_it_stricter_and_never_milder(lake: HandLake) -> None:
    """The admin of a tenant is not the operator."""
    order(lake, "t", is_local=False, personal="mask", secrets="quarantine")
    for milder in ("off", "mask", "default"):
        with pytest.raises(RedactionLoosened):
            order(lake, "t", is_local=False, secrets=milder)
    with pytest.raises(RedactionLoosened):
        order(lake, "t", is_local=False, secrets="drop", personal="off")
    order(lake, "t", secrets="mask")
    assert order(lake, "t", is_local=False, secrets="drop").secrets == "drop"


def test_whoever_sets_it_is_in_the_audit(lake: HandLake) -> None:
    order(lake, "t", personal="drop")
    columns = (audit_entry.c.tenant, audit_entry.c.actor, audit_entry.c.facts)
    query = sa.select(*columns).where(audit_entry.c.action == "redaction")
    with lake.lake.database.read() as connection:
        [(tenant, actor, facts)] = connection.execute(query).all()
    assert (tenant, actor) == ("t", "tester")
    assert json.loads(facts) == {"personal": "drop", "secrets": "default"}


def test_an_unknown_mode_and_tenant_are_refused(lake: HandLake) -> None:
    with pytest.raises(InvalidInput):
        order(lake, "t", secrets="mild")
    with pytest.raises(InvalidInput):
        order(lake, "", secrets="mask")


def test_matches_are_counted_by_source_and_hour_also_of_what_is_dropped(lake: HandLake) -> None:
    order(lake, "t", personal="drop")
    secret = make_event("s", 1, source="ide", payload={"text": f"{SECRET} and {SECRET}"})
    dropped = make_event("s", 2, source="cli", payload={"text": MAIL})
    importer = FileImporter(lake.lake, "t")
    importer.take_body(body_of([secret, dropped, make_event("s", 3)]))
    importer.take_body(body_of([secret]))
    importer.finish()
    counts = read_redaction_counts(lake.lake.database, "t")
    assert [(each.source, each.matches) for each in counts] == [("cli", 1), ("ide", 4)]
    assert len({each.hour for each in counts}) == 1
    caller = Caller("t", "tester")
    answer = perform(COUNT_REDACTIONS, lake.lake, caller, CountsRequest(limit=1))
    assert [each.source for each in answer.counts] == ["cli"]
    rest = perform(COUNT_REDACTIONS, lake.lake, caller, CountsRequest(cursor=answer.next))
    assert [each.source for each in rest.counts] == ["ide"]
    other = perform(COUNT_REDACTIONS, lake.lake, Caller("other", "tester"), CountsRequest())
    assert other.counts == []


def test_counts_that_cannot_be_noted_are_kept(lake: HandLake) -> None:
    tally = RedactionTally()
    tally.count("t", 0, {SourceRule("ide", "aws_key"): 2})
    with pytest.raises(DatabaseUnreachable):
        tally.flush(Database("sqlite:////nowhere/penstock.db"))
    tally.count("t", 1, {SourceRule("ide", "aws_key"): 1})
    tally.flush(lake.lake.database)
    [counted] = read_redaction_counts(lake.lake.database)
    assert (counted.rule, counted.matches, counted.hour) == ("aws_key", 3, 0)


def test_nothing_passes_before_the_modes_are_known(lake: HandLake, tmp_path: Path) -> None:
    away = Database(f"sqlite:///{tmp_path / 'nowhere' / 'penstock.db'}")
    lake.lake.redaction_modes = TenantModes(away, lake.lake.settings)
    lake.lake.__dict__.pop("redactor", None)
    with pytest.raises(DatabaseUnreachable):
        lake.send([make_event("s", 1, payload={"text": TEXT})])


def test_what_was_read_last_holds_while_the_database_is_away(lake: HandLake) -> None:
    """Where somebody reads it again every few seconds."""
    order(lake, "t", secrets="drop")
    modes = lake.lake.redaction_modes
    modes.is_kept = True
    modes._database = Database("sqlite:////nowhere/penstock.db")
    with pytest.raises(DatabaseUnreachable):
        modes.refresh()
    assert lake.send([make_event("s", 1, payload={"text": TEXT})], tenant="t").accepted == 0
