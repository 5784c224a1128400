"""The manifests of containers: valid by the published schemas, and in agreement with the settings and the image."""

import json
import re
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema_rs
import kubernetes_validate
import pytest
import requests
import yaml

import app
from app.directory.settings import FileSourceSettings
from app.settings import Settings, load_settings
from tests.attack.proxy import nginx
from tests.e2e.conftest import wait_for
from tests.foundation.outbound.servers import Authority
from tests.ports import HOST, free_port

ROOT = Path(app.__file__).parent.parent
CONFIG = ROOT / "config"
COMPOSE = yaml.safe_load((CONFIG / "compose.yaml").read_text())
KUBERNETES_VERSIONS = ("1.31", "1.37")
"""The oldest and the newest version whose schemas the manifests follow."""
HOME = "/var/lib/usher"


def manifests() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted((CONFIG / "kubernetes").iterdir()):
        for manifest in yaml.safe_load_all(path.read_text()):
            yield f"{path.name}:{manifest['kind']}", manifest


MANIFESTS = dict(manifests())
PODS = {
    name: manifest["spec"]["template"]["spec"]
    for name, manifest in MANIFESTS.items()
    if manifest["kind"] in {"Deployment", "Job"}
}


def named(kind: str, name: str = "usher") -> dict[str, Any]:
    (found,) = [m for m in MANIFESTS.values() if m["kind"] == kind and m["metadata"]["name"] == name]
    return found


def settings_of(text: str, secrets: dict[str, str], tmp_path: Path) -> Settings:
    """The settings of a manifest. ``secrets``: the folder of its secrets, and the one that replaces it."""
    for folder, replacement in secrets.items():
        text = text.replace(folder, replacement)
    file = tmp_path / "usher.yaml"
    file.write_text(text)
    return load_settings(file, environment={}).settings


def write_secrets(tmp_path: Path, names: set[str]) -> str:
    folder = tmp_path / "secrets"
    folder.mkdir()
    for name in names:
        secret = "postgresql://usher:secret@postgres/usher" if name == "database_url" else f"the-{name}-of-a-manifest"
        (folder / name).write_text(secret)
    return str(folder)


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests_are_valid(name: str, version: str) -> None:
    assert kubernetes_validate.validate(MANIFESTS[name], version, strict=True) == version


def test_the_schemas_refuse_wrong_manifests() -> None:
    wrong = json.loads(json.dumps(named("Deployment", "usher-service")))
    wrong["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES_VERSIONS[0], strict=True)


@pytest.mark.parametrize("name", PODS)
def test_pods_are_confined(name: str) -> None:
    pod = PODS[name]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert f"--uid {pod['securityContext']['runAsUser']}" in (ROOT / "Dockerfile").read_text()
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"]
    assert pod["automountServiceAccountToken"] is False
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["requests"].keys() >= {"cpu", "memory"}
    assert "memory" in container["resources"]["limits"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: volumes.pop(mount["name"]) for mount in container["volumeMounts"]}
    assert volumes == {}
    # What processes write is private to the pod.
    assert "emptyDir" in mounts[HOME]
    assert "emptyDir" in mounts["/tmp"]
    assert mounts["/etc/usher"]["configMap"]["name"] == named("ConfigMap")["metadata"]["name"]


def test_manifests_select_each_other() -> None:
    for name in ("usher-service", "usher-worker"):
        deployment = named("Deployment", name)
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert deployment["spec"]["selector"]["matchLabels"] == labels
        assert named("PodDisruptionBudget", name)["spec"]["selector"]["matchLabels"] == labels
        (spread,) = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
        assert spread["labelSelector"]["matchLabels"] == labels
        assert named("NetworkPolicy")["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    assert (
        named("Service")["spec"]["selector"] == named("Deployment", "usher-service")["spec"]["selector"]["matchLabels"]
    )
    (rule,) = named("Ingress")["spec"]["rules"]
    assert rule["http"]["paths"][0]["backend"]["service"]["name"] == named("Service")["metadata"]["name"]


def test_settings_of_kubernetes(tmp_path: Path) -> None:
    text = named("ConfigMap")["data"]["usher.yaml"]
    folder = write_secrets(tmp_path, set(re.findall(r"/run/secrets/usher/(\w+)", text)))
    settings = settings_of(text, {"/run/secrets/usher": folder}, tmp_path)
    service, worker = (PODS[f"{name}.yaml:Deployment"] for name in ("service", "worker"))
    assert str(settings.index.path).startswith(f"{HOME}/")
    assert service["containers"][0]["ports"] == [{"name": "http", "containerPort": settings.server.port}]
    assert worker["containers"][0]["ports"] == [{"name": "metrics", "containerPort": settings.metrics.worker_port}]
    pause = int(service["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
    assert service["terminationGracePeriodSeconds"] > pause + settings.server.graceful_timeout
    assert worker["terminationGracePeriodSeconds"] > settings.worker.stop_timeout
    ports = [rule["ports"] for rule in named("NetworkPolicy")["spec"]["ingress"]]
    assert ports == [[{"port": settings.server.port}], [{"port": settings.metrics.worker_port}]]


def test_images_are_of_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert {pod["containers"][0]["image"] for pod in PODS.values()} == {f"usher:{version}"}
    assert named("Job", f"usher-migrate-{version}")


def test_compose_is_valid() -> None:
    schema = files("check_jsonschema").joinpath("builtin_schemas", "vendor", "compose-spec.json").read_text()
    validator = jsonschema_rs.validator_for(json.loads(schema))
    validator.validate(COMPOSE)
    assert not validator.is_valid({**COMPOSE, "services": {"usher": {"image": "usher", "read_onyl": True}}})


def test_compose_refers_to_what_exists() -> None:
    secrets, volumes, configs = (COMPOSE[key].keys() for key in ("secrets", "volumes", "configs"))
    used = set()
    for service in COMPOSE["services"].values():
        names = {one if isinstance(one, str) else one["source"] for one in service.get("secrets", [])}
        assert names <= secrets
        used |= names
        assert {one["source"] for one in service.get("configs", [])} <= configs
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert (CONFIG / source).exists() if source.startswith("./") else source in volumes
        assert service.get("depends_on", {}).keys() <= COMPOSE["services"].keys()
        assert {*service.get("networks", [])} <= {*COMPOSE["networks"], "default"}
        if service["image"] == "usher":
            assert service["read_only"] is True
            assert service["cap_drop"] == ["ALL"]
    assert used == secrets
    # nginx.conf expects the service and the certificate there.
    text = (CONFIG / "nginx.conf").read_text()
    proxy, service = COMPOSE["services"]["nginx"], COMPOSE["services"]["service"]
    assert proxy["network_mode"] == "service:service"
    assert f"server {service['environment']['USHER_SERVER__HOST']}:8080;" in text
    certificate, key = (one["target"] for one in proxy["secrets"])
    assert re.search(rf"ssl_certificate +{certificate};", text)
    assert re.search(rf"ssl_certificate_key +{key};", text)


def test_settings_of_compose(tmp_path: Path) -> None:
    text = COMPOSE["configs"]["settings"]["content"]
    used = set(re.findall(r"/run/secrets/(\w+)", text))
    for name in ("service", "worker", "migrate"):
        assert set(COMPOSE["services"][name]["secrets"]) == used
    settings = settings_of(text, {"/run/secrets": write_secrets(tmp_path, used)}, tmp_path)
    assert settings.server.port == 8080
    assert settings.server.trusted_proxies == 1
    assert str(settings.index.path).startswith(f"{HOME}/")
    assert int(COMPOSE["services"]["service"]["stop_grace_period"][:-1]) > settings.server.graceful_timeout
    assert int(COMPOSE["services"]["worker"]["stop_grace_period"][:-1]) > settings.worker.stop_timeout
    (source,) = settings.directory.sources
    assert isinstance(source, FileSourceSettings)
    mounts = dict(volume.split(":")[:2] for volume in COMPOSE["services"]["worker"]["volumes"])
    folder = str(Path(source.path).parent)
    assert (CONFIG / {target: path for path, target in mounts.items()}[folder] / Path(source.path).name).exists()


@pytest.mark.external
@pytest.mark.process
def test_nginx_accepts_its_configuration(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate = str(authority.server_file(HOST))
    changes = {one["target"]: certificate for one in COMPOSE["services"]["nginx"]["secrets"]}
    port = free_port()
    changes |= {"127.0.0.1:8080": f"{HOST}:{port + 1}", "listen 443 ssl;": f"listen {HOST}:{port} ssl;"}
    url = f"https://{HOST}:{port}/healthz"
    with nginx(tmp_path / "nginx", changes):
        # Nothing listens at the address of the service.
        assert wait_for("nginx", lambda: requests.get(url, verify=str(authority.ca_file), timeout=5).status_code) == 502
