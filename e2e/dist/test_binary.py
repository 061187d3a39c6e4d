"""The static binary in a root without anything else: it serves, resolves names by DNS and speaks TLS."""

import http.server
import json
import os
import platform
import ssl
import subprocess
import sys
import threading
import urllib.request

import pytest
import trustme

from conftest import LISTENING, PATIENCE, VERSION, Process, as_root, output

NAME = "agent.wire.test"
# Loopback has many addresses; nobody else listens for DNS on this one.
DNS = "127.53.11.7"
# A little above the size at the time of writing, so that growth is noticed.
MAX_SIZE = 24_500_000


def ask(url):
    """The response to one run, as text."""
    body = {"threadId": "t", "runId": "r", "tools": [], "context": [], "state": {}, "forwardedProps": {},
            "messages": [{"id": "m", "role": "user", "content": "hello"}]}
    headers = {"content-type": "application/json", "accept": "text/event-stream"}
    request = urllib.request.Request(f"{url}/", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:
        return response.read().decode()


def serve(root, *options, env=None):
    words = [f"{name}={value}" for name, value in (env or {}).items()]
    return Process(as_root("env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", *words, "chroot", root, "/agentwire", "serve", "--listen", "127.0.0.1:0", *options))


def test_it_is_static_and_small(binary):
    assert "statically linked" in subprocess.run(["ldd", binary], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                                 text=True).stdout
    assert binary.stat().st_size < MAX_SIZE
    assert output(binary, "--version") == f"agentwire {VERSION}\n"


def test_its_relocations_are_packed(binary):
    library = tuple(int(part) for part in output("getconf", "GNU_LIBC_VERSION").split()[1].split(".")[:2])
    if platform.machine() == "x86_64" and library >= (2, 36):
        assert ".relr.dyn" in output("readelf", "--section-headers", "--wide", binary)


@pytest.mark.parametrize("store", ["memory:", "sqlite:/agentwire.db"])
def test_it_serves_in_an_empty_root(empty_root, store):
    assert os.listdir(empty_root) == ["agentwire"]
    with serve(empty_root, "--store", store) as gateway:
        url = gateway.wait_for(LISTENING).group(1)
        assert '"type":"RUN_FINISHED"' in ask(url)
        output(*as_root("env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "chroot", empty_root, "/agentwire", "health", url))
    assert gateway.process.returncode == 0, gateway.said


class Agent(http.server.BaseHTTPRequestHandler):
    """An AG-UI server that answers everything with one message."""

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        ids = {"threadId": asked["threadId"], "runId": asked["runId"]}
        events = [{"type": "RUN_STARTED", **ids}, {"type": "TEXT_MESSAGE_START", "messageId": "a", "role": "assistant"},
                  {"type": "TEXT_MESSAGE_CONTENT", "messageId": "a", "delta": "over TLS"},
                  {"type": "TEXT_MESSAGE_END", "messageId": "a"}, {"type": "RUN_FINISHED", **ids}]
        body = "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def tls_agent(tmp_path):
    """The port of an agent behind TLS, and the file with its authority."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(NAME).configure_cert(context)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Agent)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    bundle = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(bundle)
    yield server.server_address[1], bundle
    server.shutdown()


@pytest.fixture
def dns():
    with Process(as_root(sys.executable, os.path.join(os.path.dirname(__file__), "dns_server.py"), DNS, NAME, "127.0.0.1")) as server:
        server.wait_for("ready")
        yield server


def with_dns(root, **more):
    files = {"etc/resolv.conf": f"nameserver {DNS}\noptions timeout:5 attempts:3\n", **more}
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize("switch", [None, "hosts: mymachines resolve [!UNAVAIL=return] mdns4\n"])
def test_it_resolves_a_name_and_verifies_a_certificate(empty_root, dns, tls_agent, switch):
    """A machine's `nsswitch.conf` names modules that a static binary must not load."""
    port, bundle = tls_agent
    with_dns(empty_root, **({"etc/nsswitch.conf": switch} if switch else {}))
    (empty_root / "authority.pem").write_text(bundle.read_text())
    options = ["--store", "memory:", "--ag-ui", f"https://{NAME}:{port}/"]
    with serve(empty_root, *options, env={"SSL_CERT_FILE": "/authority.pem"}) as gateway:
        answer = ask(gateway.wait_for(LISTENING).group(1))
        assert "over TLS" in answer and '"type":"RUN_FINISHED"' in answer
    dns.wait_for(f"asked {NAME} 1\n")


def test_without_a_bundle_it_trusts_only_public_authorities(empty_root, dns, tls_agent):
    """The system has no authorities: those of Mozilla are built in, and the one of this test is not among them."""
    port, _ = tls_agent
    with_dns(empty_root)
    with serve(empty_root, "--store", "memory:", "--ag-ui", f"https://{NAME}:{port}/") as gateway:
        answer = ask(gateway.wait_for(LISTENING).group(1))
    assert "RUN_ERROR" in answer and "over TLS" not in answer
    assert "certificate" in answer + gateway.said


def test_a_named_bundle_that_is_missing_is_not_replaced(empty_root, dns, tls_agent):
    port, _ = tls_agent
    with_dns(empty_root)
    options = ["--store", "memory:", "--ag-ui", f"https://{NAME}:{port}/"]
    with serve(empty_root, *options, env={"SSL_CERT_FILE": "/missing.pem"}) as gateway:
        answer = ask(gateway.wait_for(LISTENING).group(1))
    assert "RUN_ERROR" in answer and "over TLS" not in answer


def test_a_name_that_nobody_has(empty_root, dns):
    with_dns(empty_root)
    with serve(empty_root, "--store", "memory:", "--ag-ui", "http://nobody.wire.test:9/") as gateway:
        answer = ask(gateway.wait_for(LISTENING).group(1))
    assert "RUN_ERROR" in answer
    dns.wait_for("asked nobody.wire.test 1\n")
