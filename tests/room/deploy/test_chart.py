"""The Helm chart makes the objects of deploy/kubernetes, and each of its values means something."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import yaml

from tests.support.deploy.chart import CHART, render, values
from tests.support.deploy.reading import KUBERNETES, PROJECT, documents, manifests, of_kind

OBJECTS, READ = render(values())


def named(objects: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(each["kind"], each["metadata"]["name"]): each for each in objects}


def by_image(manifest: dict[str, Any]) -> dict[str, Any]:
    """As the kustomization's image makes it."""
    [component] = documents(KUBERNETES / "image" / "kustomization.yaml")
    [image] = component["images"]
    text = yaml.safe_dump(manifest)
    name = f"{image['newName']}:{image['newTag']}"
    changed: dict[str, Any] = yaml.safe_load(text.replace("image: penstock\n", f"image: {name}\n"))
    return changed


def test_with_its_defaults_it_makes_the_manifests() -> None:
    made, plain = named(OBJECTS), named([by_image(each) for each in manifests()])
    del plain["Namespace", "penstock"]  # helm makes it: --create-namespace
    assert made.keys() == plain.keys()
    for key, manifest in plain.items():
        if key != ("Job", "penstock-upgrade"):
            assert made[key] == manifest, key


def test_tables_are_made_before_anything_that_needs_them() -> None:
    job = named(OBJECTS)["Job", "penstock-upgrade"]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    [container] = job["spec"]["template"]["spec"]["containers"]
    [settings] = of_kind("ConfigMap")
    assert {each["name"]: each["value"] for each in container["env"]} == settings["data"]
    [source] = container["envFrom"]
    assert source == {"secretRef": {"name": values()["secretName"]}}


def test_an_ingress_is_made_where_a_host_is_named() -> None:
    given = deepcopy(values())
    given["ingress"] |= {"host": "penstock.example.com"}
    [example] = documents(KUBERNETES / "ingress.example.yaml")
    assert named(render(given)[0])["Ingress", "penstock"] == example
    given["ingress"] |= {"className": "nginx", "tlsSecretName": "cert", "annotations": {"a": "b"}}
    ingress = named(render(given)[0])["Ingress", "penstock"]
    assert ingress["spec"]["ingressClassName"] == "nginx"
    assert ingress["spec"]["tls"] == [{"hosts": ["penstock.example.com"], "secretName": "cert"}]
    assert ingress["metadata"]["annotations"] == {"a": "b"}


def test_each_value_is_read_and_changes_what_is_made() -> None:
    given = deepcopy(values())
    given["ingress"]["host"] = "h"
    _, read = render(given)
    paths = [".Values." + ".".join(path) for path in _leaves(values())]
    unread = [path for path in paths if not any(path.startswith(name) for name in read)]
    assert unread == []
    given["image"]["tag"] = "9.9"
    given["serviceAccount"]["annotations"] = {"role": "lake"}
    made = named(render(given)[0])
    assert made["ServiceAccount", "penstock"]["metadata"]["annotations"] == {"role": "lake"}
    [container] = made["Deployment", "penstock-writer"]["spec"]["template"]["spec"]["containers"]
    assert container["image"].endswith("/penstock:9.9")


def _leaves(tree: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*path, name))
        else:
            yield (*path, name)


def test_chart_and_app_have_the_version_of_the_project() -> None:
    [about] = documents(CHART / "Chart.yaml")
    assert about["appVersion"] == about["version"] == PROJECT["project"]["version"]
