"""A text of others becomes a path only below the folder that was meant."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.files import (
    NAME_BYTES_MAX,
    PART_BYTES_MAX,
    NameUnsafe,
    is_relative_name,
    relative_name,
    sha256_digest,
    sha256_digits,
    tenant_folder,
)

#: Pieces of paths, together with any text.
PIECES = st.sampled_from(
    ["..", ".", "", "/", "//", "\\", "\0", "\n", "\x1b[2J", "\u2028", "a", "…", "~", "C:", "%2e%2e"]
)
TEXTS = st.lists(PIECES | st.text(max_size=4), max_size=8).map("".join) | st.lists(
    PIECES, max_size=6
).map("/".join)


@given(TEXTS)
def test_a_name_stays_below_its_folder_and_is_one_line(text: str) -> None:
    try:
        name = relative_name(text)
    except NameUnsafe:
        assert not is_relative_name(text)
        return
    assert name == text
    assert os.path.normpath(f"/folder/{name}") == f"/folder/{name}"
    assert len(name.splitlines()) == 1
    assert "\0" not in name
    assert "\\" not in name


@given(st.lists(st.text("abcXYZ0189._- é", min_size=1, max_size=20), min_size=1, max_size=6))
def test_ordinary_names_are_taken(parts: list[str]) -> None:
    assert is_relative_name("/".join(parts)) == (not {".", ".."} & set(parts))


@pytest.mark.parametrize(
    "name",
    [
        "", ".", "..", "/", "/x", "../x", "../../victim/x", "a/../../x", "a//b", "./x", "a/",
        "a/..",
        "a\0b", "a\\b", "a\nb", "\x7f", "\x85", "\u2028", "\ud800", "a" * (PART_BYTES_MAX + 1),
        "é" * 128, "/".join(["abc"] * (NAME_BYTES_MAX // 4 + 1)),
    ],
)  # fmt: skip
def test_names_that_lead_elsewhere_are_refused(name: str) -> None:
    with pytest.raises(NameUnsafe, match="cannot be used"):
        relative_name(name)


@pytest.mark.parametrize("name", ["x", "a/b/c", "..x", "a..", "...", "a b", "\udcff", "a" * 255])
def test_other_names_are_taken(name: str, tmp_path: Path) -> None:
    path = tmp_path / relative_name(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")


@settings(max_examples=40)
@given(st.text(max_size=70) | st.from_regex(r"(sha256:)?[0-9a-fA-F]{63,65}\n?"))
def test_only_digests_are_digests(text: str) -> None:
    for check, pattern in ((sha256_digest, "sha256:[0-9a-f]{64}"), (sha256_digits, "[0-9a-f]{64}")):
        try:
            assert check(text) == text
            taken = True
        except NameUnsafe:
            taken = False
        assert taken == (re.fullmatch(pattern, text) is not None)


def test_folders_of_tenants_differ_and_are_safe_names() -> None:
    tenants = ["acme", "Acme", "ACME", "a.b", "a b", "a_b", "..", "/", "é", "e\u0301", "x" * 40]
    tenants += ["x" * 41, "x" * 128, "acme.0123456789ab", "\ud800"]
    folders = [tenant_folder(tenant) for tenant in tenants]
    assert folders[0] == "t-acme"
    assert len({folder.casefold() for folder in folders}) == len(tenants)
    for folder in folders:
        assert relative_name(folder) == folder
        assert "/" not in folder
        assert len(folder) < 80
