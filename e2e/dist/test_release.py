"""The archive, the Debian package, the list of crates and the checksums."""

import configparser
import gzip
import hashlib
import json
import pathlib
import re
import subprocess
import tarfile
import tomllib

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from conftest import CHECK_JSONSCHEMA, DIST, ROOT, VERSION, as_root, output


def only(pattern):
    (path,) = DIST.glob(pattern)
    return path


@pytest.fixture(scope="module")
def archive(dist):
    return only(f"agentwire-{VERSION}-*.tar.gz")


@pytest.fixture(scope="module")
def package(dist):
    return only(f"agentwire_{VERSION}_*.deb")


@pytest.fixture(scope="module")
def bom(dist):
    return json.loads(only(f"agentwire-{VERSION}-*.cdx.json").read_text())


def test_the_checksums_fit(dist):
    listed = (dist / "SHA256SUMS").read_text()
    output("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=dist)
    names = {line.split("  ")[1] for line in listed.splitlines()}
    assert len(names) == 3 and {name.rpartition(".")[2] for name in names} == {"gz", "deb", "json"}
    changed = re.sub("^.", lambda found: "0" if found.group() != "0" else "1", listed)
    with pytest.raises(AssertionError, match="FAILED"):
        output("sha256sum", "--check", "--strict", "-", cwd=dist, input=changed)


def test_the_archive(archive, binary):
    with tarfile.open(archive) as opened:
        members = {member.name: member for member in opened}
        top = archive.name.removesuffix(".tar.gz")
        assert {name.split("/")[0] for name in members} == {top}
        command = members[f"{top}/agentwire"]
        assert command.mode == 0o755 and opened.extractfile(command).read() == binary.read_bytes()
        for name in ["README.md", "LICENSE-APACHE", "LICENSE-MIT", "CHANGELOG.md", "agentwire.cdx.json",
                     "man/agentwire.1", "man/agentwire-serve.1", "completions/agentwire", "completions/_agentwire",
                     "completions/agentwire.fish", "systemd/agentwire.service", "systemd/agentwire.toml"]:
            assert members[f"{top}/{name}"].size > 0, name
        assert {(member.uid, member.gid, member.mtime) for member in members.values()} == {(0, 0, command.mtime)}
    words = output(binary, "help").split("Options:")[0]
    commands = re.findall(r"^  ([a-z]+) ", words, re.M)
    pages = {f"{top}/man/agentwire-{name}.1" for name in commands if name != "help"}
    assert len(commands) > 10 and pages <= set(members)


def test_the_same_bytes_again(dist, image):
    names = ["SHA256SUMS", "agentwire", image.name]
    first = {name: hashlib.sha256((dist / name).read_bytes()).hexdigest() for name in names}
    output(ROOT / "scripts/dist")
    output(ROOT / "scripts/image")
    assert {name: hashlib.sha256((dist / name).read_bytes()).hexdigest() for name in names} == first


def test_no_path_of_this_machine_is_in_the_data(archive):
    """Panic messages name the sources of crates; everything else must not name a folder of the build."""
    with tarfile.open(archive) as opened:
        for member in opened:
            if member.isfile() and not member.name.endswith("/agentwire"):
                assert str(ROOT).encode() not in opened.extractfile(member).read(), member.name


def test_the_list_of_crates_is_valid(bom):
    errors = JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bom))
    assert errors is None, errors
    broken = {**bom, "components": [{"name": "no type"}]}
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(broken)) is not None


def test_the_list_has_every_crate_of_the_binary(bom, binary):
    """Compared with the sources that the binary names itself, in the messages of its panics, and with the lock file."""
    listed = {(it["name"], it["version"]): it for it in bom["components"]}
    named = re.findall(rb"/registry/src/[^/]+/([A-Za-z0-9_-]+?)-(\d+\.\d+\.\d+[^/]*)/", binary.read_bytes())
    named = {(name.decode(), version.decode()) for name, version in named}
    assert len(named) > 40
    assert named <= set(listed), named - set(listed)
    locked = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    checksums = {(it["name"], it["version"]): it.get("checksum") for it in locked}
    for key, component in listed.items():
        if component["purl"].startswith("pkg:cargo/"):
            found = [it["content"] for it in component.get("hashes", [])]
            assert found == ([checksums[key]] if checksums[key] else []), key
            assert component["licenses"], key
    names = {name for name, _ in listed}
    assert {"agentwire-core", "agentwire-gateway", "agentwire-store", "rustls", "ring", "libsqlite3-sys", "sqlite"} <= names
    # They run during the build only.
    assert not names & {"serde_derive", "syn", "quote", "cc", "proptest", "insta", "pyo3"}
    references = {it["bom-ref"] for it in bom["components"]} | {bom["metadata"]["component"]["bom-ref"]}
    edges = {it["ref"]: it["dependsOn"] for it in bom["dependencies"]}
    assert set(edges) == references and {to for its in edges.values() for to in its} <= references


def test_the_list_has_the_packages_of_the_console(bom):
    """Compared with the lock file: everything that is not for development only."""
    locked = json.loads((ROOT / "web/package-lock.json").read_text())["packages"]
    expected = {(place.rpartition("node_modules/")[2], it["version"], it["license"])
                for place, it in locked.items() if place and not it.get("dev")}
    found = [it for it in bom["components"] if it["purl"].startswith("pkg:npm/")]
    assert {(it["name"], it["version"], it["licenses"][0]["expression"]) for it in found} == expected
    assert {name for name, _, _ in expected} >= {"echarts", "zrender", "marked", "preact"}
    assert all(len(it["hashes"][0]["content"]) == 128 for it in found)
    edges = {it["ref"]: it["dependsOn"] for it in bom["dependencies"]}
    (gateway,) = [ref for ref in edges if ref.startswith("pkg:cargo/agentwire-gateway@")]
    direct = {ref.removeprefix("pkg:npm/").partition("@")[0] for ref in edges[gateway] if ref.startswith("pkg:npm/")}
    assert direct == set(locked[""]["dependencies"])


def fields(package):
    return dict(re.findall(r"^ ?([A-Z][A-Za-z-]+): (.*)$", output("dpkg-deb", "--info", package), re.M))


def test_the_package_installs_and_leaves(package, tmp_path, binary):
    assert fields(package)["Version"] == VERSION
    root = tmp_path / "root"
    for name in ["var/lib/dpkg/updates", "var/lib/dpkg/info"]:
        (root / name).mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()
    dpkg = as_root("dpkg", f"--root={root}", "--force-script-chrootless", f"--log={tmp_path}/dpkg.log")
    output(*dpkg, "--install", package)
    installed = root / "usr/bin/agentwire"
    assert installed.read_bytes() == binary.read_bytes()
    assert output(installed, "--version") == f"agentwire {VERSION}\n"
    output(installed, "config", "check", root / "etc/agentwire/agentwire.toml")
    sums = (root / "var/lib/dpkg/info/agentwire.md5sums").read_text()
    output("md5sum", "--check", "--strict", "--quiet", "-", cwd=root, input=sums)
    for page in (root / "usr/share/man/man1").iterdir():
        assert gzip.decompress(page.read_bytes()).startswith((b".", b"'")), page
    state = root / "var/lib/private/agentwire"
    subprocess.run(as_root("mkdir", "-p", state), check=True)
    output(*dpkg, "--remove", "agentwire")
    assert not installed.exists() and (root / "etc/agentwire/agentwire.toml").exists() and state.exists()
    output(*dpkg, "--purge", "agentwire")
    assert not (root / "etc/agentwire/agentwire.toml").exists() and not state.exists()


def test_lintian_finds_no_error_and_no_warning(package):
    output("lintian", "--allow-root", "--fail-on", "error,warning", package)


@pytest.fixture
def unit(package, tmp_path):
    """The unit as the package has it, with the command in the place that its line names."""
    output("dpkg-deb", "--extract", package, tmp_path)
    return tmp_path / "lib/systemd/system/agentwire.service"


def verified(root, name):
    """What systemd says about a unit in a root, as if the package were installed. The units of the system are not there."""
    found = subprocess.run(["systemd-analyze", "verify", "--man=no", f"--root={root}", name], stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True).stdout
    return [line for line in found.splitlines() if line and not line.endswith("Unit sysinit.target not found.")]


def test_the_unit_is_valid(unit, tmp_path):
    assert verified(tmp_path, "agentwire.service") == []
    unit.with_name("broken.service").write_text(unit.read_text().replace("ProtectSystem=strict", "ProtectSystem=stricd"))
    (problem,) = verified(tmp_path, "broken.service")
    assert "stricd" in problem


def test_the_unit_is_hardened(unit):
    """The scale of systemd: 0 is safe, 100 is open. 20 of 100 leaves the network, which a gateway needs."""
    output("systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", unit)
    text = configparser.ConfigParser(strict=False, interpolation=None)
    text.optionxform = str
    text.read_string(unit.read_text())
    service = text["Service"]
    assert service["DynamicUser"] == "yes" and service["ProtectSystem"] == "strict"
    assert service["StateDirectory"] == "agentwire"
    config = (ROOT / "deploy/systemd/agentwire.toml").read_text()
    grace = int(re.search(r'grace = "(\d+)s"', config).group(1))
    # The gateway writes for up to 12 seconds more after the grace time.
    assert int(service["TimeoutStopSec"]) >= grace + 12
    assert "sqlite:/var/lib/agentwire/" in config


def test_metadata_for_cargo_install(archive):
    """`cargo binstall` finds the archive of a release by the names that Cargo.toml gives."""
    manifest = tomllib.loads((ROOT / "crates/agentwire/Cargo.toml").read_text())
    binstall = manifest["package"]["metadata"]["binstall"]
    target = archive.name.removeprefix(f"agentwire-{VERSION}-").removesuffix(".tar.gz")
    values = {"name": "agentwire", "version": VERSION, "target": target, "archive-format": "tar.gz", "bin": "agentwire",
              "binary-ext": "", "repo": "https://example.com"}

    def filled(text):
        return re.sub(r"\{ ([a-z-]+) \}", lambda found: values[found.group(1)], text)

    assert filled(binstall["pkg-url"]).rpartition("/")[2] == archive.name
    with tarfile.open(archive) as opened:
        assert filled(binstall["bin-dir"]) in opened.getnames()
    assert binstall["pkg-fmt"] == "tgz"
    listed = output("cargo", "package", "--package", "agentwire", "--list", "--allow-dirty", cwd=ROOT)
    assert "src/main.rs" in listed.split() and "README.md" in listed.split()


def test_the_workflows_are_valid():
    workflows = sorted((ROOT / ".github/workflows").glob("*.yml"))
    assert [path.name for path in workflows] == ["ci.yml", "release.yml"]
    output(CHECK_JSONSCHEMA, "--builtin-schema", "vendor.github-workflows", *workflows)
    text = (ROOT / ".github/workflows/release.yml").read_text()
    for target in ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "x86_64-apple-darwin", "aarch64-apple-darwin"]:
        assert target in text, target


def test_this_machines_scripts_are_those_of_the_workflow():
    text = (ROOT / ".github/workflows/release.yml").read_text()
    for script in ["scripts/dist", "scripts/image", "scripts/wheel"]:
        assert script in text and pathlib.Path(ROOT / script).exists()
