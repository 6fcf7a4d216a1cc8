"""Exclusions by facts: consent, copies, staleness, exclusion."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_jobs.shards import exclusion
from penstock_jobs.shards.exclusion import (
    Exclusion,
    Exclusions,
    of_vendors,
    spread_over_chains,
    without_consent,
)
from penstock_jobs.shards.exclusion.repeated_events import copied, only_copies
from penstock_jobs.shards.selection.session_facts import SessionProfile


def reasons(found: Exclusions) -> dict[str, str]:
    return {session: why.reason for session, why in found.items()}


def test_what_leaves_out_one_leaves_out_its_chain() -> None:
    chains = {"a": "a", "b": "a", "c": "a", "d": "d"}
    found = spread_over_chains(
        {"c": Exclusion("stale_age", "old"), "b": Exclusion("stale_version")}, chains
    )
    assert found == {
        "a": Exclusion("stale_version", "by b, of the same chain"),
        "b": Exclusion("stale_version"),
        "c": Exclusion("stale_age", "old"),
    }


# Consent


def test_consent_is_that_of_the_whole_chain() -> None:
    consents = {"a": "train", "b": "unknown", "c": "train", "d": "no_train", "e": "unknown"}
    chains = {"a": "a", "b": "a", "c": "c", "d": "c", "e": "e", "f": "f", "g": "e"}
    found = without_consent(consents | {"g": "no_train"}, chains, "train")
    assert reasons(found) == {
        "a": "consent_unknown",
        "b": "consent_unknown",
        "c": "consent_denied",
        "d": "consent_denied",
        "e": "consent_denied",  # its own is unknown, and another of its chain said no
        "f": "consent_unknown",  # nobody knows of it
        "g": "consent_denied",
    }
    assert found["c"].detail == "by d, of the same chain"
    found = without_consent(consents, chains, "not_denied")
    assert reasons(found) == {"c": "consent_denied", "d": "consent_denied"}


_CONSENT = st.sampled_from(["train", "no_train", "unknown"])


@settings(max_examples=50)
@given(st.lists(st.tuples(_CONSENT, st.sampled_from("abc")), max_size=8))
def test_consent_lets_in_only_what_may_be_trained_on(rows: list[Any]) -> None:
    consents = {f"s{place}": said for place, (said, _) in enumerate(rows)}
    chains = {f"s{place}": chain for place, (_, chain) in enumerate(rows)}
    for wanted, enough in (("train", {"train"}), ("not_denied", {"train", "unknown"})):
        found = without_consent(consents, chains, wanted)  # type: ignore[arg-type]
        for session, chain in chains.items():
            of_chain = {consents[one] for one in chains if chains[one] == chain}
            assert (session not in found) == (of_chain <= enough)


# Copies


def event(session: str, ts: int, kind: str, message: str | None, key: str | None = None) -> Any:
    source = None if key is None else "editor"
    return {
        "session_id": session, "ts": ts, "seq": ts, "type": kind, "source": source,
        "source_key": key, "message": message,
    }  # fmt: skip


_EVENTS = pa.schema(
    [
        ("session_id", pa.string()),
        ("ts", pa.int64()),
        ("seq", pa.int64()),
        *((name, pa.string()) for name in ("type", "source", "source_key", "message")),
        *((name, pa.string()) for name in ("written", "sampled")),
    ]
)
ASKED, WROTE = "user_message", "model_call"


def events(*rows: Any) -> pa.Table:
    return pa.Table.from_pylist(list(rows), _EVENTS)


def test_words_sampled_anew_are_no_copy_and_tokens_sampled_once_are() -> None:
    """`fork` has the words of `root` and other tokens; `sister` the tokens, after other words."""
    told = [
        event("root", 1, ASKED, "do it") | {"written": None},
        event("root", 2, WROTE, "done") | {"written": "a", "sampled": "pa"},
        event("fork", 3, ASKED, "do it"),
        event("fork", 4, WROTE, "done") | {"written": "b", "sampled": "pb"},
        event("sister", 5, ASKED, "do it now"),
        event("sister", 6, WROTE, "done") | {"written": "a", "sampled": "pa"},
        event("bare", 7, ASKED, "do it"),
        event("bare", 8, WROTE, "done"),
        event("mute", 9, ASKED, "do it"),
        event("mute", 10, WROTE, None),
    ]
    parents = dict.fromkeys(("fork", "sister", "bare", "mute"), "root")
    mask = copied(events(*told), parents).tolist()
    assert mask == [False, False, True, False, False, True, True, True, True, False]


def test_the_same_key_in_another_session_is_a_copy() -> None:
    rows = events(
        event("later", 10, WROTE, "done", "k1"),
        event("early", 1, WROTE, "done", "k1"),
        event("early", 2, WROTE, "one of two events of a message", "k2"),
        event("early", 3, WROTE, "the other", "k2"),
        event("later", 11, WROTE, "own", "k3"),
        event("other", 1, WROTE, "no key", None),
        event("third", 1, WROTE, "no key", None),
    )
    found = copied(rows, {})
    assert found.tolist() == [True, False, False, False, False, False, False]
    assert only_copies(rows, found) == {}
    # In a session that repeats, even where it claims to be earlier.
    found = copied(rows, {"early": "later"})
    assert found.tolist() == [False, True, False, False, False, False, False]


def test_the_history_that_a_fork_repeats_is_a_copy() -> None:
    history = [(ASKED, "fix it"), (WROTE, "fixed"), (ASKED, "go on"), (WROTE, "went on")]
    parent = [event("p", at, kind, text) for at, (kind, text) in enumerate(history)]
    fork = [event("f", 100 + at, kind, text) for at, (kind, text) in enumerate(history[:3])]
    fork += [event("f", 110, WROTE, "otherwise"), event("f", 111, ASKED, "go on")]
    fork += [event("f", 112, WROTE, "went on")]  # said again, after the ways parted
    rows = events(*fork, *parent)
    found = copied(rows, {"f": "p"})
    assert found.tolist() == [True] * 3 + [False] * 7
    assert only_copies(rows, found) == {}
    # By no link there is no history.
    assert not copied(rows, {}).any()
    only = events(*fork[:2], event("q", 6, ASKED, "nothing was written"), *parent)
    assert reasons(only_copies(only, copied(only, {"f": "p"}))) == {"f": "copy"}


@settings(max_examples=20)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=12),
    st.randoms(use_true_random=False),
)
def test_of_each_key_one_session_s_stays(pairs: list[Any], random: Any) -> None:
    rows = [event(name, at, WROTE, str(at), f"k{key}") for at, (name, key) in enumerate(pairs)]
    found = copied(events(*rows), {"b": "a"})
    kept = {
        (row["source_key"], row["session_id"])
        for row, copy in zip(rows, found, strict=True)
        if not copy
    }
    assert len(kept) == len({key for _, key in pairs})
    order = random.sample(range(len(rows)), len(rows))
    mixed = copied(events(*(rows[place] for place in order)), {"b": "a"})
    assert mixed.tolist() == [found[place] for place in order]


# Staleness

ORDER = ["c1", "c2", "c3", "c4"]
NOW_US = 1_000_000_000_000


def work(session: str, *checkpoints: str) -> SessionProfile:
    return SessionProfile(session, checkpoints=checkpoints)


def test_a_session_is_as_stale_as_its_oldest_version() -> None:
    behind = exclusion.versions_behind(ORDER, "c3")
    assert behind == {"c1": 2, "c2": 1, "c3": 0, "c4": -1}
    # After a rollback to c2, c2 is what is served.
    rolled_back = exclusion.versions_behind(["c1", "c2", "c3", "c2"], "c2")
    assert rolled_back == {"c1": 3, "c3": 1, "c2": 0}
    chains = {"root": "root", "goes-on": "root"}
    works = [
        work("fresh", "c3"),
        work("newer", "c4"),
        work("one", "c2"),
        work("two", "c1"),
        work("mixed", "c3", "c1"),
        work("unknown", "c3", "c9"),
        work("unnamed"),
        work("root", "c3"),
        work("goes-on", "c1"),
    ]
    found = exclusion.stale(works, chains, NOW_US, behind=behind, max_versions=1)
    assert reasons(found) == {
        "two": "stale_version", "mixed": "stale_version", "unknown": "stale_unknown_version",
        "unnamed": "stale_unknown_version", "goes-on": "stale_version", "root": "stale_version",
    }  # fmt: skip
    assert found["mixed"].detail == "c1 is 2 versions behind"
    assert found["unknown"].detail == "c9"
    assert found["root"].detail == "by goes-on, of the same chain"


def test_age_is_against_the_snapshot() -> None:
    works = [work(name) for name in ("at", "past", "ahead", "nothing-written")]
    sampled_us = {"at": NOW_US - 60_000_000, "past": NOW_US - 61_000_000, "ahead": NOW_US + 5}
    found = exclusion.stale(works, {}, NOW_US, sampled_us=sampled_us, max_age_s=60)
    assert found == {"past": Exclusion("stale_age", "its first tokens were sampled 61 s before")}
    assert exclusion.stale(works, {}, NOW_US) == {}


# Caps


def of_user(user: str | None, *sessions: str, repo: str | None = None) -> list[SessionProfile]:
    return [SessionProfile(session, session, user, repo) for session in sessions]


def over_caps(works: Sequence[SessionProfile], seed: int, **caps: int | None) -> dict[str, str]:
    names = ("session_id", "chain", "user", "repo")
    columns = {name: [getattr(each, name) for each in works] for name in names}
    rows = pa.table(columns, pa.schema(dict.fromkeys(names, pa.string())))
    reasons = exclusion.over_caps(rows, seed, **caps).to_pylist()
    pairs = zip(columns["session_id"], reasons, strict=True)
    return {session: reason for session, reason in pairs if reason is not None}


def test_nobody_has_more_than_the_cap() -> None:
    many = [f"s{place:03}" for place in range(100)]
    works = [*of_user("u", *many), *of_user("v", "v1", "v2"), *of_user(None, "n1", "n2", "n3")]
    found = over_caps(works, seed=7, per_user=2)
    assert len(found) == 98
    assert set(found.values()) == {"cap_user"}
    assert not found.keys() & {"v1", "v2", "n1", "n2", "n3"}
    assert over_caps(works, seed=8, per_user=2).keys() != found.keys()
    assert over_caps(works, seed=7) == {}


def test_a_chain_counts_once_and_stays_whole() -> None:
    works = [
        SessionProfile(f"{chain}{part}", f"{chain}0", "u") for chain in "abcd" for part in range(3)
    ]
    found = over_caps(works, seed=7, per_user=2)
    assert Counter(session[0] for session in found) == {session[0]: 3 for session in found}
    assert len(found) == 6


def test_caps_of_repositories_count_what_users_have_left() -> None:
    works = [*of_user("u", "a", "b", "c", repo="r"), *of_user("v", "d", repo="r")]
    found = over_caps(works, seed=7, per_user=1, per_repo=2)
    assert set(found.values()) == {"cap_user"}
    assert "d" not in found
    found = over_caps(works, seed=7, per_repo=1)
    assert list(found.values()) == ["cap_repo"] * 3


def test_no_more_sessions_than_are_asked_for() -> None:
    works = of_user(None, *(f"s{place}" for place in range(50)))
    found = over_caps(works, seed=7, sessions=20)
    assert list(found.values()) == ["cap_sessions"] * 30
    # Those of a smaller shard are in the larger one.
    smaller = over_caps(works, seed=7, sessions=10)
    assert found.keys() < smaller.keys()


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.sampled_from(["u", "v", None]), st.sampled_from("rst")), max_size=30),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_which_stay_does_not_depend_on_the_order(rows: list[Any], cap: int, random: Any) -> None:
    works = [SessionProfile(f"s{at}", f"s{at}", user, repo) for at, (user, repo) in enumerate(rows)]
    limits = {"per_user": cap, "per_repo": cap}
    found = over_caps(works, 3, **limits)
    assert over_caps(random.sample(works, len(works)), 3, **limits) == found
    kept = [one for one in works if one.session_id not in found]
    users = Counter(one.user for one in kept if one.user is not None)
    assert all(count <= cap for count in users.values())
    assert all(count <= cap for count in Counter(one.repo for one in kept).values())


# Vendors' models


def test_what_a_vendor_s_model_wrote_is_left_out_with_its_chain() -> None:
    marked = [{"session_id": "b", "model": "claude-opus-4-5", "vendor": "Anthropic"}]
    found = of_vendors(marked, {"a": "a", "b": "a", "c": "c"})
    assert reasons(found) == {"a": "not_trainable", "b": "not_trainable"}
    assert found["b"].detail == "claude-opus-4-5 of Anthropic"
