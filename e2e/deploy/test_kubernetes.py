"""The manifests and the chart, against the schemas of Kubernetes."""

import copy
import pathlib
import re
import subprocess
import sys

import jsonpatch
import kubernetes_validate
import pytest
import yaml

from conftest import AGENTWIRE, ROOT, VERSION

KUBERNETES = "1.32"
FOLDER = ROOT / "deploy" / "kubernetes"
CHART = ROOT / "deploy" / "helm" / "agentwire"
HELM = pathlib.Path(sys.executable).with_name("helm")


def documents(text):
    return [document for document in yaml.safe_load_all(text) if document]


def validate(resource):
    """Checks a resource against the schema of its kind; unknown members are errors. Custom resources have none."""
    if resource["apiVersion"] == "monitoring.coreos.com/v1":
        return
    kubernetes_validate.validate(resource, KUBERNETES, strict=True)


def build(folder):
    """The resources of a kustomization, for the features that these files use; others are refused."""
    settings = yaml.safe_load((folder / "kustomization.yaml").read_text())
    known = {"apiVersion", "kind", "namespace", "resources", "configMapGenerator", "labels", "replicas", "images", "patches"}
    assert set(settings) <= known, "build() does not know these keys"
    found = []
    for name in settings["resources"]:
        path = folder / name
        found += build(path) if path.is_dir() else documents(path.read_text())
    for generator in settings.get("configMapGenerator", []):
        data = {name: (folder / name).read_text() for name in generator["files"]}
        found.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generator["name"]}, "data": data})
    for patch in settings.get("patches", []):
        target = patch["target"]
        matches = [it for it in found if it["kind"] == target["kind"] and it["metadata"]["name"] == target["name"]]
        assert len(matches) == 1, target
        at = found.index(matches[0])
        found[at] = jsonpatch.apply_patch(matches[0], yaml.safe_load(patch["patch"]))
    for count in settings.get("replicas", []):
        (deployment,) = [it for it in found if it["kind"] == "Deployment" and it["metadata"]["name"] == count["name"]]
        deployment["spec"]["replicas"] = count["count"]
    for image in settings.get("images", []):
        containers = [container for it in found if it["kind"] == "Deployment"
                      for container in it["spec"]["template"]["spec"]["containers"]]
        changed = [it for it in containers if it["image"].rpartition(":")[0] == image["name"]]
        assert changed, image
        for container in changed:
            container["image"] = f"{image.get('newName', image['name'])}:{image['newTag']}"
    for resource in found:
        resource["metadata"]["namespace"] = settings["namespace"]
    return found


def one(resources, kind):
    (found,) = [resource for resource in resources if resource["kind"] == kind]
    return found


def seconds_of_drain(config):
    return int(re.search(r'grace = "(\d+)s"', config).group(1))


def check_deployment(resources, folder):
    """The parts that keep runs whole when a pod ends, and the pod harmless."""
    deployment, config = one(resources, "Deployment"), one(resources, "ConfigMap")["data"]["agentwire.toml"]
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] == "admin"
    assert f'admin_listen = "0.0.0.0:{ports["admin"]}"' in config
    assert f'listen = "0.0.0.0:{ports["http"]}"' in config
    wait = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    # The gateway writes for up to 12 seconds more after the grace time.
    assert pod["terminationGracePeriodSeconds"] >= wait + seconds_of_drain(config) + 12
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] == 65532
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    selector = deployment["spec"]["selector"]["matchLabels"]
    assert selector.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    assert one(resources, "Service")["spec"]["selector"] == selector
    path = folder / "agentwire.toml"
    path.write_text(config)
    checked = subprocess.run([AGENTWIRE, "config", "check", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True, env={"DATABASE_URL": "postgres://gateway@db/agentwire", "AGENTWIRE_PEPPER": "x"})
    assert checked.returncode == 0, checked.stdout
    return deployment, selector


def test_base(tmp_path):
    resources = build(FOLDER / "base")
    for resource in resources:
        validate(resource)
    deployment, _ = check_deployment(resources, tmp_path)
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == f"agentwire:{VERSION}"


def test_overlay(tmp_path):
    resources = build(FOLDER / "overlays" / "production")
    for resource in resources:
        validate(resource)
    deployment, selector = check_deployment(resources, tmp_path)
    assert deployment["spec"]["replicas"] == 3
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == f"registry.example.com/agentwire:{VERSION}"
    budget = one(resources, "PodDisruptionBudget")
    assert budget["spec"]["selector"]["matchLabels"] == selector
    scaler = one(resources, "HorizontalPodAutoscaler")
    assert scaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert scaler["spec"]["minReplicas"] == 3
    assert {resource["metadata"]["namespace"] for resource in resources} == {"agentwire"}


def template(*words):
    done = subprocess.run([HELM, "template", "shop", CHART, "--kube-version", "1.32.0", *words], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    return documents(done.stdout)


def test_chart_is_well_formed():
    linted = subprocess.run([HELM, "lint", "--strict", CHART], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert linted.returncode == 0, linted.stdout
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == VERSION


def test_chart_by_default(tmp_path):
    resources = template()
    for resource in resources:
        validate(resource)
    deployment, selector = check_deployment(resources, tmp_path)
    assert deployment["spec"]["replicas"] == 3
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == f"agentwire:{VERSION}"
    assert one(resources, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == selector
    assert not [it for it in resources if it["kind"] in ("HorizontalPodAutoscaler", "Ingress", "PodMonitor")]


def test_chart_with_everything(tmp_path):
    on = ["autoscaling.enabled=true", "ingress.enabled=true", "podMonitor.enabled=true", "drainSeconds=120",
          "ingress.className=nginx", "image.tag=1.2.3"]
    resources = template(*(word for value in on for word in ("--set", value)))
    for resource in resources:
        validate(resource)
    deployment, selector = check_deployment(resources, tmp_path)
    assert "replicas" not in deployment["spec"]
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "agentwire:1.2.3"
    scaler = one(resources, "HorizontalPodAutoscaler")["spec"]
    assert scaler["metrics"][0]["pods"]["metric"]["name"] == "agentwire_runs_live"
    assert one(resources, "PodMonitor")["spec"]["selector"]["matchLabels"] == selector
    assert one(resources, "Ingress")["spec"]["rules"][0]["host"] == "agents.example.com"


def test_a_wrong_manifest_is_found():
    """The validator does its work."""
    deployment = copy.deepcopy(one(build(FOLDER / "base"), "Deployment"))
    deployment["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]["httpGett"] = {}
    with pytest.raises(Exception, match="httpGett"):
        validate(deployment)
