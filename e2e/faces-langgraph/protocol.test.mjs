// Protocol v2: `threads.stream` of `@langchain/langgraph-sdk` in Node, `useStream` of `@langchain/react` in Chromium, and the
// same calls to a real `langgraph dev`.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import test from "node:test";
import { Client } from "@langchain/langgraph-sdk";
import { start } from "../langgraph/server.mjs";
import { chat, isOnce } from "./chat.mjs";
import { agent as agUiAgent, agentInHalves, collect, serve, textOf, until } from "./support.mjs";

const human = (content) => ({ messages: [{ type: "human", content }] });

/** A thread of the gateway's agent. */
async function opened(t, { args = [], assistantId = "demo", threadId = randomUUID(), url } = {}) {
  const base = url ?? (await serve(t, args)).url;
  const client = new Client({ apiUrl: `${base}/langgraph`, apiKey: null, callerOptions: { maxRetries: 0 } });
  const thread = client.threads.stream(threadId, { assistantId });
  t.after(() => thread.close());
  return { url: base, client, thread, threadId };
}

test("protocol v2: chat, streaming, a second turn and the state", async (t) => {
  const { client, thread, threadId } = await opened(t);
  const messages = thread.messages;
  const { run_id } = await thread.run.start({ input: human("hello") });
  const [first] = await collectUntil(messages, 1);
  const pieces = await collect(first.text);
  assert.ok(pieces.length > 3, "words arrive one by one");
  const output = await thread.output;
  assert.equal(textOf(output.messages.at(-1)), pieces.join(""));
  assert.equal(first.id, output.messages.at(-1).id, "one id while streaming and afterwards");
  await until(async () => (await client.runs.get(threadId, run_id)).status === "success", "the end of the run");
  const again = client.threads.stream(threadId, { assistantId: "demo" });
  t.after(() => again.close());
  await again.run.start({ input: human("long 3") });
  await until(async () => (await client.threads.getState(threadId)).values.messages.length === 4, "the second turn");
  const { next, values } = await client.threads.getState(threadId);
  assert.deepEqual([next, values.messages.map(({ type }) => type)], [[], ["human", "ai", "human", "ai"]]);
});

/** The first items of a stream. */
async function collectUntil(stream, count) {
  const all = [];
  for await (const item of stream) if (all.push(item) === count) break;
  return all;
}

test("protocol v2: tool calls have their input and their output", async (t) => {
  const { thread } = await opened(t);
  const calls = thread.toolCalls;
  await thread.run.start({ input: human("tools") });
  const made = await collect(calls);
  const weather = made.find(({ name }) => name === "weather");
  assert.equal(typeof weather.input, "object");
  assert.match(JSON.stringify(await weather.output), /7 degrees/);
  const { messages } = await thread.output;
  // The client repeats a call when it ends.
  const results = messages.filter((message) => message.getType() === "tool").map(({ tool_call_id }) => tool_call_id);
  assert.deepEqual(results.toSorted(), [...new Set(made.map(({ callId }) => callId))].sort());
  assert.ok(results.length > 1);
});

test("protocol v2: a question is answered by its id", async (t) => {
  const { client, thread, threadId } = await opened(t);
  await thread.run.start({ input: human("approve") });
  await until(() => thread.interrupted, "the question");
  const [{ interruptId, payload, namespace }] = thread.interrupts;
  assert.equal(typeof payload, "object");
  await assert.rejects(thread.input.respond({ interrupt_id: "other", response: 1, namespace }), /no_such_interrupt|Unknown/);
  await thread.input.respond({ interrupt_id: interruptId, response: { approved: true }, namespace });
  await until(async () => (await client.threads.get(threadId)).status === "idle", "the end of the run");
});

test("protocol v2: errors and unknown assistants", async (t) => {
  const { url, thread } = await opened(t);
  await assert.rejects(new Client({ apiUrl: `${url}/langgraph`, apiKey: null }).threads.stream(randomUUID(), { assistantId: "nobody" }).run.start({ input: human("x") }), /Invalid assistant/);
  const failed = thread.subscribe({ channels: ["lifecycle"] });
  await thread.run.start({ input: human("fail") });
  for await (const { params } of await failed) {
    if (params.data.event !== "failed") continue;
    assert.match(params.data.error, /the demo agent failed/);
    break;
  }
});

test("protocol v2: custom events by name", async (t) => {
  const upstream = await agUiAgent(t, (send, { threadId, runId }, response) => {
    send({ type: "RUN_STARTED", threadId, runId });
    send({ type: "CUSTOM", name: "progress", value: { done: 1 } });
    send({ type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" });
    send({ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "done" });
    send({ type: "TEXT_MESSAGE_END", messageId: "m" });
    send({ type: "RUN_FINISHED", threadId, runId });
    response.end();
  });
  const { thread } = await opened(t, { args: ["--ag-ui", upstream], assistantId: "default" });
  const progress = thread.extensions.progress;
  await thread.run.start({ input: human("go") });
  assert.deepEqual(await progress, { done: 1 });
});

/** The shape of the events of a thread: method, members of the data. */
async function shapes(url, assistantId, input) {
  const threadId = randomUUID();
  const post = async (rest, body) => fetch(`${url}/threads/${threadId}/${rest}`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  const started = await (await post("commands", { id: 1, method: "run.start", params: { assistant_id: assistantId, input: human(input) } })).json();
  const stream = await post("stream/events", { channels: ["values", "messages", "lifecycle", "input"] });
  const found = new Map([["response", Object.keys(started).sort()], ["content-type", stream.headers.get("content-type").split(";")[0]]]);
  let text = "";
  for await (const bytes of stream.body.pipeThrough(new TextDecoderStream())) {
    text += bytes;
    if (/"event":"(completed|failed|interrupted)"/.test(text)) break;
  }
  for (const frame of text.split(/\r?\n\r?\n/)) {
    const data = /^data: (.*)$/m.exec(frame)?.[1];
    if (!data) continue;
    const event = JSON.parse(data);
    assert.equal(/^event: (.*)$/m.exec(frame)[1].trim(), event.method);
    assert.equal(/^id: (.*)$/m.exec(frame)[1].trim(), String(event.seq));
    const name = event.params.data.event ?? "";
    found.set("envelope", Object.keys(event).sort());
    const members = Object.keys(event.params.data).filter((key) => !["usage", "metadata"].includes(key));
    found.set(`${event.method} ${name}`, event.method === "values" ? "values" : members.sort());
  }
  const bad = await (await post("commands", { id: 2, method: "bogus" })).json();
  found.set("unknown command", [bad.type, bad.error, bad.id]);
  const noChannels = await post("stream/events", {});
  found.set("no channels", noChannels.status);
  const unknown = await (await post("commands", { id: 3, method: "input.respond", params: { interrupt_id: "x", response: 1 } })).json();
  found.set("unknown interrupt", [unknown.type, unknown.error]);
  return Object.fromEntries([...found].sort());
}

test("protocol v2: events have the members of a real LangGraph Server", async (t) => {
  const server = await start();
  t.after(server.stop);
  const { url } = await serve(t);
  const [real, own] = [await shapes(server.url, "plain", "hello"), await shapes(`${url}/langgraph`, "demo", "hello")];
  assert.deepEqual(own, real);
});

test("protocol v2 page: chat with streaming and a second turn", async (t) => {
  const { page, say, shows, idle, texts } = await chat(t, { page: "react" });
  await say("hello");
  await shows(/I am the demo agent/);
  await idle();
  await say("think and use tools");
  await shows(/weather/);
  await shows(/7 degrees/);
  await idle();
  await isOnce(page);
  assert.deepEqual(await texts("human"), ["hello", "think and use tools"]);
  assert.ok((await page.locator("#tools li").count()) > 0, "tool calls");
  assert.deepEqual(page.problems, []);
});

test("protocol v2 page: a question, after a reload too", async (t) => {
  const { page, say, idle } = await chat(t, { page: "react" });
  await say("approve");
  await page.locator(".interrupt").waitFor();
  await page.reload();
  await page.locator(".interrupt").waitFor();
  await page.locator("#approve").click();
  await page.locator(".interrupt").waitFor({ state: "detached" });
  await idle();
  await isOnce(page);
});

test("protocol v2 page: a reload in mid-run goes on", async (t) => {
  const { upstream, half, rest } = await agentInHalves(t);
  const { page, say, shows, idle } = await chat(t, { page: "react", query: { agent: "default" }, args: ["--ag-ui", upstream] });
  await say("go");
  await half.opened;
  await shows(/one half/);
  await page.reload();
  await shows(/one half/);
  rest.open();
  await shows(/one half, and the other/);
  await idle();
  await isOnce(page);
});

test("protocol v2 page: stop and a failed run", async (t) => {
  const { page, url, say, shows } = await chat(t, { page: "react" });
  await say("slow");
  await shows(/This/);
  await page.locator("#stop").click();
  const thread = await page.evaluate(() => sessionStorage.getItem("thread"));
  await until(async () => {
    const [run] = await (await fetch(`${url}/langgraph/threads/${thread}/runs`)).json();
    return run.status === "interrupted";
  }, "the end of the run");
  await say("fail");
  await until(async () => /the demo agent failed/.test(await page.locator("#error").innerText().catch(() => "")), "the error");
});
