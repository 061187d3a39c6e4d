// The official clients with `agentwire serve`, the demo agent and each of its keywords.

import assert from "node:assert/strict";
import fs from "node:fs";
import { test } from "node:test";

import { all, folder, frames, input, isTerminal, post, serve, soon, typesOf, upstream } from "./support.mjs";

process.env.SUPPRESS_TRANSFORMATION_WARNINGS = "1";
for (const method of ["error", "warn"]) console[method] = () => {};
const { HttpAgent } = await import("@ag-ui/client");

const PROTO = "application/vnd.ag-ui.event+proto";
const KEYWORDS = [
  "hello", "think", "tools", "tool error", "state", "steps", "subagent", "plan", "media", "confirm", "approve",
  "long 200", "fail", "think tools state steps subagent plan media",
];

class BinaryAgent extends HttpAgent {
  requestInit(input) {
    const init = super.requestInit(input);
    return { ...init, headers: { ...init.headers, Accept: PROTO } };
  }
}

for (const [name, Agent] of [["SSE", HttpAgent], ["binary", BinaryAgent]]) {
  test(`@ag-ui/client accepts every keyword (${name})`, async (t) => {
    const { url } = await serve(t, ["--store", "memory:"]);
    for (const [index, text] of KEYWORDS.entries()) {
      const threadId = `t${index}`;
      const agent = new Agent({ url: `${url}/`, threadId });
      agent.addMessage({ id: "u", role: "user", content: text });
      const events = [];
      let failure = null;
      const watch = { onEvent: ({ event }) => void events.push(event), onRunFailed: ({ error }) => void (failure = error) };
      await agent.runAgent({ runId: `r${index}` }, watch).catch((error) => (failure = error));
      assert.equal(events.at(0)?.type, "RUN_STARTED", text);
      assert.equal(events.filter((event) => isTerminal(event.type)).length, 1, text);
      if (text === "fail") assert.equal(events.at(-1).code, "DEMO_FAILURE");
      else assert.equal(failure, null, `${text}: ${failure}`);
      // The client's messages equal the stored ones.
      const kept = await (await fetch(`${url}/message_snapshot/${threadId}`)).json();
      const held = agent.messages.map(({ id, role, content }) => ({ id, role, content }));
      assert.deepEqual(held, kept.messages.map(({ id, role, content }) => ({ id, role, content })), text);
      const state = await (await fetch(`${url}/state_snapshot/${threadId}`)).json();
      assert.deepEqual(agent.state, state.snapshot, text);
    }
  });
}

test("@ag-ui/client answers an interrupt", async (t) => {
  const { url } = await serve(t, ["--store", "memory:"]);
  const agent = new HttpAgent({ url: `${url}/`, threadId: "t" });
  agent.addMessage({ id: "u", role: "user", content: "approve" });
  let outcome;
  await agent.runAgent({ runId: "one" }, { onRunFinishedEvent: ({ event }) => void (outcome = event.outcome) });
  assert.equal(outcome.type, "interrupt");
  const pending = await (await fetch(`${url}/threads/t/pending`)).json();
  assert.equal(pending.length, 1);
  const resume = outcome.interrupts.map(({ id }) => ({ interruptId: id, status: "resolved", payload: { approved: true } }));
  let text = "";
  await agent.runAgent({ runId: "two", resume }, { onTextMessageContentEvent: ({ event }) => void (text += event.delta) });
  assert.match(text, /approved/);
  assert.deepEqual(await (await fetch(`${url}/threads/t/pending`)).json(), []);
});

test("@ag-ui/client answers under the id of the run that waits", async (t) => {
  const { url } = await serve(t, ["--store", "memory:"]);
  const agent = new HttpAgent({ url: `${url}/`, threadId: "t" });
  agent.addMessage({ id: "u", role: "user", content: "approve" });
  let outcome;
  await agent.runAgent({ runId: "one" }, { onRunFinishedEvent: ({ event }) => void (outcome = event.outcome) });
  const before = agent.messages.length;
  const resume = outcome.interrupts.map(({ id }) => ({ interruptId: id, status: "resolved", payload: { approved: true } }));
  const started = [];
  let text = "";
  await agent.runAgent(
    { runId: "one", resume },
    {
      onRunStartedEvent: ({ event }) => void started.push(event.runId),
      onTextMessageContentEvent: ({ event }) => void (text += event.delta),
    },
  );
  assert.deepEqual(started, ["one#2"]);
  assert.match(text, /approved/);
  assert.ok(agent.messages.length > before);
  assert.deepEqual(await (await fetch(`${url}/threads/t/pending`)).json(), []);
  const kept = await (await fetch(`${url}/message_snapshot/t`)).json();
  assert.deepEqual(agent.messages.map(({ id }) => id), kept.messages.map(({ id }) => id));
});

test("@ag-ui/client stops, then speaks", async (t) => {
  const { url } = await serve(t, ["--store", "memory:"]);
  const agent = new HttpAgent({ url: `${url}/`, threadId: "t" });
  agent.addMessage({ id: "u1", role: "user", content: "long 100000" });
  const stopped = agent.runAgent({ runId: "one" }, { onTextMessageContentEvent: () => void agent.abortRun() });
  await soon("the stop", stopped.catch(() => {}));
  agent.addMessage({ id: "u2", role: "user", content: "hello" });
  let failure = null;
  await agent.runAgent({ runId: "two" }, { onRunFailed: ({ error }) => void (failure = error) });
  assert.equal(failure, null);
  const kept = await (await fetch(`${url}/message_snapshot/t`)).json();
  const users = kept.messages.filter(({ role }) => role === "user").map(({ id }) => id);
  assert.deepEqual(users, ["u1", "u2"]);
  assert.equal((await (await fetch(`${url}/runs/one`)).json()).status, "stopped");
});

test("three turns of @ag-ui/client leave one level of state_key", async (t) => {
  const seen = [];
  const agent = await upstream(t, async (response, { threadId, runId, state }) => {
    seen.push(state);
    response.writeHead(200, { "content-type": "text/event-stream" });
    const say = (event) => response.write(`data: ${JSON.stringify(event)}\n\n`);
    say({ type: "RUN_STARTED", threadId, runId });
    say({ type: "STATE_DELTA", delta: [{ op: "add", path: "/turns", value: seen.length }] });
    say({ type: "RUN_FINISHED", threadId, runId });
    response.end();
  });
  const cwd = folder(t);
  const upstreamTable = `upstream = { kind = "ag-ui", url = "${agent.url}" }`;
  fs.writeFileSync(`${cwd}/agentwire.toml`, `[agents.a]\n${upstreamTable}\nstate_key = "ui"\n`);
  const { url } = await serve(t, ["--store", "memory:"], { cwd });
  const client = new HttpAgent({ url: `${url}/`, threadId: "t", initialState: { color: "red" } });
  const turn = async (number) => {
    client.addMessage({ id: `u${number}`, role: "user", content: "go on" });
    await client.runAgent({ runId: `r${number}` });
  };
  await turn(1);
  assert.deepEqual(client.state, { ui: { color: "red" }, turns: 1 });
  await turn(2);
  client.state = { ...client.state, ui: { color: "blue" }, size: 7 };
  await turn(3);
  assert.deepEqual(client.state, { ui: { color: "blue", size: 7 }, turns: 3 });
  // A page that was reloaded has no state yet.
  client.state = {};
  await turn(4);
  assert.deepEqual(client.state, { ui: { color: "blue", size: 7 }, turns: 4 });
  assert.deepEqual(seen.map(({ ui }) => ui), [
    { color: "red" },
    { color: "red" },
    { color: "blue", size: 7 },
    { color: "blue", size: 7 },
  ]);
});

/** A client of one version of `@ag-ui/client`, as a page that is loaded anew: it holds nothing. */
const AG_UI = [["1.0.0", HttpAgent], ...(await Promise.all(["0.0.59", "0.0.39"].map(async (version) => [version, (await import(`ag-ui-client-${version}`)).HttpAgent])))];

/** Sends a request without messages, and waits for the end of its stream. */
async function comeBack(Agent, url, { onFirst = () => {} } = {}) {
  const agent = new Agent({ url: `${url}/`, threadId: "t" });
  const events = [];
  let failure = null;
  const onEvent = ({ event }) => {
    // Version 0.0.39 adds its later messages to the list of a snapshot.
    events.push(structuredClone(event));
    if (event.type === "TEXT_MESSAGE_CONTENT") onFirst();
  };
  await soon("the end of the sync", agent.runAgent({}, { onEvent, onRunFailed: ({ error }) => void (failure = error) }));
  assert.equal(failure, null);
  return { agent, events };
}

const shape = (messages) => messages.map(({ id, role, content, toolCalls }) => ({ id, role, content, toolCalls }));

for (const [version, Agent] of AG_UI) {
  test(`a page that is reloaded during a run has the conversation and the run to its end (@ag-ui/client ${version})`, async (t) => {
    let goOn;
    const served = await upstream(t, async (response, { threadId, runId }, number) => {
      const send = (event) => response.write(`data: ${JSON.stringify(event)}\n\n`);
      const id = `answer-${number}`;
      response.writeHead(200, { "content-type": "text/event-stream" });
      send({ type: "RUN_STARTED", threadId, runId });
      if (number === 0) send({ type: "STATE_SNAPSHOT", snapshot: { turns: 0 } });
      send({ type: "STATE_DELTA", delta: [{ op: "replace", path: "/turns", value: number + 1 }] });
      send({ type: "TEXT_MESSAGE_START", messageId: id, role: "assistant" });
      send({ type: "TEXT_MESSAGE_CONTENT", messageId: id, delta: "first half, " });
      if (number === 1) await new Promise((resolve) => (goOn = resolve));
      send({ type: "TEXT_MESSAGE_CONTENT", messageId: id, delta: "second half" });
      send({ type: "TEXT_MESSAGE_END", messageId: id });
      send({ type: "RUN_FINISHED", threadId, runId });
      response.end();
    });
    const { url } = await serve(t, ["--store", "memory:", "--ag-ui", served.url]);
    await all(await post(`${url}/`, input("t", "one", "hello")));
    const running = frames(await post(`${url}/`, input("t", "two", "go on")));
    for await (const { data } of running) if (JSON.parse(data).type === "TEXT_MESSAGE_CONTENT") break;
    // The upstream is released when the page has the first half.
    const { agent, events } = await comeBack(Agent, url, { onFirst: () => goOn() });
    assert.deepEqual(events.slice(0, 3).map(({ type }) => type), ["RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT"]);
    assert.equal(events[0].runId, "two");
    assert.deepEqual(events[1].messages.map(({ id }) => id), ["one-user", "answer-0", "two-user"]);
    assert.equal(events.filter(({ type }) => isTerminal(type)).length, 1);
    assert.equal(agent.messages.at(-1).content, "first half, second half");
    const kept = await (await fetch(`${url}/message_snapshot/t`)).json();
    assert.deepEqual(shape(agent.messages), shape(kept.messages));
    assert.deepEqual(agent.state, { turns: 2 });
    assert.equal(served.calls.length, 2, "nobody started a run by coming back");
  });

  test(`an open question survives a reload (@ag-ui/client ${version})`, async (t) => {
    const { url } = await serve(t, ["--store", "memory:"]);
    await all(await post(`${url}/`, input("t", "one", "approve")));
    const { agent, events } = await comeBack(Agent, url);
    // Version 0.0.39 knows no outcome: the question is a CUSTOM event, the answer a command.
    const { outcome } = events.at(-1);
    const asked = outcome?.interrupts ?? events.filter(({ type, name }) => type === "CUSTOM" && name === "on_interrupt").map(({ value }) => value);
    assert.equal(outcome === undefined, version === "0.0.39");
    const pending = await (await fetch(`${url}/threads/t/pending`)).json();
    assert.deepEqual(asked.map(({ id }) => id), pending.map(({ id }) => id));
    const resume = asked.map(({ id }) => ({ interruptId: id, status: "resolved", payload: { approved: true } }));
    const answer = outcome ? { resume } : { forwardedProps: { command: { resume: { approved: true } } } };
    let text = "";
    await agent.runAgent(answer, { onTextMessageContentEvent: ({ event }) => void (text += event.delta) });
    assert.match(text, /approved/);
  });
}

test("an EventSource reconnects after every frame and stops at the end", async (t) => {
  const { url } = await serve(t, ["--store", "memory:"]);
  await all(await post(`${url}/`, input("t", "one", "think tools state")));
  for (const format of ["ag-ui", "hai", "ai-sdk@7"]) {
    const stream = `${url}/runs/one/stream?format=${format}`;
    const whole = await all(await fetch(stream));
    const seen = [];
    for (;;) {
      const last = seen.at(-1)?.id;
      const response = await fetch(stream, { headers: last === undefined ? {} : { "last-event-id": last } });
      // The answer that makes an EventSource stop.
      if (response.status === 204) break;
      assert.equal(response.headers.get("agentwire-recovery"), "whole");
      for await (const frame of frames(response)) {
        seen.push(frame);
        break;
      }
    }
    assert.deepEqual(seen.map(({ raw }) => raw), whole.map(({ raw }) => raw), format);
  }
});

/** A chat without a user interface. */
function chat(ai, options) {
  class State {
    status = "ready";
    error = undefined;
    messages = [];
    pushMessage = (message) => void (this.messages = this.messages.concat(structuredClone(message)));
    popMessage = () => void (this.messages = this.messages.slice(0, -1));
    replaceMessage = (index, message) => void (this.messages = this.messages.with(index, structuredClone(message)));
    snapshot = (thing) => structuredClone(thing);
  }
  class Chat extends ai.AbstractChat {
    constructor(init) {
      super({ ...init, state: new State() });
    }
  }
  return new Chat(options);
}

for (const version of ["5.0.277", "6.0.326", "7.0.169"]) {
  test(`ai ${version} shows a refusal as a sentence`, async (t) => {
    const ai = await import(`ai-${version}`);
    const { url } = await serve(t, ["--store", "memory:", "--cors", "https://app.example", "--cors", "http://localhost:3000"]);
    const busy = await post(`${url}/`, input("t", "one", "long 100000"));
    const headers = { origin: "https://app.example" };
    let code;
    const transport = new ai.DefaultChatTransport({
      api: `${url}/api/chat`,
      headers,
      fetch: async (...request) => {
        const response = await fetch(...request);
        code = response.headers.get("agentwire-error-code");
        assert.equal(response.headers.get("access-control-allow-origin"), "https://app.example");
        return response;
      },
    });
    const errors = [];
    const one = chat(ai, { id: "t", transport, onError: (error) => void errors.push(error.message) });
    await one.sendMessage({ text: "hello" });
    assert.deepEqual(errors, ["Another run has the thread; try again when it has ended, or stop it."]);
    assert.equal(code, "THREAD_IS_LOCKED");
    await busy.body.cancel();
    // Now nobody reads the first run.
    errors.length = 0;
    await one.sendMessage({ text: "hello" });
    assert.deepEqual(errors, []);
  });
}

for (const [version, profile] of [["5.0.277", 5], ["6.0.326", 6], ["7.0.169", 7]]) {
  test(`ai ${version} accepts every keyword and resumes`, async (t) => {
    const ai = await import(`ai-${version}`);
    const { url } = await serve(t, ["--store", "memory:"]);
    const open = (id, base = url, came = () => {}) => {
      const errors = [];
      const transport = new ai.DefaultChatTransport({
        api: `${base}/api/chat`,
        fetch: async (address, init) => {
          const response = await fetch(`${address}?profile=${profile}`, init);
          came(response);
          return response;
        },
      });
      return { chat: chat(ai, { id, transport, onError: (error) => void errors.push(error) }), errors };
    };
    for (const [index, text] of KEYWORDS.entries()) {
      const { chat: one, errors } = open(`t${index}`);
      await one.sendMessage({ text });
      assert.equal(errors.length, text === "fail" ? 1 : 0, `${text}: ${errors}`);
      assert.equal(one.messages.at(-1).role, "assistant", text);
      assert.ok(one.messages.at(-1).parts.length > 0, text);
    }
    // A second client connects during the run and receives all of it: the agent ends only after it has connected.
    let goOn;
    const gone = new Promise((resolve) => (goOn = resolve));
    const agent = await upstream(t, async (response, { threadId, runId }) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      const say = (event) => response.write(`data: ${JSON.stringify(event)}\n\n`);
      say({ type: "RUN_STARTED", threadId, runId });
      say({ type: "TEXT_MESSAGE_START", messageId: runId, role: "assistant" });
      for (const delta of ["one ", "two "]) say({ type: "TEXT_MESSAGE_CONTENT", messageId: runId, delta });
      await gone;
      say({ type: "TEXT_MESSAGE_CONTENT", messageId: runId, delta: "three" });
      say({ type: "TEXT_MESSAGE_END", messageId: runId });
      say({ type: "RUN_FINISHED", threadId, runId });
      response.end();
    });
    const { url: held } = await serve(t, ["--store", "memory:", "--ag-ui", agent.url]);
    let first;
    let sent;
    await soon("the run", new Promise((begun) => {
      first = open("resumed", held, begun);
      sent = first.chat.sendMessage({ text: "hello" });
    }));
    const second = open("resumed", held, goOn);
    await second.chat.resumeStream();
    await sent;
    const textOf = (one) => one.messages.at(-1).parts.map((part) => part.text ?? "").join("|");
    assert.match(textOf(first.chat), /one two three$/);
    assert.equal(textOf(second.chat), textOf(first.chat));
    const idle = open("resumed", held);
    await idle.chat.resumeStream();
    assert.equal(idle.chat.messages.length, 0, "nothing goes on any more");
  });
}

test("HAI streams of every keyword start, end and replay", async (t) => {
  const { url } = await serve(t, ["--store", "memory:"]);
  for (const text of KEYWORDS) {
    const response = await post(`${url}/awp`, { messages: [{ role: "user", content: text }] });
    assert.equal(response.headers.get("content-type"), "text/event-stream");
    const seen = await all(response);
    const types = typesOf(seen);
    assert.equal(types[0], "RUN_STARTED", text);
    assert.equal(types.filter(isTerminal).length, 1, text);
    const run = response.headers.get("x-run-id");
    assert.deepEqual(await all(await fetch(`${url}/runs/${encodeURIComponent(run)}/stream?format=hai`)), seen, text);
  }
});

test("100 parallel posts of one run id start one run", async (t) => {
  const { url } = await serve(t);
  const answers = await Promise.all(Array.from({ length: 100 }, async () => all(await post(`${url}/`, input("t", "r", "tools")))));
  for (const answer of answers) assert.deepEqual(answer, answers[0]);
  assert.equal(typesOf(answers[0]).filter((type) => type === "RUN_STARTED").length, 1);
  const metrics = await (await fetch(`${url}/metrics`)).text();
  assert.match(metrics, /agentwire_runs_started\w*\{[^}]*\} 1\n/);
});

test("a run can be streamed in two formats at once", async (t) => {
  const { url } = await serve(t, ["--store", "memory:"]);
  const first = frames(await post(`${url}/`, input("t", "r", "think tools")));
  await first.next();
  const watched = all(await fetch(`${url}/runs/r/stream?format=ai-sdk@5`));
  for await (const _ of first);
  const again = await all(await fetch(`${url}/runs/r/stream?format=ai-sdk@5`));
  assert.deepEqual(await watched, again);
});
