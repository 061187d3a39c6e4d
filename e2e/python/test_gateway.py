"""The gateway as an ASGI app, under real servers."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap

import agentwire
import httpx
import pytest
from servers import HERE, events_of, post, run_input, served, status, text_of, wait_for


def lines(path):
    return [line.split(" ", 1)[1] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    folder = tmp_path_factory.mktemp("app")
    notes = folder / "notes"
    with served("uvicorn", "gateway_app:app", NOTES=str(notes), STORE=f"sqlite:{folder}/a.db") as server:
        server.notes = notes
        yield server


@pytest.mark.parametrize("server", ["uvicorn", "hypercorn"])
@pytest.mark.parametrize("target", ["gateway_app:app", "gateway_app:alone"])
def test_every_server_and_the_gateway_as_the_app_itself(server, target, tmp_path):
    with served(server, target, ready="/livez", NOTES=str(tmp_path / "n")) as running:
        response, events = post(running.url, "hello")
        assert response.headers["content-type"] == "text/event-stream"
        assert text_of(events) == "You said hello"
        assert [events[0]["type"], events[-1]["type"]] == ["RUN_STARTED", "RUN_FINISHED"]
        assert httpx.get(running.url + "/thread/list").json() == [{"threadId": "t"}]
        running.process.send_signal(signal.SIGTERM)
        running.process.wait(60)
        assert running.process.returncode in (0, -signal.SIGTERM), running.log()


def test_own_routes_mounts_and_other_protocols(app):
    assert "mine" in httpx.get(app.url + "/mine").json()
    response, events = post(app.url, "hello", path="/ai/", run="m1", thread="m")
    assert text_of(events) == "You said hello"
    again = httpx.get(app.url + "/ai/runs/m1/stream?format=ai-sdk", timeout=60)
    assert "text-delta" in again.text
    chat = {"id": "c", "messages": [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "hey"}]}]}
    assert "You said hey" in httpx.post(app.url + "/ai/api/chat", json=chat, timeout=60).text
    assert httpx.get(app.url + "/ai/message_snapshot/m").json()["type"] == "MESSAGES_SNAPSHOT"
    assert httpx.get(app.url + "/state-only/state_snapshot/m").status_code == 200
    assert httpx.get(app.url + "/state-only/message_snapshot/m").status_code == 404
    assert httpx.get(app.url + "/nowhere").json()["error"]["code"] == "UNKNOWN_ROUTE"
    assert "/agents/echo" in httpx.get(app.url + "/ai/openapi.json").text


def test_the_agent_gets_context_variables_and_the_caller(app):
    _, events = post(app.url, "who", headers={"accept-language": "de"}, thread="w", run="w1")
    assert text_of(events) == "default/default-user de"


def test_failures_of_an_agent(app):
    _, events = post(app.url, "fail own", thread="f", run="f1")
    assert events[-1]["type"] == "RUN_ERROR"
    assert (events[-1]["code"], events[-1]["message"]) == ("NO_CREDIT", "the account is empty")
    _, events = post(app.url, "fail", thread="f", run="f2")
    assert events[-1]["code"] == "UPSTREAM_FAILED"
    assert "secret" not in json.dumps(events) and "secret text" in app.log()
    kinds = [event["type"] for event in events]
    assert kinds.count("RUN_ERROR") == 1 and "TEXT_MESSAGE_END" in kinds


def test_objects_that_are_no_events_are_skipped(app):
    _, events = post(app.url, "odd", thread="o", run="o1")
    assert text_of(events) == "text."
    assert events[-1]["type"] == "RUN_FINISHED"
    assert app.log().count("an object of type int from agent 'echo' is no event") == 1


def test_a_client_that_leaves_does_not_end_the_run(app, tmp_path):
    go = tmp_path / "go"
    with httpx.stream("POST", app.url + "/", json=run_input(f"wait {go}", "l", "l1"), timeout=60) as response:
        next(response.iter_lines())
    wait_for(lambda: "waiting" in httpx.get(app.url + "/message_snapshot/l").text, "the first words")
    assert status(app.url, "l1") == "running"
    go.touch()
    wait_for(lambda: status(app.url, "l1") == "finished", "the end of the run")
    again = httpx.get(app.url + "/runs/l1/stream", headers={"last-event-id": "l1:1"}, timeout=60)
    assert text_of(events_of(again.text)).endswith("done")


def test_a_stopped_run_cancels_its_agent(app):
    before = len(lines(app.notes))
    with httpx.stream("POST", app.url + "/", json=run_input("wait /nonexistent", "s", "s1"), timeout=60) as response:
        iterator = response.iter_lines()
        wait_for(lambda: "waiting" in next(iterator), "the first words")
        assert httpx.post(app.url + "/runs/s1/stop", timeout=60).status_code == 200
        rest = list(iterator)
    assert any("RUN_FINISHED" in line or "RUN_ERROR" in line for line in rest)
    assert status(app.url, "s1") == "stopped"
    wait_for(lambda: "cancelled" in lines(app.notes)[before:], "CancelledError in the agent")


def test_bad_requests(app):
    assert httpx.post(app.url + "/", content=b"{", headers={"content-type": "application/json"}).status_code == 400
    big = b'{"a":"' + b"x" * (17 << 20) + b'"}'
    try:
        response = httpx.post(app.url + "/", content=big, headers={"content-type": "application/json"}, timeout=60)
        assert response.json()["error"]["code"] == "BODY_TOO_LARGE"
    except (httpx.WriteError, httpx.RemoteProtocolError):
        pass  # The server refused before it had all of it.


def test_identity(tmp_path):
    with served("uvicorn", "gateway_app:app", NOTES=str(tmp_path / "n"), IDENTITY="1") as server:

        def told(user, path="/", **more):
            headers = {"x-user": user} if user else {}
            response, events = post(server.url, "who", path=path, headers=headers, run=f"r-{user}", **more)
            if response.status_code != 200:
                return response.status_code, response.json()["error"]["code"]
            return text_of(events).split()[0]

        assert told("ann") == "default/ann"
        assert told("body", forwardedProps={"user": "bob"}) == "acme/bob"
        assert told("") == (401, "NO_IDENTITY")
        assert told("refused") == (418, "NOT_TODAY")
        assert told("http") == (403, "FORBIDDEN")
        assert told("broken") == (500, "HOOK_FAILED")
        assert told("late") == (500, "HOOK_FAILED")
        assert told("bad") == (400, "BAD_ID")
        # Every route asks, and users do not see each other's threads.
        assert httpx.get(server.url + "/thread/list").status_code == 401
        assert httpx.get(server.url + "/thread/list", headers={"x-user": "ann"}).json() == [{"threadId": "t"}]
        assert httpx.get(server.url + "/runs/r-ann", headers={"x-user": "eve"}).status_code == 404
        assert "secret text" in server.log()


@pytest.mark.parametrize(
    ("server", "number"),
    [("uvicorn", signal.SIGTERM), ("uvicorn", signal.SIGINT), ("hypercorn", signal.SIGTERM)],
)
def test_a_signal_with_an_open_stream_ends_it_after_the_grace_time(server, number, tmp_path):
    notes = tmp_path / "notes"
    with served(server, "gateway_app:app", NOTES=str(notes), DRAIN="300ms") as running:
        with httpx.stream("POST", running.url + "/", json=run_input("wait /nonexistent"), timeout=60) as response:
            iterator = response.iter_lines()
            wait_for(lambda: "waiting" in next(iterator), "the first words")
            running.process.send_signal(number)
            rest = ""
            try:
                for line in iterator:
                    rest += line
            except httpx.RemoteProtocolError:
                # hypercorn closes connections by itself.
                assert server == "hypercorn"
        assert server == "hypercorn" or "GATEWAY_SHUTDOWN" in rest
        running.process.wait(60)
        assert "cancelled" in lines(notes)


def test_without_lifespan_the_first_request_starts_it(tmp_path):
    with served("uvicorn", "gateway_app:app", NOTES=str(tmp_path / "n"), NO_LIFESPAN="1") as server:
        assert text_of(post(server.url, "hello")[1]) == "You said hello"
        assert server.log().count("use FastAPI(lifespan=gateway.lifespan)") == 1


def test_a_reader_that_reads_nothing_does_not_hold_the_run(tmp_path):
    notes = tmp_path / "notes"
    store = f"sqlite:{tmp_path}/a.db"
    with served("uvicorn", "gateway_app:app", NOTES=str(notes), STORE=store) as server:
        body = run_input("long 20000 200")
        with httpx.stream("POST", server.url + "/", json=body, timeout=60):
            wait_for(lambda: status(server.url, "r") == "finished", "the end of the run")
            pid = server.process.pid
            resident = int(open(f"/proc/{pid}/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            assert resident < 600 << 20
        whole = httpx.get(server.url + "/runs/r/stream", timeout=120).text
        assert whole.count('"tick"') == 20000


def test_several_workers_share_one_store(tmp_path):
    notes, go = tmp_path / "notes", tmp_path / "go"
    store = f"sqlite:{tmp_path}/a.db"
    with served("uvicorn", "gateway_app:app", "--workers", "2", NOTES=str(notes), STORE=store) as server:
        # New connections reach both workers.
        wait_for(lambda: len({httpx.get(server.url + "/mine").json()["mine"] for _ in range(20)}) == 2, "two workers")
        for number in range(6):
            assert text_of(post(server.url, "hello", run=f"e{number}", thread=f"e{number}")[1]) == "You said hello"
        for number in range(6):
            for _ in range(4):
                again = httpx.get(f"{server.url}/runs/e{number}/stream", timeout=60)
                assert text_of(events_of(again.text)) == "You said hello"
        # A live run is followed and stopped at any worker.
        with httpx.stream("POST", server.url + "/", json=run_input(f"wait {go}", "live", "live"), timeout=60) as first:
            next(first.iter_lines())
        followers = [httpx.Client(timeout=60) for _ in range(4)]
        streams = [client.send(client.build_request("GET", server.url + "/runs/live/stream"), stream=True) for client in followers]
        go.touch()
        for stream in streams:
            stream.read()
            assert text_of(events_of(stream.text)) == "waiting done"
        with httpx.stream("POST", server.url + "/", json=run_input("wait /none", "stop", "stop"), timeout=60) as first:
            next(first.iter_lines())
        for _ in range(4):
            response = httpx.post(server.url + "/runs/stop/stop", timeout=60)
            assert response.status_code in (200, 409), response.text
        wait_for(lambda: status(server.url, "stop") == "stopped", "the end of the run")


def test_a_killed_server_leaves_a_log_that_its_successor_ends(tmp_path):
    notes = tmp_path / "notes"
    store = f"sqlite:{tmp_path}/a.db"
    with served("uvicorn", "gateway_app:app", NOTES=str(notes), STORE=store) as server:
        with httpx.stream("POST", server.url + "/", json=run_input("wait /none"), timeout=60) as response:
            iterator = response.iter_lines()
            wait_for(lambda: "waiting" in next(iterator), "the first words")
            os.killpg(server.process.pid, signal.SIGKILL)
            server.process.wait()
    with served("uvicorn", "gateway_app:app", NOTES=str(notes), STORE=store) as server:
        wait_for(lambda: status(server.url, "r") not in ("running", "queued"), "the end of the run")
        events = events_of(httpx.get(server.url + "/runs/r/stream", timeout=60).text)
        assert text_of(events) == "waiting" and events[-1]["code"] == "GATEWAY_LOST"


def test_without_http_and_after_the_end():
    @agentwire.agent
    async def counting(request):
        for number in range(3):
            yield {"type": "CUSTOM", "name": "n", "value": number}

    async def main():
        gateway = agentwire.Gateway({"one": counting, "two": "http://127.0.0.1:9/"}, store="memory:", default="one")
        async with gateway.lifespan():
            handle = gateway.run(run_input("x"), agent="one")
            events = [event async for event in handle]
            assert [event["value"] for event in events if event["type"] == "CUSTOM"] == [0, 1, 2]
            assert (handle.thread_id, handle.run_id) == ("t", "r")
            assert (await gateway.run(run_input("x", run="r2")).result())["type"] == "RUN_FINISHED"
            other = gateway.run(run_input("x", run="r3"), format="ai-sdk")
            assert [part async for part in other][0]["type"] == "start"
            with pytest.raises(agentwire.Failure):
                await gateway.run(run_input("x", run="r4"), agent="two").result()
            code, headers, body = await gateway.request("GET", "/agents/one/thread/list")
            assert (code, json.loads(body)) == (200, [{"threadId": "t"}])
            caller = agentwire.Caller("bob")
            assert json.loads((await gateway.request("GET", "/thread/list", caller=caller))[2]) == []
            gateway.replace_agents({"three": counting})
            assert (await gateway.run(run_input("x", run="r5"), agent="three").result())["type"] == "RUN_FINISHED"
            assert (await gateway.request("GET", "/agents/one/thread/list"))[0] == 404
        with pytest.raises(agentwire.GatewayClosed):
            await gateway.request("GET", "/thread/list")
        # A second life, as test clients do it.
        async with gateway.lifespan():
            assert (await gateway.request("GET", "/thread/list"))[0] == 200

    asyncio.run(main())
    asyncio.run(main())


def test_the_result_of_a_run_whose_reader_was_cancelled():
    async def main(format, types):
        said, may_end = asyncio.Event(), asyncio.Event()

        async def slow(request):
            yield "first"
            await may_end.wait()
            yield "second"

        gateway = agentwire.Gateway({"slow": slow}, store="memory:")
        async with gateway.lifespan():
            handle = gateway.run(run_input("x"), format=format)

            async def read():
                async for event in handle:
                    if "delta" in event:
                        said.set()

            reading = asyncio.create_task(read())
            await said.wait()
            reading.cancel()
            await asyncio.wait([reading])
            assert reading.cancelled()
            may_end.set()
            assert (await handle.result())["type"] in types
            assert (await handle.result())["type"] in types

    asyncio.run(main("ag-ui", ("RUN_FINISHED",)))
    asyncio.run(main("ai-sdk", ("finish",)))


def test_an_input_that_is_none_is_named():
    gateway = agentwire.Gateway({"two": "http://127.0.0.1:9/"}, store="memory:")
    with pytest.raises(agentwire.ConfigError, match="^expected a RunAgentInput, a mapping or JSON text, found int$") as error:
        gateway.run(5)
    assert error.value.key == "input"


def test_another_loop_is_refused():
    async def start(gateway):
        await gateway.start()

    async def use(gateway):
        with pytest.raises(RuntimeError, match="another event loop"):
            await gateway.request("GET", "/livez")

    @agentwire.agent
    async def nothing(request):
        yield ""

    gateway = agentwire.Gateway(nothing, store="memory:", signals=False)
    first = asyncio.new_event_loop()
    first.run_until_complete(start(gateway))
    asyncio.run(use(gateway))
    first.run_until_complete(gateway.drain())
    first.close()


def program(tmp_path, text, **env):
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(text))
    done = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, timeout=120, env={**os.environ, **env}, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_fork_after_start_is_closed_and_does_not_hang(tmp_path):
    out = program(
        tmp_path,
        """
        import asyncio, os, agentwire

        @agentwire.agent
        async def nothing(request):
            yield "x"

        async def main():
            gateway = agentwire.Gateway(nothing, store="sqlite:a.db")
            await gateway.start()
            child = os.fork()
            if child == 0:
                try:
                    await gateway.request("GET", "/livez")
                except agentwire.GatewayClosed:
                    os._exit(7)
                os._exit(1)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            print((await gateway.request("GET", "/livez"))[0])
            child = os.fork()
            if child == 0:
                asyncio.set_event_loop(None)
                import threading
                done = []
                async def second():
                    other = agentwire.Gateway(nothing, store="memory:")
                    async with other.lifespan():
                        done.append((await other.request("GET", "/livez"))[0])
                thread = threading.Thread(target=lambda: asyncio.run(second()))
                thread.start()
                thread.join(60)
                os._exit(0 if done == [200] else 1)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            await gateway.drain()

        asyncio.run(main())
        """,
    )
    assert out.split() == ["7", "200", "0"]


def test_the_interpreter_ends_with_a_live_run(tmp_path):
    program(
        tmp_path,
        """
        import asyncio, agentwire

        @agentwire.agent
        async def endless(request):
            yield "x"
            await asyncio.sleep(3600)

        async def main():
            gateway = agentwire.Gateway(endless, store="sqlite:a.db")
            await gateway.start()
            handle = gateway.run({"messages": [{"id": "1", "role": "user", "content": "hi"}], "runId": "r", "threadId": "t"})
            async for event in handle:
                if event["type"] == "TEXT_MESSAGE_CONTENT":
                    break

        asyncio.run(main())
        """,
    )
    async def look():
        gateway = agentwire.Gateway(store=f"sqlite:{tmp_path}/a.db", agents={"agent": "http://127.0.0.1:9/"})
        async with gateway.lifespan():
            return [event async for event in gateway_frames(gateway)]

    async def gateway_frames(gateway):
        _, _, body = await gateway.request("GET", "/runs/r/stream")
        for event in events_of(body.decode()):
            yield event

    events = asyncio.run(look())
    assert events[-1]["type"] == "RUN_ERROR" and events[-1]["code"] == "GATEWAY_SHUTDOWN"


@pytest.mark.parametrize(
    ("arguments", "key", "hint"),
    [
        ({"retenton": "1d"}, "retenton", "retention"),
        ({"limits": {"run": 5}}, "limits.run", "runs"),
        ({"retention": {"event": "1d"}}, "retention.event", "did you mean `events`"),
        ({"store": "sqlit:x"}, "store", None),
        ({"config": {"agents": {"x": {"upstream": {"kind": "exce"}}}}}, "agents.x.upstream.kind", "exec"),
        ({"default": "nobody"}, "default", "echo"),
        ({"log": "file"}, "log", "stderr"),
        ({"drain": {"grace": "soon"}}, "drain.grace", None),
    ],
)
def test_configuration_errors_come_with_the_constructor(arguments, key, hint):
    @agentwire.agent
    async def echo(request):
        yield ""

    with pytest.raises(agentwire.ConfigError) as error:
        agentwire.Gateway({"echo": echo}, **{"store": "memory:", **arguments})
    assert error.value.key == key, str(error.value)
    assert hint is None or hint in str(error.value)


def test_errors_of_agents_come_with_the_constructor(tmp_path):
    with pytest.raises(agentwire.ConfigError, match="agents.x|cannot be"):
        agentwire.Gateway({"x": 42}, store="memory:")
    with pytest.raises(agentwire.ConfigError, match="unknown format"):
        agentwire.agent(format="nonsense")(lambda request: None)

    @agentwire.agent(busy_="wait")
    async def typo(request):
        yield ""

    with pytest.raises(agentwire.ConfigError) as error:
        agentwire.Gateway({"x": typo}, store="memory:")
    assert error.value.key == "agents.x.busy_" and "busy" in str(error.value)
    path = tmp_path / "agentwire.toml"
    path.write_text('store = "memory:"\nlimts = 1\n')
    with pytest.raises(agentwire.ConfigError) as error:
        agentwire.Gateway(config=path)
    assert (error.value.line, error.value.column) == (2, 1)


def test_a_file_can_name_python_objects(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    path = tmp_path / "agentwire.toml"
    path.write_text('store = "memory:"\n[agents.a]\nupstream = { kind = "python", object = "gateway_app:echo" }\n')

    async def main():
        async with (gateway := agentwire.Gateway(config=path)).lifespan():
            events = [event async for event in gateway.run(run_input("hello"), agent="a")]
            assert text_of(events) == "You said hello"

    asyncio.run(main())
    binary = os.environ.get("AGENTWIRE")
    if binary and os.path.exists(binary):
        done = subprocess.run([binary, "serve", "--config", path], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and "pip install agentwire-gateway" in done.stderr
    path.write_text('store = "memory:"\n[agents.a]\nupstream = { kind = "python", object = "gateway_app:nobody" }\n')
    with pytest.raises(agentwire.ConfigError, match="nobody"):
        agentwire.Gateway(config=path)


def test_websockets_are_refused_and_bad_scopes_too():
    @agentwire.agent
    async def echo(request):
        yield ""

    async def main():
        gateway = agentwire.Gateway(echo, store="memory:", signals=False)
        sent = []

        async def send(message):
            sent.append(message)

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        await gateway({"type": "websocket", "path": "/"}, receive, send)
        assert sent.pop() == {"type": "websocket.close", "code": 1000}
        async with gateway.lifespan():
            base = {"type": "http", "method": "GET", "headers": [], "query_string": b""}
            for scope in (
                {"path": "/x", "root_path": "/other"},
                {"path": "/x", "raw_path": b"/\xff\xfe"},
                {"path": "/x", "headers": [(b"a b", b"x")]},
                {"path": "/x", "headers": [(b"a", b"x\r\ny: z")]},
            ):
                sent.clear()
                await gateway({**base, **scope}, receive, send)
                assert sent[0]["status"] == 400, scope

    asyncio.run(main())


def test_serve_with_a_python_object(tmp_path):
    from servers import answers, free_port

    (tmp_path / "mine.py").write_text(
        "import agentwire\n\n@agentwire.agent\nasync def echo(request):\n    yield 'served ' + request.user_text()\n"
    )
    port = free_port()
    command = [sys.executable, "-m", "agentwire", "serve", "mine:echo", "--listen", f"127.0.0.1:{port}"]
    process = subprocess.Popen([*command, "--store", "memory:"], cwd=tmp_path)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for(lambda: answers(url + "/livez"), "the server")
        assert text_of(post(url, "hello")[1]) == "served hello"
        assert text_of(post(url, "again", path="/agents/echo", run="r2")[1]) == "served again"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    for wrong in (["mine:nobody"], ["mine:echo", "--listen", "nowhere"], ["mine:echo", "--stor", "sqlit:x"]):
        done = subprocess.run([*command[:4], *wrong], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and "error" in done.stderr, wrong
