"""Where files are looked at for a tenant, and that nothing leads out."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import InvalidInput, SettingInvalid
from penstock.core.settings import Settings, load_settings
from penstock.registry.checkpoints.artifact_roots import ArtifactRoots
from penstock.registry.checkpoints.digests import FilesDigest, digest_files
from tests.support.checkpoint_factory import digest_of

SECRET = digest_of("secret")


def settings_with(tmp_path: Path, roots: str, **more: str) -> Settings:
    return load_settings(tmp_path / "data", {}, {"artifact_roots": roots} | more)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder of the tenant `acme`, beside one of another with a file in it."""
    for name in ("acme", "bolt"):
        (tmp_path / "models" / name / "deep").mkdir(parents=True)
    (tmp_path / "models" / "bolt" / "secret").write_text("secret")
    (tmp_path / "models" / "acme" / "weights").write_text("weights")
    return tmp_path / "models" / "acme"


def looked(root: Path, path: Path | str) -> FilesDigest:
    """What acme is told of a path."""
    settings = settings_with(root.parents[1], f"{root.parent}/{{tenant}}")
    roots = ArtifactRoots.of(settings).of_tenant("acme")
    return digest_files(str(path), settings, roots=roots)


def test_files_inside_are_looked_at(root: Path) -> None:
    assert looked(root, root / "weights").digest == digest_of("weights")
    assert looked(root, f"file://{root}/weights").digest == digest_of("weights")
    (root / "inside").symlink_to("deep/../weights")
    (root / "also").symlink_to(root / "weights")
    for name in ("inside", "also"):
        assert looked(root, root / name).digest == digest_of("weights")
    own = digest_files(str(root), settings_with(root.parents[1], ""))
    assert looked(root, root) == own
    assert own.bytes == 3 * len("weights")


def test_what_lies_elsewhere_is_not(root: Path) -> None:
    bolt = root.parent / "bolt" / "secret"
    ways: list[Path | str] = [
        bolt,
        root / "../bolt/secret",
        f"file://{root}/%2e%2e/bolt/secret",
        f"{root}-2/secret",
    ]
    ways += [root.parent, "/", "/proc/self/environ", "/etc/passwd", f"/{bolt}"]
    assert {looked(root, path) for path in ways} == {
        FilesDigest(why="it is outside of the artifact roots")
    }


@pytest.mark.parametrize("target", ["../bolt/secret", "deep/../../bolt/secret", "{bolt}/secret"])
def test_links_do_not_lead_out(target: str, root: Path) -> None:
    (root / "link").symlink_to(target.format(bolt=root.parent / "bolt"))
    out = looked(root, root / "link")
    (root.parent / "bolt" / "secret").unlink()
    assert out == looked(root, root / "link")
    assert (out.digest, out.bytes) == (None, None)
    inside = looked(root, root)
    assert (inside.digest, "leads out of its root" in inside.why) == (None, True)


def test_folders_that_are_links_do_not_lead_out(root: Path) -> None:
    (root / "deep" / "up").symlink_to("../../bolt")
    assert looked(root, root / "deep" / "up" / "secret").digest is None
    (root / "deep" / "up").unlink()
    (root / "deep" / "up").symlink_to("..")
    with pytest.raises(InvalidInput, match="link to a folder"):
        looked(root, root)


def test_a_tenants_folder_is_no_link(root: Path) -> None:
    (root / "models").symlink_to(root.parent / "bolt")
    settings = settings_with(root.parents[1], f"{root.parent}/{{tenant}}/models")
    roots = ArtifactRoots.of(settings).of_tenant("acme")
    assert digest_files(f"{root}/models/secret", settings, roots=roots).digest is None


def test_what_changes_while_it_is_read_stays_inside(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "deep" / "secret").write_text("mine")
    opened = os.open

    def swap(path: Any, *more: Any, **named: Any) -> int:
        if str(path).endswith("deep/secret"):
            (root / "deep").rename(root / "aside")
            (root / "deep").symlink_to("../bolt")
        return opened(path, *more, **named)

    monkeypatch.setattr(os, "open", swap)
    assert looked(root, root / "deep" / "secret").digest is None
    assert (root / "deep").is_symlink()


def test_pipes_and_devices_are_not_opened(root: Path) -> None:
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(root / "socket"))
    for name in ("pipe", "socket"):
        with pytest.raises(InvalidInput, match="not a regular file"):
            looked(root, root / name)
    with pytest.raises(InvalidInput, match="not a regular file"):
        looked(root, root)


@pytest.mark.parametrize("tenant", ["..", ".", "acme/..", "a/b", "data"])
def test_tenants_with_names_of_folders_have_none(tenant: str, root: Path) -> None:
    settings = settings_with(root.parents[1], f"{root.parents[1]}/{{tenant}}")
    roots = ArtifactRoots.of(settings).of_tenant(tenant)
    assert not roots.hold(f"{root.parents[1]}/{tenant}/penstock.db")
    assert not roots.hold(f"{root.parents[1]}/models/acme/weights")


def test_prefixes_of_buckets(tmp_path: Path) -> None:
    options = "?endpoint=http://store:9000&region=eu"
    setting = f"s3://models/of/{{tenant}}{options}, s3://{{tenant}}-own"
    roots = ArtifactRoots.of(settings_with(tmp_path, setting)).of_tenant("acme")
    assert roots.hold(f"s3://models/of/acme/7{options}")
    assert roots.hold("s3://acme-own/deep/7")
    for uri in (
        f"s3://models/of/bolt/7{options}", f"s3://models/of/acme-2/7{options}",
        f"s3://models/of/acme/%2e%2e/bolt/7{options}", f"s3://models/of/acme//7{options}",
        f"s3://models{options}", "s3://models/of/acme/7", "s3://bolt-own/7", "s3://acme-own-2/7",
        "s3://models/of/acme/7?endpoint=http://127.0.0.1:9000&region=eu",
        f"s3://models/of/acme/7{options}&endpoint=http://127.0.0.1:9000",
        f"s3://models/of/acme/7{options}&nope=1", "s3://", "https://acme-own/7", "gs://acme-own/7",
    ):  # fmt: skip
        assert not roots.hold(uri), uri


@pytest.mark.parametrize(
    "roots",
    [
        "models", "/", "/models/../etc", "file:models", "https://models", "s3://", "s3://b?nope=1",
        "{data}", "{data}/artifacts", "{data}/..", "{above}", "{data}/{{tenant}}",
    ],
)  # fmt: skip
def test_roots_that_are_none(roots: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with pytest.raises(SettingInvalid, match="artifact_roots"):
        ArtifactRoots.of(settings_with(tmp_path, roots.format(data=data, above=tmp_path)))


def test_the_lake_is_no_root(tmp_path: Path) -> None:
    for roots in ("s3://all", "s3://all/lake", "s3://all/lake/segments"):
        with pytest.raises(SettingInvalid, match="the lake"):
            ArtifactRoots.of(settings_with(tmp_path, roots, store_url="s3://all/lake"))
    ArtifactRoots.of(settings_with(tmp_path, "s3://all/models", store_url="s3://all/lake"))
