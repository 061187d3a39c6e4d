"""The dashboard and the alert rules: every query parses and uses metrics that the gateway has."""

import json
import re
import shutil
import subprocess
import time
import urllib.request

import pytest
import yaml

from conftest import PATIENCE, ROOT, Serving, ask

FOLDER = ROOT / "deploy" / "monitoring"


@pytest.fixture(scope="session")
def promtool(tmp_path_factory):
    """From Debian's package, which is unpacked and not installed, because installing it starts a server."""
    if found := shutil.which("promtool"):
        return found
    folder = tmp_path_factory.mktemp("prometheus")
    for attempt in range(5):
        got = subprocess.run(["apt-get", "download", "-qq", "prometheus"], cwd=folder, stderr=subprocess.PIPE, text=True)
        if got.returncode == 0:
            break
        time.sleep(2 + attempt * 2)
    (package,) = folder.glob("*.deb")
    subprocess.run(["dpkg", "-x", package, folder / "tree"], check=True)
    return str(folder / "tree" / "usr" / "bin" / "promtool")


@pytest.fixture(scope="session")
def series(tmp_path_factory):
    """The names of the series of a gateway. One that has had a run shows those with a label only if they have a value, so
    that the others are read from the list of the source."""
    with Serving(tmp_path_factory.mktemp("store")) as gateway:
        ask(gateway.url)
        with urllib.request.urlopen(f"{gateway.url}/metrics", timeout=PATIENCE) as response:
            text = response.read().decode()
    suffixes = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_sum", "_count"]}
    types = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M)
    shown = {name + suffix for name, kind in types for suffix in suffixes[kind]}
    source = (ROOT / "crates/agentwire-gateway/src/metrics.rs").read_text()
    fields = re.findall(r"^    pub\(crate\) (\w+): .*\b(Counter|Gauge|Histogram)\b", source, re.M)
    names = {f"agentwire_{name}{suffix}" for name, kind in fields for suffix in suffixes[kind.lower()]}
    assert shown <= names, shown - names
    # A run was measured: its time to the first event, and the size of the store.
    assert re.search(r'^agentwire_first_event_seconds_count\{agent="demo"\} 1$', text, re.M), text
    assert re.search(r"^agentwire_store_bytes [1-9]", text, re.M), text
    return names


def rules():
    document = yaml.safe_load((FOLDER / "alerts.yaml").read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def dashboard_queries():
    dashboard = json.loads((FOLDER / "grafana.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


def metrics_of(query):
    return set(re.findall(r"\bagentwire_\w+", query))


def test_rules_use_metrics_of_the_gateway(series):
    for rule in rules():
        assert metrics_of(rule["expr"]) <= series, rule["alert"]


def test_rules_use_codes_that_exist():
    known = set(re.findall(r"^\| `([A-Z_0-9]+)` \|", (ROOT / "docs" / "errors.md").read_text(), re.M))
    for rule in rules():
        for group in re.findall(r'code=~?"([^"]*)"', rule["expr"]):
            assert set(group.split("|")) <= known, rule["alert"]


def test_rules_are_valid(promtool):
    subprocess.run([promtool, "check", "rules", FOLDER / "alerts.yaml"], check=True)


def test_rules_fire(promtool):
    subprocess.run([promtool, "test", "rules", FOLDER / "alerts.test.yaml"], check=True)


def test_every_rule_has_a_runbook_and_a_test():
    headings = re.findall(r"^### (\w+)$", (ROOT / "docs" / "operations.md").read_text(), re.M)
    for rule in rules():
        assert rule["alert"] in headings
        assert rule["annotations"]["runbook_url"].endswith(f"docs/operations.md#{rule['alert'].lower()}")
    assert sorted(headings) == sorted(rule["alert"] for rule in rules())


def test_dashboard(series, promtool, tmp_path):
    queries = list(dashboard_queries())
    assert len(queries) > 15
    for title, query in queries:
        assert metrics_of(query) and metrics_of(query) <= series, title
    plain = [query.replace("$__rate_interval", "5m").replace("$instance", ".*") for _, query in queries]
    recorded = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(plain)]
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": recorded}]}))
    subprocess.run([promtool, "check", "rules", path], check=True)


def test_autoscaler_uses_a_metric_of_the_gateway(series):
    text = (ROOT / "deploy/kubernetes/overlays/production/autoscaler.yaml").read_text()
    assert metrics_of(text) <= series
