"""Traces of a gateway, received and decoded by OpenTelemetry's own messages."""

import contextlib
import http.server
import json
import os
import pathlib
import re
import select
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

sys.dont_write_bytecode = True
ROOT = pathlib.Path(os.environ.get("AGENTWIRE_ROOT", pathlib.Path(__file__).resolve().parents[2]))
AGENTWIRE = os.environ.get("AGENTWIRE", str(ROOT / "target" / "debug" / "agentwire"))
PATIENCE = 120
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Collector:
    """Receives spans. `failures` is the number of requests that it refuses first; `rejected` that of the spans which it
    refuses of each later one."""

    def __init__(self, failures=0, rejected=0):
        self.spans, self.requests, self.resources = [], [], []
        self.changed = threading.Condition()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                with collector.changed:
                    collector.requests.append((self.path, dict(self.headers), body))
                    refused = len(collector.requests) <= failures
                    if not refused:
                        collector.take(body)
                    collector.changed.notify_all()
                partial = ExportTracePartialSuccess(rejected_spans=rejected, error_message="too old" if rejected else "")
                answer = ExportTraceServiceResponse(partial_success=partial).SerializeToString()
                self.send_response(503 if refused else 200)
                self.send_header("content-length", str(len(answer)))
                self.send_header("retry-after", "0")
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, body):
        request = ExportTraceServiceRequest.FromString(body)
        # Every byte was understood: the same message gives the same bytes, and nothing is unknown.
        assert ExportTraceServiceRequest.FromString(request.SerializeToString()) == request
        for resource in request.resource_spans:
            self.resources.append(attributes(resource.resource))
            for scope in resource.scope_spans:
                assert scope.scope.name == "agentwire"
                self.spans += scope.spans

    def wait(self, enough):
        """Waits until the spans satisfy a condition, and returns them."""
        with self.changed:
            assert self.changed.wait_for(lambda: enough(self.spans), PATIENCE), [span.name for span in self.spans]
            return list(self.spans)

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def attributes(owner):
    def value(any_value):
        kind = any_value.WhichOneof("value")
        if kind == "array_value":
            return [value(each) for each in any_value.array_value.values]
        return getattr(any_value, kind)

    return {entry.key: value(entry.value) for entry in owner.attributes}


def named(spans, name):
    return [span for span in spans if span.name == name]


@contextlib.contextmanager
def gateway(tmp_path, config):
    path = tmp_path / "agentwire.toml"
    path.write_text(f'listen = "127.0.0.1:0"\nstore = "sqlite:{tmp_path}/agentwire.db"\n{config}')
    process = subprocess.Popen([AGENTWIRE, "serve", "--config", path], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                               env={**os.environ, "OTLP_TOKEN": "canary-token", "NO_COLOR": "1"})
    said, deadline = "", time.monotonic() + PATIENCE
    try:
        while not (found := re.search(r"listening\s+(http://\S+)", said)):
            ready, _, _ = select.select([process.stderr], [], [], max(0, deadline - time.monotonic()))
            piece = os.read(process.stderr.fileno(), 65536).decode() if ready else ""
            assert piece, said
            said += piece
        log = []
        reader = threading.Thread(target=lambda: log.append(process.stderr.read().decode()), daemon=True)
        reader.start()
        yield found.group(1)
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def run(url, text, headers=(), run_id="r1", thread="t1", **more):
    """Starts a run; its events and the headers of the response."""
    messages = [{"id": f"m-{run_id}", "role": "user", "content": text}] if text else []
    body = {"threadId": thread, "runId": run_id, "messages": messages, "tools": [], "context": [], "state": {}}
    body.update({"forwardedProps": {}, **more})
    request = urllib.request.Request(f"{url}/", json.dumps(body).encode(), {"content-type": "application/json", **dict(headers)})
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:
        lines = response.read().decode().splitlines()
        return [json.loads(line[5:]) for line in lines if line.startswith("data:")], response.headers


@pytest.fixture
def collector():
    collector = Collector()
    yield collector
    collector.close()


DEMO = '[agents.shop]\nupstream = { kind = "demo" }\n'


def traces(collector, **more):
    lines = [f"{key} = {value}" for key, value in more.items()]
    return "\n".join(["[traces]", f'endpoint = "{collector.url}"', *lines, ""]) + DEMO


def test_a_run_continues_the_trace_of_the_client(collector, tmp_path):
    config = traces(collector, service='"shop-gateway"', headers='{ authorization = { env = "OTLP_TOKEN" } }')
    with gateway(tmp_path, config) as url:
        events, headers = run(url, "tools please", {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "rojo=1"})
        spans = collector.wait(lambda spans: named(spans, "invoke_agent shop"))
    assert {span.trace_state for span in spans} == {"rojo=1"}
    (request,), (agent,) = named(spans, "POST /"), named(spans, "invoke_agent shop")
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    assert request.parent_span_id.hex() == PARENT and request.kind == Span.SPAN_KIND_SERVER
    assert attributes(request)["http.response.status_code"] == 200
    assert agent.parent_span_id == request.span_id and agent.kind == Span.SPAN_KIND_CLIENT
    assert agent.start_time_unix_nano < agent.end_time_unix_nano
    found = attributes(agent)
    assert found["gen_ai.operation.name"] == "invoke_agent"
    assert found["gen_ai.agent.name"] == "shop"
    assert found["gen_ai.conversation.id"] == "t1"
    assert found["agentwire.run.id"] == "r1"
    assert found["gen_ai.response.finish_reasons"] == ["stop"]
    assert found["agentwire.run.events"] == len(events)
    assert 0 <= found["gen_ai.response.time_to_first_chunk"] < PATIENCE
    usage = [entry for entry in events[-1].get("usage", [])]
    if usage:
        assert found["gen_ai.usage.output_tokens"] == sum(entry["outputTokens"] for entry in usage)
    # Every call of a tool is a child of the run.
    calls = {event["toolCallId"]: event["toolCallName"] for event in events if event["type"] == "TOOL_CALL_START"}
    tools = [span for span in spans if span.name.startswith("execute_tool ")]
    assert calls and {attributes(span)["gen_ai.tool.call.id"]: attributes(span)["gen_ai.tool.name"] for span in tools} == calls
    assert all(span.parent_span_id == agent.span_id for span in tools)
    # The client knows the place of the run.
    assert events[0]["metadata"] == {"traceId": TRACE, "spanId": agent.span_id.hex()}
    assert headers["traceresponse"] == f"00-{TRACE}-{request.span_id.hex()}-01"
    assert collector.resources[0]["service.name"] == "shop-gateway"
    path, sent, _ = collector.requests[0]
    assert path == "/v1/traces" and sent["content-type"] == "application/x-protobuf"
    assert sent["authorization"] == "canary-token"


def test_spans_have_no_texts_unless_configured(collector, tmp_path):
    with gateway(tmp_path, traces(collector)) as url:
        run(url, "canary-message tools")
        spans = collector.wait(lambda spans: named(spans, "invoke_agent shop"))
    received = b"".join(body for _, _, body in collector.requests)
    assert b"canary-message" not in received
    assert not [span for span in spans if "gen_ai.tool.call.arguments" in attributes(span)]


def test_spans_have_texts_if_configured(collector, tmp_path):
    with gateway(tmp_path, traces(collector, content="true")) as url:
        run(url, "canary-message tools")
        spans = collector.wait(lambda spans: named(spans, "invoke_agent shop"))
    (agent,) = named(spans, "invoke_agent shop")
    (asked,) = json.loads(attributes(agent)["gen_ai.input.messages"])
    assert asked["parts"] == [{"type": "text", "content": "canary-message tools"}]
    assert json.loads(attributes(agent)["gen_ai.output.messages"])[0]["role"] == "assistant"
    assert [span for span in spans if "gen_ai.tool.call.result" in attributes(span)]


def test_an_answer_is_linked_to_the_question(collector, tmp_path):
    with gateway(tmp_path, traces(collector)) as url:
        events, _ = run(url, "approve")
        (interrupt,) = events[-1]["outcome"]["interrupts"]
        resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}]
        answered, _ = run(url, None, run_id="r2", resume=resume)
        assert answered[-1]["type"] == "RUN_FINISHED"
        spans = collector.wait(lambda spans: len(named(spans, "invoke_agent shop")) == 2)
    by_run = {attributes(span)["agentwire.run.id"]: span for span in named(spans, "invoke_agent shop")}
    first, second = by_run["r1"], by_run["r2"]
    assert attributes(first)["gen_ai.response.finish_reasons"] == ["interrupt"]
    place = lambda span: (span.trace_id, span.span_id)
    assert [place(link) for link in second.links] == [place(first)]
    (wait,) = [span for span in spans if span.name.startswith("human_wait ")]
    assert wait.parent_span_id == second.span_id and wait.trace_id == second.trace_id
    assert [place(link) for link in wait.links] == [place(first)]
    assert wait.start_time_unix_nano <= wait.end_time_unix_nano <= second.end_time_unix_nano


def test_the_agent_gets_the_run_as_its_parent(collector, tmp_path):
    heard = []

    class Agent(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            heard.append((self.headers.get_all("traceparent"), self.headers.get_all("tracestate")))
            self.rfile.read(int(self.headers["content-length"]))
            events = [{"type": "RUN_STARTED", "threadId": "t1", "runId": "r1"}, {"type": "RUN_FINISHED", "threadId": "t1", "runId": "r1"}]
            body = "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Agent)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        upstream = f'upstream = {{ kind = "ag-ui", url = "http://127.0.0.1:{server.server_address[1]}/" }}'
        config = traces(collector).replace('upstream = { kind = "demo" }', upstream)
        with gateway(tmp_path, config) as url:
            run(url, "hello", {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "rojo=1, congo=t61"})
            spans = collector.wait(lambda spans: named(spans, "invoke_agent shop"))
            # Without a trace of the client there is nothing to continue.
            run(url, "hello", {"tracestate": "rojo=1"}, run_id="r2")
            run(url, "hello", {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "no list"}, run_id="r3")
        (agent,) = named(spans, "invoke_agent shop")
        assert heard[0] == ([f"00-{TRACE}-{agent.span_id.hex()}-01"], ["rojo=1,congo=t61"])
        assert [state for _, state in heard[1:]] == [None, None]
    finally:
        server.shutdown()
        server.server_close()


def test_a_failed_run_is_an_error(collector, tmp_path):
    upstream = 'upstream = { kind = "ag-ui", url = "http://127.0.0.1:9/" }'
    config = traces(collector).replace('upstream = { kind = "demo" }', upstream)
    with gateway(tmp_path, config) as url:
        events, _ = run(url, "hello")
        spans = collector.wait(lambda spans: named(spans, "invoke_agent shop"))
    (agent,) = named(spans, "invoke_agent shop")
    assert agent.status.code == Status.STATUS_CODE_ERROR
    assert attributes(agent)["error.type"] == events[-1]["code"]
    assert attributes(agent)["gen_ai.response.finish_reasons"] == ["error"]


def test_sampling(collector, tmp_path):
    with gateway(tmp_path, traces(collector, sample="0")) as url:
        events, headers = run(url, "hello")
        # Not exported, and still one place for everybody.
        assert headers["traceresponse"].split("-")[1] == events[0]["metadata"]["traceId"]
        assert headers["traceresponse"].endswith("-00")
        run(url, "hello", {"traceparent": f"00-{TRACE}-{PARENT}-00"}, run_id="r2")
        run(url, "hello", {"traceparent": f"00-{TRACE}-{PARENT}-01"}, run_id="r3")
        collector.wait(lambda spans: named(spans, "invoke_agent shop"))
    # The gateway has ended, and has exported everything before.
    runs = [attributes(span)["agentwire.run.id"] for span in named(collector.spans, "invoke_agent shop")]
    assert runs == ["r3"]


def test_a_collector_that_comes_back(tmp_path):
    collector = Collector(failures=2)
    try:
        with gateway(tmp_path, traces(collector)) as url:
            run(url, "hello")
            collector.wait(lambda spans: named(spans, "invoke_agent shop"))
        first, *_ = [body for _, _, body in collector.requests]
        assert [body for _, _, body in collector.requests][:3] == [first] * 3
    finally:
        collector.close()


def test_spans_that_the_collector_refuses_are_counted(tmp_path):
    collector = Collector(rejected=1)
    try:
        with gateway(tmp_path, traces(collector)) as url:
            run(url, "hello")
            collector.wait(lambda spans: named(spans, "invoke_agent shop"))
            deadline, count = time.monotonic() + PATIENCE, "0"
            while count == "0" and time.monotonic() < deadline:
                with urllib.request.urlopen(f"{url}/metrics") as response:
                    metrics = response.read().decode()
                count = re.search(r"^agentwire_trace_spans_dropped_total (\d+)$", metrics, re.M).group(1)
            assert 1 <= int(count) <= len(collector.requests)
    finally:
        collector.close()


def test_a_gateway_without_a_collector_serves(tmp_path):
    collector = Collector()
    collector.close()
    with gateway(tmp_path, traces(collector)) as url:
        events, _ = run(url, "hello")
        assert events[-1]["type"] == "RUN_FINISHED"


def test_off_by_default(tmp_path):
    with gateway(tmp_path, DEMO) as url:
        events, headers = run(url, "hello")
    assert "metadata" not in events[0] and "traceresponse" not in headers
