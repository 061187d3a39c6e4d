"""The image: its layout and config, as read by tools of others, and a container of it."""

import gzip
import hashlib
import io
import json
import re
import shutil
import subprocess
import tarfile

import pytest
import yaml

from conftest import CHECK_JSONSCHEMA, PATIENCE, ROOT, VERSION, as_root, output

USER = 65532


@pytest.fixture(scope="module")
def files(image):
    """The files of the archive by their path."""
    with tarfile.open(image) as opened:
        return {member.name: opened.extractfile(member).read() for member in opened if member.isfile()}


def blob(files, descriptor):
    content = files[f"blobs/{descriptor['digest'].replace(':', '/')}"]
    assert len(content) == descriptor["size"]
    assert descriptor["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
    return content


@pytest.fixture(scope="module")
def manifest(files):
    index = json.loads(files["index.json"])
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (descriptor,) = index["manifests"]
    assert descriptor["annotations"]["org.opencontainers.image.ref.name"] == VERSION
    return json.loads(blob(files, descriptor))


@pytest.fixture(scope="module")
def config(files, manifest):
    return json.loads(blob(files, manifest["config"]))


def test_config(config, manifest):
    run = config["config"]
    assert run["User"] == f"{USER}:{USER}"
    assert run["Entrypoint"] == ["/usr/bin/agentwire"] and run["Cmd"][0] == "serve"
    assert run["Volumes"] == {"/data": {}} and run["WorkingDir"] == "/data"
    assert run["ExposedPorts"] == {"7117/tcp": {}}
    assert run["Healthcheck"]["Test"][:3] == ["CMD", "/usr/bin/agentwire", "health"]
    labels = run["Labels"]
    assert labels["org.opencontainers.image.version"] == VERSION
    assert labels["org.opencontainers.image.revision"] == output("git", "rev-parse", "HEAD", cwd=ROOT).strip()
    assert manifest["annotations"] == labels


def test_layers(files, manifest, config, binary):
    members = {}
    for descriptor, identity in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
        assert descriptor["mediaType"] == "application/vnd.oci.image.layer.v1.tar+gzip"
        content = gzip.decompress(blob(files, descriptor))
        assert identity == f"sha256:{hashlib.sha256(content).hexdigest()}"
        with tarfile.open(fileobj=io.BytesIO(content)) as layer:
            for member in layer:
                members[member.name] = (member, layer.extractfile(member).read() if member.isfile() else None)
    assert members["usr/bin/agentwire"][1] == binary.read_bytes()
    data = members["data"][0]
    assert (data.uid, data.gid, data.mode) == (USER, USER, 0o700)
    owned = {name for name, (member, _) in members.items() if member.uid != 0}
    assert owned == {"data"}, "the user of the image can change nothing but its data"
    programs = {name for name, (member, _) in members.items() if member.isfile() and member.mode & 0o111}
    assert programs == {"usr/bin/agentwire"}, "there is no shell and nothing else to run"


def test_skopeo_reads_it(image, config):
    seen = json.loads(output("skopeo", "inspect", f"oci-archive:{image}"))
    assert seen["Architecture"] == config["architecture"] and seen["Os"] == "linux"
    assert seen["Labels"] == config["config"]["Labels"] and len(seen["Layers"]) == 2
    seen = json.loads(output("skopeo", "inspect", "--config", f"docker-archive:{image}"))
    assert seen["config"]["User"] == f"{USER}:{USER}", "docker load reads it too"


@pytest.fixture
def bundle(image, tmp_path):
    """The image unpacked by umoci, with the config that a container runtime takes."""
    output("skopeo", "copy", "--quiet", f"oci-archive:{image}", f"oci:{tmp_path}/image:{VERSION}")
    path = tmp_path / "bundle"
    output(*as_root("umoci", "unpack", "--image", f"{tmp_path}/image:{VERSION}", path))
    yield path
    subprocess.run(as_root("rm", "-rf", path), check=True)


# A container by hand: own mounts and network, read-only root, a volume in memory, the user of the image, no new privileges.
# Container runtimes need control groups, which test machines do not always have in a form that they accept.
CONTAINER = """
set -eu
root=$1 user=$2 check=$3 environment=$4
shift 4
mount --make-rprivate /
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t tmpfs -o "uid=$user,gid=$user,mode=0700,nosuid,nodev,noexec" tmpfs "$root/data"
ip link set lo up
inside="env -i $environment /usr/bin/setpriv --no-new-privs /usr/sbin/chroot --userspec=$user:$user $root"
$inside "$@" &
gateway=$!
tries=600
until $inside $check; do
    kill -0 $gateway
    tries=$((tries - 1))
    [ $tries -gt 0 ]
    sleep 0.2
done
echo healthy
$inside /usr/bin/agentwire run http://127.0.0.1:7117/ -m hello
echo answered
if $inside /usr/bin/agentwire man /usr/share/man; then echo "the root can be written"; fi
kill -TERM $gateway
wait $gateway
echo "ended with 0"
"""


def test_a_container_serves_with_a_read_only_root(bundle, config):
    runtime = json.loads(subprocess.run(as_root("cat", bundle / "config.json"), stdout=subprocess.PIPE, check=True).stdout)
    assert runtime["process"]["args"] == [*config["config"]["Entrypoint"], *config["config"]["Cmd"]]
    assert runtime["process"]["user"]["uid"] == USER
    check = " ".join(config["config"]["Healthcheck"]["Test"][1:])
    environment = " ".join(runtime["process"]["env"])
    said = output(*as_root("unshare", "--mount", "--net", "sh", "-c", CONTAINER, "sh", bundle / "rootfs", USER, check,
                           environment, *runtime["process"]["args"]), timeout=PATIENCE * 3)
    assert "healthy" in said and "answered" in said and "ended with 0" in said, said
    assert "the root can be written" not in said


def test_compose_is_valid():
    path = ROOT / "deploy" / "compose.yaml"
    output(CHECK_JSONSCHEMA, "--builtin-schema", "vendor.compose-spec", path)
    services = yaml.safe_load(path.read_text())["services"]
    assert set(services) == {"gateway", "database", "page"}
    gateway = services["gateway"]
    assert gateway["image"] == f"agentwire:{VERSION}" and gateway["read_only"] is True
    assert gateway["depends_on"]["database"]["condition"] == "service_healthy"
    for service in services.values():
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), "nothing is open to the network"
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert not source.startswith(".") or (path.parent / source).exists(), source
    drain = int(re.search(r'grace = "(\d+)s"', (path.parent / "compose/agentwire.toml").read_text()).group(1))
    assert int(gateway["stop_grace_period"].removesuffix("s")) >= drain + 12


def test_a_wrong_compose_file_is_found(tmp_path):
    path = tmp_path / "compose.yaml"
    shutil.copy(ROOT / "deploy" / "compose.yaml", path)
    path.write_text(path.read_text().replace("read_only:", "readonly:"))
    done = subprocess.run([CHECK_JSONSCHEMA, "--builtin-schema", "vendor.compose-spec", path], stdout=subprocess.PIPE)
    assert done.returncode != 0


def test_the_manifests_use_this_image(config):
    """Name, user, paths and port; e2e/deploy checks the rest of the manifests and the chart."""
    run = config["config"]
    base = yaml.safe_load((ROOT / "deploy/kubernetes/base/deployment.yaml").read_text())["spec"]["template"]["spec"]
    (container,) = base["containers"]
    assert container["image"] == f"agentwire:{VERSION}"
    assert f"{base['securityContext']['runAsUser']}:{base['securityContext']['runAsGroup']}" == run["User"]
    assert container["args"] == run["Cmd"] and "command" not in container
    assert run["WorkingDir"] in [it["mountPath"] for it in container["volumeMounts"]]
    assert set(run["ExposedPorts"]) <= {f"{port['containerPort']}/tcp" for port in container["ports"]}
    chart = (ROOT / "deploy/helm/agentwire/templates/deployment.yaml").read_text()
    assert f"runAsUser: {USER}" in chart and f"args: {json.dumps(run['Cmd'])}" in chart and "mountPath: /data" in chart
    assert yaml.safe_load((ROOT / "deploy/helm/agentwire/values.yaml").read_text())["image"]["repository"] == "agentwire"
