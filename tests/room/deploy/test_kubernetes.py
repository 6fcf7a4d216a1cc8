"""The manifests agree with each other and with the code."""

import re
from pathlib import Path
from typing import Any

import pytest

from penstock.doors.settings import ServerSettings
from tests.support.deploy.reading import (
    KUBERNETES,
    PATHS,
    PORT,
    PROJECT,
    Part,
    bytes_of,
    documents,
    image_environment,
    manifests,
    of_kind,
    pod_parts,
    workloads,
)

PARTS = pod_parts()
ROLES = {part.role: part for part in PARTS.values() if part.role}
WORKLOADS = {one["metadata"]["name"]: template for one, template in workloads()}
_USER = 10001


def pods(selector: dict[str, Any]) -> list[str]:
    """The workloads whose pods it selects."""
    wanted = selector.get("matchLabels", {}).items()
    named = {one["key"]: one["values"] for one in selector.get("matchExpressions", [])}
    found = {name: template["metadata"]["labels"] for name, template in WORKLOADS.items()}
    return [
        name
        for name, labels in found.items()
        if wanted <= labels.items() and all(labels.get(k) in v for k, v in named.items())
    ]


def container_of(name: str) -> dict[str, Any]:
    [container] = WORKLOADS[name]["spec"]["containers"]
    found: dict[str, Any] = container
    return found


def test_each_part_of_the_service_is_there() -> None:
    assert ROLES.keys() == {"gateway", "writer", "console"}
    assert PARTS.keys() - {part.name for part in ROLES.values()} == {
        "penstock-upgrade",
        "penstock-verify",
    }


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_settings_and_commands_are_what_penstock_takes(part: Part, tmp_path: Path) -> None:
    part.settings(tmp_path)
    options = part.parse()
    if part.role:
        assert options["host"] == "0.0.0.0"
        assert part.settings(tmp_path).room(ServerSettings).port == PORT


@pytest.mark.parametrize("part", ROLES.values(), ids=ROLES)
def test_limits_outside_are_wider_than_limits_inside(part: Part, tmp_path: Path) -> None:
    container = container_of(part.name)
    assert part.bounded_bytes(tmp_path) + bytes_of("256Mi") < part.memory_bytes
    pause = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["0"])
    stop_s = 3 * part.settings(tmp_path).shutdown_seconds_max
    assert part.grace_s > stop_s + float(pause[-1])
    disk = container["resources"]["limits"]["ephemeral-storage"]
    assert part.spilled_bytes(tmp_path) < bytes_of(disk)
    [data] = [v for v in WORKLOADS[part.name]["spec"]["volumes"] if v["name"] == "data"]
    assert data["emptyDir"]["sizeLimit"] == disk


@pytest.mark.parametrize("name", WORKLOADS)
def test_pods_run_with_no_more_rights_than_they_need(name: str) -> None:
    pod, container = WORKLOADS[name]["spec"], container_of(name)
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == _USER
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
    assert "cpu" not in container["resources"]["limits"]  # it would be slowed down, not saved


@pytest.mark.parametrize("name", WORKLOADS)
def test_what_is_written_goes_where_the_image_writes(name: str) -> None:
    mounts = {one["name"]: one["mountPath"] for one in container_of(name)["volumeMounts"]}
    volumes = {one["name"]: one for one in WORKLOADS[name]["spec"]["volumes"]}
    assert volumes.keys() == mounts.keys()
    if name != "penstock-upgrade":  # it opens no lake
        [settings] = of_kind("ConfigMap")
        keys = {Path(file) for key, file in settings["data"].items() if key.endswith("_KEY_FILE")}
        assert {file.name for file in keys} == {"secret.key", "signing.key"}
        assert {file.parent for file in keys} == {Path(mounts.pop("keys"))}
        assert volumes.pop("keys")["secret"]["secretName"] == "penstock-keys"
    assert mounts == {"data": image_environment()["PENSTOCK_DATA"], "tmp": "/tmp"}
    assert all("emptyDir" in one for one in volumes.values())


@pytest.mark.parametrize("name", WORKLOADS)
def test_settings_and_secrets_come_from_objects_that_exist(name: str) -> None:
    named = {key: ref["name"] for one in container_of(name)["envFrom"] for key, ref in one.items()}
    [settings] = of_kind("ConfigMap")
    [secret] = documents(KUBERNETES / "secret.example.yaml")
    assert named == {
        "configMapRef": settings["metadata"]["name"],
        "secretRef": secret["metadata"]["name"],
    }


def test_no_secret_is_applied_and_the_example_is_none() -> None:
    assert of_kind("Secret") == []
    [secret] = documents(KUBERNETES / "secret.example.yaml")
    for value in secret["stringData"].values():
        assert "CHANGE-ME" in value
    [settings] = of_kind("ConfigMap")
    assert not any("@" in value for value in settings["data"].values())


@pytest.mark.parametrize("part", ROLES.values(), ids=ROLES)
def test_probes_ask_what_exists_where_it_listens(part: Part) -> None:
    container = container_of(part.name)
    assert {one["name"]: one["containerPort"] for one in container["ports"]} == {"http": PORT}
    asked = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness")}
    assert {one["path"] for one in asked.values()} == {"/healthz"} <= PATHS
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    annotations = WORKLOADS[part.name]["metadata"]["annotations"]
    assert annotations["prometheus.io/path"] in PATHS
    assert annotations["prometheus.io/port"] == str(PORT)


def test_selectors_find_the_pods_they_are_for() -> None:
    for one in of_kind("Deployment", "PodDisruptionBudget"):
        name = one["metadata"]["name"]
        assert pods(one["spec"]["selector"]) == [name]
    for one in of_kind("Service"):
        assert pods({"matchLabels": one["spec"]["selector"]}) == [one["metadata"]["name"]]
        assert [(p["port"], p["targetPort"]) for p in one["spec"]["ports"]] == [(PORT, "http")]
    for name, template in WORKLOADS.items():
        for spread in template["spec"].get("topologySpreadConstraints", []):
            assert pods(spread["labelSelector"]) == [name]
    served = {
        one["metadata"]["name"]: pods(one["spec"]["podSelector"])
        for one in of_kind("NetworkPolicy")
    }
    assert set(served["penstock-served"]) == {"penstock-gateway", "penstock-console"}
    assert set(served["penstock-closed"]) == set(served["penstock-metrics"]) == set(WORKLOADS)


def test_the_autoscaler_has_the_number_of_gateways_to_itself() -> None:
    [scaler] = of_kind("HorizontalPodAutoscaler")
    assert scaler["spec"]["scaleTargetRef"]["name"] == "penstock-gateway"
    fixed = {one["metadata"]["name"]: one["spec"].get("replicas") for one in of_kind("Deployment")}
    assert fixed == {"penstock-gateway": None, "penstock-writer": 2, "penstock-console": 1}


def test_the_ingress_sends_events_to_gateways_and_the_rest_to_the_console() -> None:
    [ingress] = documents(KUBERNETES / "ingress.example.yaml")
    [rule] = ingress["spec"]["rules"]
    found = {one["path"]: one["backend"]["service"]["name"] for one in rule["http"]["paths"]}
    assert found == {"/v1/events": "penstock-gateway", "/": "penstock-console"}
    assert "/v1/events" in PATHS
    assert set(found.values()) == {one["metadata"]["name"] for one in of_kind("Service")}


def test_one_place_says_which_image_and_which_version() -> None:
    assert {container_of(name)["image"] for name in WORKLOADS} == {"penstock"}
    [component] = documents(KUBERNETES / "image" / "kustomization.yaml")
    [image] = component["images"]
    assert image["name"] == "penstock"
    assert image["newTag"] == PROJECT["project"]["version"]
    for folder, way in ((KUBERNETES, "image"), (KUBERNETES / "upgrade", "../image")):
        [kustomization] = documents(folder / "kustomization.yaml")
        assert kustomization["components"] == [way]


def test_everything_is_in_one_namespace() -> None:
    [namespace] = of_kind("Namespace")
    for one in manifests():
        if one is not namespace and one["kind"] != "Namespace":
            assert one["metadata"]["namespace"] == namespace["metadata"]["name"]


def test_every_file_is_applied_or_is_an_example() -> None:
    [kustomization] = documents(KUBERNETES / "kustomization.yaml")
    files = {path.name for path in KUBERNETES.glob("*.yaml")} - {"kustomization.yaml"}
    examples = {name for name in files if re.search(r"\.example\.yaml$", name)}
    assert files - examples == set(kustomization["resources"])
