// The client against a server in the same process: framing, bookkeeping, callbacks, errors, reconnect.

import assert from "node:assert/strict";
import fs from "node:fs";
import http from "node:http";
import { createRequire } from "node:module";
import { test } from "node:test";

import { EventType, HaiError, HttpAgent, mergeOutputs, parseContents, parseJsonString, parseSse, verifyEvents } from "../dist/index.mjs";

const fixtures = new URL("../../../../crates/agentwire-core/src/format/hai/fixtures/", import.meta.url);
const fixture = (name) => fs.readFileSync(new URL(name, fixtures));

/** Serves `respond(request, body, response)`; ends with the test. */
async function server(t, respond) {
  const requests = [];
  const listener = http.createServer((request, response) => {
    let body = "";
    request.on("data", (bytes) => (body += bytes));
    request.on("end", () => {
      requests.push({ method: request.method, url: request.url, headers: request.headers, body: body && JSON.parse(body) });
      respond(request, body && JSON.parse(body), response);
    });
  });
  await new Promise((ready) => listener.listen(0, "127.0.0.1", ready));
  t.after(() => {
    listener.closeAllConnections();
    listener.close();
  });
  return { url: `http://127.0.0.1:${listener.address().port}/awp`, requests };
}

const sse = (events, withIds = false) =>
  events.map((event, index) => `${withIds ? `id: r:${index + 1}\n` : ""}data: ${JSON.stringify(event)}\n\n`).join("");

function stream(response, text, type = "text/event-stream") {
  response.writeHead(200, { "content-type": type });
  response.end(text);
}

const CHAT = [
  { type: "RUN_STARTED", threadId: "t", runId: "r", messageId: "m", role: "assistant" },
  { type: "BUSINESS_DATA_START", messageId: "m", role: "assistant" },
  { type: "BUSINESS_DATA_CONTENT", messageId: "m", delta: '{"output":{"type":"text","content":"你"}}' },
  { type: "BUSINESS_DATA_CONTENT", messageId: "m", delta: { output: { type: "text", content: "a}{b" } } },
  { type: "BUSINESS_DATA_END", messageId: "m" },
  { type: "RUN_FINISHED", threadId: "t", runId: "r", result: 7 },
];

test("a chat is joined, and each callback sees the message as it was before its event", async (t) => {
  const { url, requests } = await server(t, (_, __, response) => stream(response, sse(CHAT)));
  const agent = new HttpAgent({ url, initialMessages: [{ id: "u", role: "user", content: "hi" }] });
  const buffers = [];
  const outcome = await agent.runAgent({ runId: "r" }, {
    onBusinessDataStartEvent: ({ messages }) => void buffers.push(["start", messages.length]),
    onBusinessDataContentEvent: ({ textMessageBuffer, messages }) => void buffers.push([textMessageBuffer, messages.at(-1).content]),
    onBusinessDataEndEvent: ({ textMessageBuffer, messages }) => void buffers.push([textMessageBuffer, messages.at(-1).content]),
  });
  const first = '{"output":{"type":"text","content":"你"}}';
  const all = `${first}{"output":{"type":"text","content":"a}\\u007bb"}}`;
  assert.deepEqual(buffers, [["start", 1], ["", ""], [first, first], [all, all]]);
  assert.deepEqual(parseJsonString(all).map(({ output }) => output.content), ["你", "a}{b"]);
  assert.equal(outcome.result, 7);
  assert.deepEqual(outcome.newMessages.map(({ id }) => id), ["m"]);
  const { threadId, runId, messages, state, tools, context, forwardedProps } = requests[0].body;
  assert.deepEqual({ runId, messages, state, tools, context, forwardedProps }, { runId: "r", messages: [{ id: "u", role: "user", content: "hi" }], state: {}, tools: [], context: [], forwardedProps: {} });
  assert.match(threadId, /^[0-9a-f-]{36}$/);
  assert.equal(agent.threadId, "t");
});

test("a page that draws the last output with each event draws every output once", async (t) => {
  // As the reference page does: it needs buffers without the delta of their own event, and all of it at the end.
  const text = fixture("reference_task.sse").toString();
  const events = text.split("\n\n").filter(Boolean).map((frame) => JSON.parse(frame.slice(6)));
  const lastStart = events.map(({ type }) => type).lastIndexOf("BUSINESS_DATA_START");
  const outputs = events.slice(lastStart).filter(({ type }) => type === "BUSINESS_DATA_CONTENT").map(({ delta }) => JSON.parse(delta).output);
  const expected = outputs.slice(outputs.findLastIndex(({ type }) => type !== "text") + 1).map(({ content }) => content).join("");
  assert.ok(expected.length > 50);
  const { url } = await server(t, (_, __, response) => stream(response, text));
  const blocks = [];
  const draw = ({ textMessageBuffer }) => {
    if (!textMessageBuffer) return;
    const { output } = parseJsonString(textMessageBuffer).at(-1);
    const last = blocks.at(-1);
    if (output.type === "text" && last?.type === "text") last.content += output.content;
    else blocks.push({ ...output });
  };
  t.mock.method(console, "warn", () => {});
  await new HttpAgent({ url }).runAgent({}, { onBusinessDataContentEvent: draw, onBusinessDataEndEvent: draw });
  assert.equal(blocks.at(-1).content, expected);
});

test("an exception of a subscriber is reported and does not end the run", async (t) => {
  const { url } = await server(t, (_, __, response) => stream(response, sse(CHAT)));
  const reported = [];
  const failing = t.mock.method(console, "error", () => {});
  const agent = new HttpAgent({ url });
  agent.subscribe({ onBusinessDataContentEvent: ({ textMessageBuffer }) => void parseJsonString(textMessageBuffer), onSubscriberError: ({ callback }) => reported.push(callback) });
  const { newMessages } = await agent.runAgent();
  assert.equal(parseContents(newMessages[0].content).length, 2);
  assert.deepEqual(reported, ["onBusinessDataContentEvent"]);
  assert.equal(failing.mock.callCount(), 1);
});

test("calls, results, steps, hand-overs, state and snapshots", async (t) => {
  const events = [
    CHAT[0],
    { type: "STEP_STARTED", stepName: "plan" },
    { type: "AGENT_COLLABORATIVE_MESSAGE_START", from: "USER", to: "planner", messageId: "h" },
    { type: "AGENT_COLLABORATIVE_MESSAGE_CONTENT", messageId: "h", delta: { task: { id: "1", name: "plan" } } },
    { type: "AGENT_COLLABORATIVE_MESSAGE_END", messageId: "h" },
    { type: "TOOL_CALL_START", toolCallId: "c", toolCallName: "confirmAction" },
    { type: "TOOL_CALL_ARGS", toolCallId: "c", delta: '{"action":' },
    { type: "TOOL_CALL_ARGS", toolCallId: "c", delta: '"pay"}' },
    { type: "TOOL_CALL_END", toolCallId: "c" },
    { type: "TOOL_CALL_RESULT", messageId: "tr", toolCallId: "c", content: "true" },
    { type: "STATE_SNAPSHOT", snapshot: { items: [{}] } },
    { type: "STATE_DELTA", delta: { op: "add", path: "/items/0/status", value: "done", from: "" } },
    { type: "STATE_DELTA", delta: [{ op: "replace", path: "/nowhere/1", value: 1 }] },
    { type: "SOMETHING_NEW", x: 1 },
    { type: "CUSTOM", name: "hai.run_status", value: { status: "paused" } },
    { type: "STEP_FINISHED", stepName: "plan" },
    CHAT.at(-1),
  ];
  const { url } = await server(t, (_, __, response) => stream(response, sse(events)));
  t.mock.method(console, "warn", () => {});
  const agent = new HttpAgent({ url });
  const seen = [];
  await agent.runAgent({}, {
    onEvent: ({ event }) => void (event.type === "SOMETHING_NEW" && seen.push("unknown")),
    onAgentCollaborativeMessageEndEvent: ({ textMessageBuffer }) => void seen.push(JSON.parse(textMessageBuffer).task.name),
    onToolCallArgsEvent: ({ toolCallBuffer, toolCallName }) => void seen.push([toolCallName, toolCallBuffer]),
    onToolCallEndEvent: ({ toolCallArgs }) => void seen.push(toolCallArgs),
    onNewToolCall: ({ toolCall }) => void seen.push(toolCall.function.arguments),
    onStateConflict: () => void seen.push("conflict"),
    onPaused: () => void seen.push("paused"),
  });
  assert.deepEqual(seen, ["plan", ["confirmAction", ""], ["confirmAction", '{"action":'], { action: "pay" }, '{"action":"pay"}', "conflict", "unknown", "paused"]);
  assert.deepEqual(agent.state, { items: [{ status: "done" }] });
  assert.deepEqual(agent.messages.map(({ id, role, toolCallId }) => [id, role, toolCallId]), [["c", "assistant", undefined], ["tr", "tool", "c"]]);
});

test("callbacks change messages and state, and stop the default handling", async (t) => {
  const { url } = await server(t, (_, __, response) => stream(response, sse([CHAT[0], { type: "STATE_SNAPSHOT", snapshot: { a: 1 } }, CHAT.at(-1)])));
  const agent = new HttpAgent({ url });
  let changes = 0;
  await agent.runAgent({}, { onStateSnapshotEvent: () => ({ state: { b: 2 }, stopPropagation: true }), onStateChanged: () => void (changes += 1) });
  assert.deepEqual(agent.state, { b: 2 });
  assert.equal(changes, 1);
});

test("an id that exists is continued with an empty buffer", async (t) => {
  const again = [CHAT[0], CHAT[1], CHAT[2], CHAT[4], CHAT[1], CHAT[2], CHAT[4], CHAT[5]];
  const { url } = await server(t, (_, __, response) => stream(response, sse(again)));
  const buffers = [];
  const agent = new HttpAgent({ url });
  await agent.runAgent({}, { onBusinessDataContentEvent: ({ textMessageBuffer }) => void buffers.push(textMessageBuffer) });
  assert.deepEqual(buffers, ["", ""]);
  assert.equal(agent.messages.length, 1);
  assert.equal(parseContents(agent.messages[0].content).length, 2);
});

test("errors are typed: status, content type, frame, protocol, RUN_ERROR, network", async (t) => {
  const cases = {
    "/409": (response) => response.writeHead(409, { "content-type": "application/json" }).end('{"code":"THREAD_IS_LOCKED","message":"busy"}'),
    "/html": (response) => stream(response, "<html>", "text/html"),
    "/frame": (response) => stream(response, "data: {oops\n\n"),
    "/order": (response) => stream(response, sse([CHAT[2]])),
    "/error": (response) => stream(response, sse([CHAT[0], { type: "RUN_ERROR", message: "no", code: "X" }])),
  };
  const { url } = await server(t, (request, _, response) => cases[request.url](response));
  const fail = async (path, more = {}) => {
    const failed = [];
    const agent = new HttpAgent({ url: url.replace("/awp", path), ...more });
    const error = await agent.runAgent({}, { onRunFailed: ({ error }) => void failed.push(error) }).then(() => assert.fail(), (error) => error);
    assert.ok(error instanceof HaiError && failed[0] === error);
    assert.equal(agent.isRunning, false);
    return error;
  };
  const locked = await fail("/409");
  assert.deepEqual([locked.code, locked.status, locked.payload.code, locked.message], ["HTTP_STATUS", 409, "THREAD_IS_LOCKED", "HTTP 409: busy"]);
  assert.equal((await fail("/html")).code, "BAD_CONTENT_TYPE");
  assert.match((await fail("/frame")).message, /frame 1 is not JSON: \{oops/);
  assert.equal((await fail("/order")).code, "PROTOCOL");
  assert.equal((await fail("/error")).code, "X");
  const closed = http.createServer();
  await new Promise((ready) => closed.listen(0, "127.0.0.1", ready));
  const { port } = closed.address();
  await new Promise((done) => closed.close(done));
  const refused = new HttpAgent({ url: `http://127.0.0.1:${port}/awp` });
  assert.equal(await refused.runAgent().then(() => "", (error) => error.code), "NETWORK");
});

test("abortRun resolves the promise and calls onRunFinalized, not onRunFailed", async (t) => {
  const { url } = await server(t, (_, __, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(sse(CHAT.slice(0, 3)));
  });
  const agent = new HttpAgent({ url });
  const calls = [];
  const { newMessages } = await agent.runAgent({}, {
    onBusinessDataContentEvent: () => void setTimeout(() => agent.abortRun()),
    onRunFailed: () => void calls.push("failed"),
    onRunFinalized: () => void calls.push("finalized"),
  });
  assert.deepEqual(calls, ["finalized"]);
  assert.equal(newMessages.length, 1);
});

test("a stream cut at any byte is resumed: by position, by the same request, and by a snapshot", async (t) => {
  const { messages: expected } = await (async () => {
    const { url } = await server(t, (_, __, response) => stream(response, sse(CHAT)));
    const agent = new HttpAgent({ url });
    await agent.runAgent();
    return agent;
  })();
  const reconnect = { minDelayMs: 1, maxDelayMs: 2 };
  const answers = {
    position: (request, response, text) => {
      const last = Number(request.headers["last-event-id"]?.split(":")[1] ?? 0);
      stream(response, sse(CHAT, true).split(/(?<=\n\n)/).slice(last).join(""));
    },
    same: (_, response, text) => stream(response, text),
    snapshot: (_, response) =>
      stream(response, sse([CHAT[0], { type: "MESSAGE_SNAPSHOT", messages: [] }, ...CHAT.slice(1)])),
  };
  for (const [name, answer] of Object.entries(answers)) {
    const text = Buffer.from(sse(CHAT, name === "position"));
    for (let cut = 0; cut < text.length; cut += 3) {
      const asked = [];
      const { url } = await server(t, (request, _, response) => {
        asked.push(request.method);
        if (asked.length > 1) return answer(request, response, text);
        response.writeHead(200, { "content-type": "text/event-stream", "transfer-encoding": "chunked" });
        response.write(text.subarray(0, cut), () => response.destroy());
      });
      const agent = new HttpAgent({ url, reconnect });
      const seen = [];
      await agent.runAgent({ runId: "r" }, { onEvent: ({ event }) => void seen.push(event.type) });
      assert.deepEqual(agent.messages, expected, `${name}, cut at ${cut}`);
      if (name !== "snapshot") assert.deepEqual(seen, CHAT.map(({ type }) => type), `${name}, cut at ${cut}`);
    }
  }
});

test("without reconnect a cut stream is TRUNCATED, and a silent one is TIMEOUT", async (t) => {
  const { url } = await server(t, (_, __, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(sse(CHAT.slice(0, 2)));
    if (!response.req.headers["x-hold"]) response.end();
  });
  const code = (config) => new HttpAgent({ url, reconnect: false, ...config }).runAgent().then(() => "", (error) => error.code);
  assert.equal(await code({}), "TRUNCATED");
  assert.equal(await code({ headers: { "x-hold": "1" }, timeouts: { idleMs: 50 } }), "TIMEOUT");
});

test("SSE byte by byte: a line feed behind CRLF is a blank line of its own", async () => {
  async function* bytes() {
    for (const byte of new TextEncoder().encode("data: 1\r\n\ndata: 2\r\n\r\n\ndata: 3\r\r")) yield Uint8Array.of(byte);
  }
  const seen = [];
  for await (const { data } of parseSse(bytes())) seen.push(data);
  assert.deepEqual(seen, ["1", "2", "3"]);
});

test("SSE in any split: CRLF, CR, several data lines, comments, a byte order mark, split characters", async () => {
  const text = '\ufeff: ping\r\ndata: {"a":\r\ndata: "ü"}\r\n\r\nid: 7\rdata: 2\r\revent: X\nretry: 9\ndata: 3\n\ndata: lost';
  const bytes = new TextEncoder().encode(text);
  for (let cut = 0; cut <= bytes.length; cut += 1) {
    const frames = [];
    async function* parts() {
      yield bytes.subarray(0, cut);
      yield bytes.subarray(cut);
    }
    for await (const frame of parseSse(parts())) frames.push(frame);
    assert.deepEqual(frames.map(({ data, id, event, retry }) => [data, id, event, retry]), [['{"a":\n"ü"}', undefined, undefined, undefined], ["2", "7", undefined, undefined], ["3", "7", "X", 9]], `cut at ${cut}`);
  }
});

test("the argument of a callback keeps its values, and its copies change nothing", async (t) => {
  const { url } = await server(t, (_, __, response) => stream(response, sse([CHAT[0], { type: "STATE_SNAPSHOT", snapshot: { a: 1 } }, ...CHAT.slice(1)])));
  const initialMessages = [{ id: "u", role: "user", contents: [{ content: "hi" }] }];
  const agent = new HttpAgent({ url, initialMessages });
  initialMessages[0].contents.push("later");
  const seen = [];
  await agent.runAgent({}, { onEvent: (params) => void seen.push(params) });
  assert.deepEqual(seen.map(({ messages, state, event }) => [event.type, messages.length, messages.at(-1).content?.length, state.a]), [
    ["RUN_STARTED", 1, undefined, undefined], ["STATE_SNAPSHOT", 1, undefined, undefined], ["BUSINESS_DATA_START", 1, undefined, 1],
    ["BUSINESS_DATA_CONTENT", 2, 0, 1], ["BUSINESS_DATA_CONTENT", 2, 40, 1], ["BUSINESS_DATA_END", 2, 88, 1], ["RUN_FINISHED", 2, 88, 1],
  ]);
  seen.at(-1).messages.length = 0;
  seen.at(-1).state.a = 2;
  assert.deepEqual([agent.messages.length, agent.state.a, agent.messages[0].contents], [2, 1, [{ content: "hi" }]]);
});

test("a subscriber that unsubscribes in a run is called no more; one that subscribes is", async (t) => {
  const { url } = await server(t, (_, __, response) => stream(response, sse(CHAT)));
  const agent = new HttpAgent({ url });
  const seen = [];
  const subscription = agent.subscribe({
    onRunStartedEvent: () => void agent.subscribe({ onRunFinishedEvent: () => void seen.push("second") }),
    onBusinessDataStartEvent: () => subscription.unsubscribe(),
    onRunFinishedEvent: () => void seen.push("first"),
  });
  await agent.runAgent();
  assert.deepEqual(seen, ["second"]);
});

test("a call that a snapshot contains is reopened with its arguments", async (t) => {
  const call = { id: "c", type: "function", function: { name: "look", arguments: '{"a":' } };
  const events = [
    CHAT[0],
    { type: "MESSAGE_SNAPSHOT", messages: [{ id: "m", role: "assistant", content: '{"output":1}', toolCalls: [call] }] },
    { type: "TOOL_CALL_START", toolCallId: "c", toolCallName: "look", parentMessageId: "m" },
    { type: "TOOL_CALL_ARGS", toolCallId: "c", delta: "1}" },
    { type: "TOOL_CALL_END", toolCallId: "c" },
    { type: "TOOL_CALL_START", toolCallId: "c", toolCallName: "look" },
    { type: "TOOL_CALL_ARGS", toolCallId: "c", delta: { b: 2 } },
    { type: "TOOL_CALL_END", toolCallId: "c" },
    { type: "TOOL_CALL_START", toolCallId: "d", toolCallName: "no", parentMessageId: "" },
    { type: "TOOL_CALL_ARGS", toolCallId: "d", delta: "oops" },
    { type: "TOOL_CALL_END", toolCallId: "d" },
    CHAT.at(-1),
  ];
  const { url } = await server(t, (_, __, response) => stream(response, sse(events)));
  const agent = new HttpAgent({ url });
  const seen = [];
  await agent.runAgent({}, {
    onToolCallArgsEvent: ({ toolCallBuffer, partialToolCallArgs }) => void seen.push([toolCallBuffer, partialToolCallArgs]),
    onToolCallEndEvent: ({ toolCallArgs, toolCallName }) => void seen.push([toolCallName, toolCallArgs]),
  });
  assert.deepEqual(seen, [['{"a":', {}], ["look", { a: 1 }], ["", {}], ["look", { b: 2 }], ["", {}], ["no", {}]]);
  assert.deepEqual(agent.messages.map(({ id, toolCalls }) => [id, toolCalls.map((call) => call.id)]), [["m", ["c"]], ["d", ["d"]]]);
});

test("messages, tool results, state and clones outside of a run", async () => {
  const agent = new HttpAgent({ url: "http://127.0.0.1:9/awp", headers: { a: "1" }, initialState: { x: 1 } });
  const seen = [];
  agent.subscribe({
    onNewMessage: ({ message }) => void seen.push(["message", message.id]),
    onNewToolCall: ({ toolCall }) => void seen.push(["call", toolCall.id]),
    onMessagesChanged: ({ messages, input }) => void seen.push(["changed", messages.length, input]),
    onStateChanged: ({ state }) => void seen.push(["state", state]),
  });
  const settled = () => new Promise((done) => setTimeout(done));
  agent.addMessages([{ id: "a", role: "assistant", toolCalls: [{ id: "c", type: "function", function: { name: "f", arguments: "{}" } }] }, { role: "user", content: [{ type: "text", text: "part" }] }]);
  await settled();
  const [, { id }] = agent.messages;
  assert.deepEqual(seen.splice(0), [["message", "a"], ["call", "c"], ["message", id], ["changed", 2, undefined]]);
  for (const [content, text] of [[{ ok: true }, '{"ok":true}'], [true, "true"], ["plain", "plain"], [null, "null"], [undefined, ""]]) {
    agent.addToolResult("c", content);
    assert.deepEqual({ ...agent.messages.at(-1), id: "" }, { id: "", role: "tool", content: text, toolCallId: "c" });
  }
  await settled();
  agent.setState({ y: 2 });
  agent.setMessages([]);
  await settled();
  assert.deepEqual(seen.slice(-2), [["state", { y: 2 }], ["changed", 0, undefined]]);
  const twin = agent.clone();
  twin.setState({ z: 3 });
  twin.headers.a = "2";
  twin.abortRun();
  assert.deepEqual([agent.state, agent.headers, agent.abortController.signal.aborted, twin.threadId], [{ y: 2 }, { a: "1" }, false, agent.threadId]);
  assert.equal(agent.agentId, undefined);
});

test("requests: body, headers, an overridden init, control routes, errors of them", async (t) => {
  const { url, requests } = await server(t, (request, _, response) => {
    if (request.method === "POST" && request.url.startsWith("/base/awp")) return stream(response, sse(CHAT));
    if (request.url.endsWith("/pause")) return response.writeHead(409, { "content-type": "application/json" }).end('{"error":{"code":"RUN_ENDED","message":"it has ended"}}');
    response.writeHead(200, { "content-type": "application/json" }).end("{}");
  });
  class Own extends HttpAgent {
    requestInit(input) {
      const init = super.requestInit(input);
      return { ...init, headers: new Headers({ ...init.headers, "x-own": "1" }) };
    }
  }
  const agent = new Own({ url: url.replace("/awp", "/base/awp?x=1"), headers: { authorization: "Bearer t" }, binary: true, initialState: { s: 1 } });
  await agent.runAgent({ runId: "r", tools: [{ name: "n", description: "d" }], context: [{ description: "c", value: "v" }], forwardedProps: { f: 1 }, resume: [{ interruptId: "i" }] });
  const { headers, body } = requests[0];
  assert.deepEqual([headers["content-type"], headers.accept, headers.authorization, headers["x-own"]], ["application/json", "application/vnd.hai.event+proto, text/event-stream;q=0.5", "Bearer t", "1"]);
  assert.deepEqual(Object.keys(body), ["threadId", "runId", "messages", "state", "tools", "context", "forwardedProps", "resume"]);
  assert.deepEqual([body.state, body.forwardedProps, body.resume], [{ s: 1 }, { f: 1 }, [{ interruptId: "i" }]]);
  await agent.status();
  const error = await agent.pause().then(() => null, (error) => error);
  assert.deepEqual([error.code, error.status, error.message], ["HTTP_STATUS", 409, "HTTP 409: it has ended"]);
  await agent.resume();
  await agent.stop();
  await agent.feedback({ rating: "up", messageId: "m" });
  await agent.pending();
  await agent.history();
  assert.deepEqual(requests.slice(1).map(({ method, url }) => `${method} ${url}`), ["GET /base/runs/r", "POST /base/runs/r/pause", "POST /base/runs/r/resume", "POST /base/runs/r/stop", "POST /base/feedback", "GET /base/threads/t/pending", "GET /base/message_snapshot/t?format=hai"]);
  assert.deepEqual(requests.find(({ url }) => url === "/base/feedback").body, { threadId: "t", runId: "r", rating: "up", messageId: "m" });
  await agent.reconnect();
  const sync = requests.at(-1).body;
  assert.deepEqual([sync.threadId, sync.messages, sync.state], ["t", [], {}]);
});

test("bad input: endless bodies of other types and statuses, hostile frames, bytes cut anywhere, no end", async (t) => {
  const open = [];
  t.after(() => open.forEach((response) => response.destroy()));
  const endless = (response, status, type) => {
    response.writeHead(status, { "content-type": type });
    open.push(response);
    const more = () => {
      while (!response.destroyed && response.write("x".repeat(16384)));
    };
    response.on("drain", more);
    more();
  };
  const cases = {
    "/html": (response) => endless(response, 200, "text/html"),
    "/500": (response) => endless(response, 500, "text/plain"),
    "/line": (response) => endless(response, 200, "text/event-stream"),
    "/lines": (response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      open.push(response);
      const more = () => {
        while (!response.destroyed && response.write("data\n".repeat(16384)));
      };
      response.on("drain", more);
      more();
    },
    "/length": (response) => stream(response, Buffer.from([0xff, 0xff, 0xff, 0xff, 1, 2]), "application/vnd.hai.event+proto"),
    "/wire": (response) => stream(response, Buffer.from([0, 0, 0, 2, 0xcf, 1]), "application/vnd.hai.event+proto"),
    "/array": (response) => stream(response, "data: [1]\n\n"),
    "/none": (response) => response.writeHead(204).end(),
  };
  const { url } = await server(t, (request, _, response) => cases[request.url](response));
  const fail = (path) => new HttpAgent({ url: url.replace("/awp", path), reconnect: false }).runAgent().then(() => assert.fail(path), (error) => error);
  assert.equal((await fail("/html")).code, "BAD_CONTENT_TYPE");
  assert.deepEqual([(await fail("/500")).code, (await fail("/500")).status], ["HTTP_STATUS", 500]);
  for (const path of ["/line", "/lines"]) {
    const error = await fail(path);
    assert.deepEqual([error.code, /^frame 1 is larger/.test(error.message)], ["BAD_FRAME", true], error.message);
  }
  assert.match((await fail("/length")).message, /^frame 1: it has 4294967295 bytes.*ff ff ff ff 01 02$/);
  assert.match((await fail("/wire")).message, /^frame 1: .*unknown kind/);
  assert.match((await fail("/array")).message, /^frame 1 is no event: \[1\]/);
  assert.equal((await fail("/none")).code, "BAD_CONTENT_TYPE");
});

test("a broken stream is TRUNCATED with its cause, also when the attempts to resume it fail", async (t) => {
  let asked = 0;
  const { url } = await server(t, (_, __, response) => {
    asked += 1;
    if (asked % 4 !== 1) return response.writeHead(503, { "retry-after": "0" }).end("busy");
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(sse(CHAT.slice(0, 3)), () => response.destroy());
  });
  const run = (reconnect) => new HttpAgent({ url, reconnect }).runAgent({ runId: "r" }).then(() => assert.fail(), (error) => error);
  const off = await run(false);
  assert.deepEqual([off.code, off.cause.code, off.runId, typeof off.threadId], ["TRUNCATED", "NETWORK", "r", "string"]);
  asked = 0;
  const exhausted = await run({ retries: 3, minDelayMs: 1, maxDelayMs: 2 });
  assert.deepEqual([exhausted.code, exhausted.cause.status, asked], ["TRUNCATED", 503, 4]);
});

test("a server that breaks at the same byte each time is asked a bounded number of times", async (t) => {
  for (const withIds of [false, true]) {
    let asked = 0;
    const { url } = await server(t, (request, _, response) => {
      asked += 1;
      response.writeHead(request.method === "GET" ? 404 : 200, { "content-type": "text/event-stream" });
      response.write(sse(CHAT.slice(0, 3), withIds), () => response.destroy());
    });
    const agent = new HttpAgent({ url, reconnect: { retries: 3, minDelayMs: 1, maxDelayMs: 2 } });
    const error = await agent.runAgent().then(() => assert.fail(), (error) => error);
    assert.deepEqual([error.code, agent.messages.length], ["TRUNCATED", 1]);
    assert.ok(asked <= 8, `${asked} requests`);
  }
});

test("a server cannot ask for a delay that overflows the timer", async (t) => {
  let asked = 0;
  const { url } = await server(t, (_, __, response) => {
    asked += 1;
    if (asked > 1) return response.writeHead(503, { "retry-after": "99999999999" }).end();
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(`retry: 99999999999\n\n${sse(CHAT.slice(0, 2))}`, () => response.destroy());
  });
  const delays = [];
  const agent = new HttpAgent({ url });
  const abort = new AbortController();
  await agent.runAgent({ abortController: abort }, {
    onReconnecting: ({ delayMs }) => {
      delays.push(delayMs);
      abort.abort();
    },
  });
  assert.ok(delays.length === 1 && delays[0] >= 300_000 && delays[0] <= 400_000, String(delays));
});

test("malformed data of an event is PROTOCOL, and the response of a control route that is no JSON is typed too", async (t) => {
  const bad = [
    { type: "MESSAGE_SNAPSHOT", messages: {} },
    { type: "MESSAGE_SNAPSHOT", messages: [null] },
    { type: "MESSAGES_SNAPSHOT", messages: [{ id: "a", role: "assistant", toolCalls: 7 }] },
  ];
  const { url } = await server(t, (request, body, response) => {
    if (request.method === "GET") return response.writeHead(200, { "content-type": "text/html" }).end("<h1>hello</h1>");
    stream(response, sse([CHAT[0], bad[Number(body.runId)], CHAT.at(-1)]));
  });
  for (const number of bad.keys()) {
    const error = await new HttpAgent({ url }).runAgent({ runId: String(number) }).then(() => assert.fail(), (error) => error);
    assert.ok(error instanceof HaiError && error.code === "PROTOCOL" && error.cause instanceof TypeError, String(error));
  }
  const agent = new HttpAgent({ url });
  agent.lastRunId = "r";
  const error = await agent.status().then(() => assert.fail(), (error) => error);
  assert.ok(error instanceof HaiError && error.code === "BAD_CONTENT_TYPE" && error.message.includes("<h1>hello"), String(error));
});

test("contents and outputs", () => {
  assert.deepEqual(parseContents("plain {text}"), [{ output: { type: "text", content: "plain {text}" } }]);
  assert.deepEqual(parseContents('{"a":1}'), [{ output: { type: "text", content: '{"a":1}' } }]);
  const joined = '{"output":{"type":"text","content":"}{"}}\n{"output":{"type":"text","content":"b"}}{"output":{"ty';
  assert.deepEqual(mergeOutputs(parseContents(joined)), [{ output: { type: "text", content: "}{b" } }]);
  assert.throws(() => parseJsonString(""), /输入必须是有效的字符串/);
  assert.throws(() => parseJsonString("{"), /JSON解析失败/);
  assert.throws(() => parseJsonString("{", { lang: "en" }), /JSON parse failed/);
});

test("the order rules", () => {
  verifyEvents(CHAT);
  assert.throws(() => verifyEvents(CHAT.slice(0, -1)), /without RUN_FINISHED/);
  assert.throws(() => verifyEvents([CHAT[0], CHAT[0]]), /RUN_STARTED twice/);
  const nested = [CHAT[0], CHAT[1], { type: "STEP_STARTED", stepName: "s" }, { type: "STEP_FINISHED", stepName: "s" }, CHAT[4], CHAT[5]];
  verifyEvents(nested);
  assert.throws(() => verifyEvents(nested, "strict"), /STEP_STARTED while/);
});

test("the package is small, has twenty event types, and works with require", () => {
  const required = createRequire(import.meta.url)("../dist/index.js");
  assert.equal(typeof required.HttpAgent, "function");
  assert.equal(Object.keys(EventType).length, 20);
});
