// `@langchain/langgraph-sdk` in Node against the gateway: the demo agent, an AG-UI agent and a real ADK server.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import path from "node:path";
import test from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Client } from "@langchain/langgraph-sdk";
import { startServer } from "../adk/peers.mjs";
import { python } from "../langgraph/server.mjs";
import { agent as agUiAgent, agentInHalves, collect, serve, textOf, until } from "./support.mjs";

const human = (content) => ({ messages: [{ type: "human", content }] });
const MODES = ["messages-tuple", "values", "updates", "custom"];

const clientOf = (url) => new Client({ apiUrl: `${url}/langgraph`, apiKey: null, callerOptions: { maxRetries: 0 } });

/** A client of the demo agent. */
async function demo(t, args = []) {
  const { url } = await serve(t, args);
  return { url, client: clientOf(url) };
}

const valuesOf = (events) => events.filter(({ event }) => event === "values").map(({ data }) => data);

test("chat, streaming and history with the demo agent", async (t) => {
  const { client } = await demo(t);
  const { thread_id } = await client.threads.create();
  let created;
  const events = await collect(client.runs.stream(thread_id, "demo", {
    input: human("hello"), streamMode: MODES, streamResumable: true, onRunCreated: (run) => (created = run),
  }));
  assert.equal(events[0].event, "metadata");
  assert.equal(created.thread_id, thread_id);
  assert.equal(created.run_id, events[0].data.run_id);
  const chunks = events.filter(({ event }) => event === "messages").map(({ data: [chunk] }) => chunk);
  assert.ok(chunks.length > 3, "words arrive one by one");
  const last = valuesOf(events).at(-1).messages.at(-1);
  assert.equal(chunks.map(textOf).join(""), textOf(last));
  assert.equal(chunks[0].id, last.id, "one id while streaming and afterwards");
  await collect(client.runs.stream(thread_id, "demo", { input: human("long 3"), streamMode: ["values"] }));
  const state = await client.threads.getState(thread_id);
  assert.equal(state.values.messages.length, 4);
  const history = await client.threads.getHistory(thread_id, { limit: 3 });
  assert.deepEqual(history[0], state);
  assert.equal(history[0].parent_checkpoint.checkpoint_id, history[1].checkpoint.checkpoint_id);
  const older = await client.threads.getHistory(thread_id, { limit: 10, before: { configurable: history[2].checkpoint } });
  assert.ok(older.length > 0 && older.every(({ checkpoint_id }) => checkpoint_id < history[2].checkpoint_id));
  assert.deepEqual(await client.threads.getState(thread_id, history[1].checkpoint), history[1]);
});

test("tool calls stream as chunks and end in the values", async (t) => {
  const { client } = await demo(t);
  const { thread_id } = await client.threads.create();
  const events = await collect(client.runs.stream(thread_id, "demo", { input: human("tools"), streamMode: MODES }));
  const calls = events.filter(({ event }) => event === "messages").flatMap(({ data: [chunk] }) => chunk.tool_call_chunks ?? []);
  assert.ok(calls.some(({ name }) => name === "weather"));
  const { messages } = valuesOf(events).at(-1);
  const made = new Map(messages.flatMap(({ tool_calls }) => tool_calls ?? []).map(({ id, name }) => [id, name]));
  const results = messages.filter(({ type }) => type === "tool");
  assert.deepEqual(results.map(({ name }) => name), results.map(({ tool_call_id }) => made.get(tool_call_id)));
  assert.equal(results.length, made.size);
});

test("reasoning is a part of its message", async (t) => {
  const { client } = await demo(t);
  const events = await collect(client.runs.stream(null, "demo", { input: human("think"), streamMode: MODES }));
  const ids = new Set(events.filter(({ event }) => event === "messages").map(({ data: [chunk] }) => chunk.id));
  const answers = valuesOf(events).at(-1).messages.filter(({ type }) => type === "ai");
  assert.deepEqual([...ids], answers.map(({ id }) => id), "no message but those that stay");
  assert.ok(answers.some(({ additional_kwargs }) => additional_kwargs.reasoning_content));
});

test("an interrupt is answered by command", async (t) => {
  const { client } = await demo(t);
  const { thread_id } = await client.threads.create();
  const asked = await client.runs.wait(thread_id, "demo", { input: human("approve") });
  const [{ id, value }] = asked.__interrupt__;
  assert.equal(typeof value, "object");
  const state = await client.threads.getState(thread_id);
  assert.deepEqual(state.next, ["agent"]);
  assert.equal(state.tasks[0].interrupts[0].id, id);
  assert.equal((await client.threads.get(thread_id)).status, "interrupted");
  await assert.rejects(client.runs.wait(thread_id, "demo", { command: { resume: true, goto: "x" } }), /goto/);
  const done = await client.runs.wait(thread_id, "demo", { command: { resume: { [id]: { approved: true } } } });
  assert.equal(done.__interrupt__, undefined);
  assert.deepEqual((await client.threads.getState(thread_id)).next, []);
});

test("state goes to the agent and back, and is changed from outside", async (t) => {
  const states = [];
  const upstream = await agUiAgent(t, (send, { threadId, runId, state }, response) => {
    states.push(state);
    send({ type: "RUN_STARTED", threadId, runId });
    send({ type: "STATE_SNAPSHOT", snapshot: { ...state, count: states.length } });
    send({ type: "RUN_FINISHED", threadId, runId });
    response.end();
  });
  const { client } = await demo(t, ["--ag-ui", upstream]);
  const { thread_id } = await client.threads.create();
  const first = await client.runs.wait(thread_id, "default", { input: { ...human("one"), topic: "a" } });
  assert.deepEqual([states[0].topic, first.count, first.topic], ["a", 1, "a"]);
  const { checkpoint } = await client.threads.updateState(thread_id, { values: { topic: "b" } });
  const state = await client.threads.getState(thread_id);
  assert.equal(state.checkpoint.checkpoint_id, checkpoint.checkpoint_id);
  await client.runs.wait(thread_id, "default", { input: human("two") });
  assert.equal(states[1].topic, "b");
});

test("a run is joined in the middle, and a cut connection is resumed", async (t) => {
  const { upstream, half, rest } = await agentInHalves(t);
  const { client } = await demo(t, ["--ag-ui", upstream]);
  const { thread_id } = await client.threads.create();
  const { run_id } = await client.runs.create(thread_id, "default", { input: human("go"), streamMode: MODES });
  await half.opened;
  assert.equal((await client.runs.get(thread_id, run_id)).status, "running");
  const joined = collect(client.runs.joinStream(thread_id, run_id, { lastEventId: "-1" }));
  rest.open();
  const events = await joined;
  const text = events.filter(({ event }) => event === "messages").map(({ data: [chunk] }) => textOf(chunk)).join("");
  assert.equal(text, "one half, and the other");
  const at = events.findIndex(({ event }) => event === "messages");
  const tail = await collect(client.runs.joinStream(thread_id, run_id, { lastEventId: events[at].id, streamMode: MODES }));
  assert.deepEqual(tail, events.slice(at + 1), "everything behind the position, and nothing else");
  const { messages } = await client.runs.join(thread_id, run_id);
  assert.equal(textOf(messages.at(-1)), text);
});

test("stop: cancel by request, and by leaving", async (t) => {
  const { client } = await demo(t);
  const { thread_id } = await client.threads.create();
  const stop = new AbortController();
  let run_id;
  const streaming = collect(client.runs.stream(thread_id, "demo", {
    input: human("slow"), streamMode: MODES, onDisconnect: "cancel", signal: stop.signal, onRunCreated: (run) => (run_id = run.run_id),
  })).catch(() => {});
  await until(() => run_id, "the run");
  stop.abort();
  await streaming;
  await until(async () => (await client.runs.get(thread_id, run_id)).status === "interrupted", "the end of the run");
  const next = await client.runs.create(thread_id, "demo", { input: human("slow") });
  await client.runs.cancel(thread_id, next.run_id, true);
  assert.equal((await client.runs.get(thread_id, next.run_id)).status, "interrupted");
  const runs = await client.runs.list(thread_id, { limit: 5 });
  assert.deepEqual(runs.map((run) => run.run_id), [next.run_id, run_id], "newest first");
  const state = await client.threads.getState(thread_id);
  assert.deepEqual([state.next, state.tasks.map(({ name, error }) => [name, error])], [["agent"], [["agent", "CancelledError()"]]]);
  assert.equal((await client.threads.get(thread_id)).status, "interrupted");
  await client.runs.wait(thread_id, "demo", { input: human("long 2") });
  assert.deepEqual((await client.threads.getState(thread_id)).next, []);
  assert.equal((await client.threads.get(thread_id)).status, "idle");
});

test("a busy thread: reject, interrupt, rollback, enqueue", async (t) => {
  const { client } = await demo(t);
  const { thread_id } = await client.threads.create();
  await client.runs.wait(thread_id, "demo", { input: human("long 2") });
  const first = await client.runs.create(thread_id, "demo", { input: human("slow one") });
  await assert.rejects(client.runs.create(thread_id, "demo", { input: human("x"), multitaskStrategy: "reject" }), /409/);
  const second = await client.runs.create(thread_id, "demo", { input: human("slow two"), multitaskStrategy: "rollback" });
  assert.equal((await client.runs.get(thread_id, first.run_id)).status, "interrupted");
  const third = await client.runs.create(thread_id, "demo", { input: human("long 3"), multitaskStrategy: "enqueue" });
  assert.equal(third.status, "pending");
  await client.runs.cancel(thread_id, second.run_id);
  const { messages } = await client.runs.join(thread_id, third.run_id);
  const said = messages.filter(({ type }) => type === "human").map(textOf);
  assert.deepEqual(said, ["long 2", "slow two", "long 3"], "the run that was rolled back left nothing");
});

test("the list of threads: search, metadata, count, delete", async (t) => {
  const { client } = await demo(t);
  const one = await client.threads.create({ metadata: { user: "ada" } });
  const two = await client.threads.create({ graphId: "demo" });
  await client.runs.wait(two.thread_id, "demo", { input: human("long 2") });
  const list = await client.threads.search({ limit: 10 });
  assert.deepEqual(list.map(({ thread_id }) => thread_id), [two.thread_id, one.thread_id], "newest first");
  assert.equal(list[0].values.messages.length, 2);
  assert.deepEqual((await client.threads.search({ metadata: { graph_id: "demo" } })).map(({ thread_id }) => thread_id), [two.thread_id]);
  const changed = await client.threads.update(one.thread_id, { metadata: { title: "mine" } });
  assert.deepEqual([changed.metadata.user, changed.metadata.title], ["ada", "mine"]);
  await client.threads.delete(one.thread_id);
  assert.equal(await client.threads.count(), 1);
  await assert.rejects(client.threads.get(one.thread_id), /404/);
});

test("a failed run and bad requests are errors of the client", async (t) => {
  const { client } = await demo(t);
  const { thread_id } = await client.threads.create();
  const events = await collect(client.runs.stream(thread_id, "demo", { input: human("fail"), streamMode: MODES }));
  assert.match(events.at(-1).data.message, /the demo agent failed/);
  await assert.rejects(client.runs.wait(thread_id, "demo", { input: human("fail") }), /the demo agent failed/);
  await assert.rejects(client.runs.create(thread_id, "nobody", { input: human("x") }), /422.*nobody/s);
  await assert.rejects(client.runs.create("unknown", "demo", { input: human("x") }), /404/);
  await assert.rejects(client.runs.create(thread_id, "demo", { input: human("x"), interruptBefore: ["agent"] }), /interrupt_before/);
});

test("branches: an edited message and a regenerated answer", async (t) => {
  const { client } = await demo(t);
  const { thread_id } = await client.threads.create();
  await client.runs.wait(thread_id, "demo", { input: human("long 2") });
  const history = await client.threads.getHistory(thread_id);
  const [answered, asked, before] = history;
  const edited = await client.runs.wait(thread_id, "demo", { input: human("long 3"), checkpoint: before.checkpoint });
  assert.deepEqual(edited.messages.map(textOf).filter((text) => text.startsWith("long")), ["long 3"]);
  const again = await client.runs.wait(thread_id, "demo", { input: null, checkpoint: asked.checkpoint }).catch((error) => error);
  assert.ok(again.messages || /404|422/.test(again.message), String(again));
  const all = await client.threads.getHistory(thread_id, { limit: 50 });
  const children = all.filter(({ parent_checkpoint }) => parent_checkpoint?.checkpoint_id === before.checkpoint.checkpoint_id);
  assert.equal(children.length, 2, "two variants of the message");
  assert.ok(all.some(({ checkpoint_id }) => checkpoint_id === answered.checkpoint_id), "the first one stays");
});

test("assistants, info, stateless runs", async (t) => {
  const { client } = await demo(t);
  const [assistant] = await client.assistants.search();
  assert.equal(assistant.assistant_id, "demo");
  assert.deepEqual(await client.assistants.get("demo"), assistant);
  assert.ok((await client.assistants.getSchemas("demo")).input_schema);
  assert.equal((await client.assistants.getGraph("demo")).nodes.length, 3);
  const { messages } = await client.runs.wait(null, "demo", { input: human("long 2") });
  assert.equal(messages.length, 2);
  await until(async () => (await client.threads.count()) === 0, "no thread stays");
});

test("an ADK agent: chat, tools and state", async (t) => {
  const adk = await startServer();
  t.after(adk.close);
  const { client } = await demo(t, ["--adk", adk.url, "--app", "demo"]);
  const { thread_id } = await client.threads.create();
  const name = (await client.assistants.search())[0].assistant_id;
  const events = await collect(client.runs.stream(thread_id, name, { input: human("weather in Paris"), streamMode: MODES }));
  const { messages } = valuesOf(events).at(-1);
  assert.equal(messages[0].type, "human");
  assert.ok(messages.some(({ type, content }) => type === "ai" && content.length > 0), JSON.stringify(messages));
  const streamed = new Set(events.filter(({ event }) => event === "messages").map(({ data: [chunk] }) => chunk.id));
  const kept = new Set(messages.slice(1).map(({ id }) => id));
  assert.deepEqual([...streamed].filter((id) => !kept.has(id)), [], "no message is streamed under another id");
  await client.runs.wait(thread_id, name, { input: human("and again") });
  assert.ok((await client.threads.getState(thread_id)).values.messages.length > messages.length);
});

test("the Python client: chat, join, interrupt, threads", async (t) => {
  const { url } = await serve(t);
  const script = path.join(path.dirname(fileURLToPath(import.meta.url)), "client.py");
  const { stdout } = await promisify(execFile)(python, [script, `${url}/langgraph`], { timeout: 180_000 });
  assert.match(stdout, /all good/);
});
