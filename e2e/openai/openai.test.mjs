// The same scripted server behind the official `openai` client and behind the gateway: both must see the same content.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { HttpAgent } from "@ag-ui/client";
import OpenAI from "openai";

import { SCENES, start } from "./server.mjs";

process.env.SUPPRESS_TRANSFORMATION_WARNINGS = "1";

const here = path.dirname(fileURLToPath(import.meta.url));
const root = process.env.AGENTWIRE_ROOT ?? path.resolve(here, "../..");
const target = process.env.AGENTWIRE_TARGET ?? path.resolve(root, process.env.CARGO_TARGET_DIR ?? "target");
const binary = path.resolve(process.env.AGENTWIRE ?? path.join(target, "debug", "agentwire"));
/** Timeout for any wait; generous, for busy machines. */
const PATIENCE_MS = 180_000;

const NAMES = Object.keys(SCENES);
const agentOf = (scene) => `a${NAMES.indexOf(scene)}`;
const TOOLS = ["get_weather", "get_time"].map((name) => ({ name, description: name, parameters: { type: "object" } }));

let server;
let gateway;
let folder;
before(async () => {
  server = await start();
  folder = fs.mkdtempSync(path.join(os.tmpdir(), "agentwire-openai-"));
  // The agents share their threads: one conversation uses several models.
  const agents = NAMES.map((scene) => `[agents.${agentOf(scene)}]
threads = "models"
upstream = { kind = "openai", url = "${server.url}", model = "${scene}", system = "Be brief.", api_key_env = "E2E_KEY", headers = { x-team = "blue" }, options = { temperature = 0.25, stop = ["END"], seed = 7 } }`);
  fs.writeFileSync(path.join(folder, "agentwire.toml"), agents.join("\n"));
  const env = { ...process.env, NO_COLOR: "1", E2E_KEY: "sk-e2e" };
  const child = spawn(binary, ["serve", "--listen", "127.0.0.1:0", "--store", "memory:"], { cwd: folder, env, stdio: ["ignore", "ignore", "pipe"] });
  gateway = { child, log: "" };
  child.stderr.on("data", (bytes) => (gateway.log += bytes));
  [, gateway.url] = await logged(/listening\s+(http:\/\/\S+)\s/);
});
after(async () => {
  gateway?.child.kill("SIGKILL");
  await server?.close();
  fs.rmSync(folder, { recursive: true, force: true });
});

/** Waits for a line in the log, which arrives through a separate pipe, later than the response to a request. */
async function logged(pattern) {
  for (const begun = Date.now(); ; await new Promise((wake) => setTimeout(wake, 20))) {
    const found = gateway.log.match(pattern);
    if (found) return found;
    assert.ok(gateway.child.exitCode === null && Date.now() - begun < PATIENCE_MS, `the log never said ${pattern}:\n${gateway.log}`);
  }
}

/** Scenes that the client's helper rejects and its plain stream accepts: servers that omit required fields. */
const LAX = ["no role", "no finish reason"];

/** The official client's result for a scene. */
async function official(model) {
  const client = new OpenAI({ baseURL: server.url, apiKey: "sk-e2e", maxRetries: 0 });
  const request = { model, messages: [{ role: "user", content: "Hello" }], stream_options: { include_usage: true } };
  if (LAX.includes(model)) {
    let text = "";
    for await (const chunk of await client.chat.completions.create({ ...request, stream: true })) text += chunk.choices[0]?.delta.content ?? "";
    return { text, calls: [] };
  }
  const stream = client.chat.completions.stream(request);
  const { choices, usage } = await stream.finalChatCompletion();
  const [{ message, finish_reason: finish }] = choices;
  const calls = (message.tool_calls ?? []).map((call) => [call.id, call.function.name, JSON.parse(call.function.arguments)]);
  return { text: message.content ?? "", calls, usage: usage?.total_tokens, finish };
}

let runs = 0;
/** The official AG-UI client's result from the gateway for the same scene. */
async function ours(model, messages = [{ id: "u1", role: "user", content: "Hello" }], threadId = `t${runs}`) {
  runs += 1;
  const agent = new HttpAgent({ url: `${gateway.url}/agents/${agentOf(model)}`, threadId, initialMessages: messages });
  const events = [];
  try {
    await agent.runAgent({ runId: `r${runs}`, tools: TOOLS }, { onEvent: ({ event }) => void events.push(event) });
  } catch (error) {
    if (events.at(-1)?.type !== "RUN_ERROR") throw error;
  }
  const assistant = agent.messages.filter((message) => message.role === "assistant");
  const calls = assistant.flatMap((message) => message.toolCalls ?? []).map((call) => [call.id, call.function.name, JSON.parse(call.function.arguments)]);
  const text = assistant.map((message) => message.content ?? "").join("");
  return { agent, events, last: events.at(-1), text, calls };
}

const FAIL = ["cut off", "error in the middle", "slow down", "wrong key"];

for (const scene of NAMES.filter((scene) => !FAIL.includes(scene))) {
  test(`${scene}: the same content through the official client and through the gateway`, async () => {
    const [wanted, { last, text, calls, events }] = [await official(scene), await ours(scene)];
    assert.equal(last.type, "RUN_FINISHED", JSON.stringify(last));
    assert.equal(text, wanted.text);
    assert.deepEqual(calls, wanted.calls);
    if (wanted.usage) assert.ok(JSON.stringify(last).includes(`:${wanted.usage}`), JSON.stringify(last));
    if (scene.startsWith("reasoning")) {
      const thought = events.filter((event) => event.type === "REASONING_MESSAGE_CONTENT").map((event) => event.delta).join("");
      assert.equal(thought, SCENES[scene].map((frame) => frame.choices?.[0]?.delta.reasoning_content ?? frame.choices?.[0]?.delta.reasoning ?? "").join(""));
    }
  });
}

test("requests equal those of the official client, with the configured options", async () => {
  server.seen.length = 0;
  await official("plain");
  await ours("plain");
  const [theirs, sent] = server.seen;
  assert.equal(sent.url, theirs.url);
  assert.equal(sent.headers.authorization, theirs.headers.authorization);
  assert.equal(sent.headers["content-type"], theirs.headers["content-type"]);
  assert.equal(sent.headers["x-team"], "blue");
  for (const member of ["model", "stream", "stream_options"]) assert.deepEqual(sent.body[member], theirs.body[member], member);
  assert.deepEqual(sent.body.messages, [{ role: "system", content: "Be brief." }, ...theirs.body.messages]);
  assert.deepEqual([sent.body.temperature, sent.body.stop, sent.body.seed], [0.25, ["END"], 7]);
  assert.deepEqual(sent.body.tools.map((tool) => [tool.type, tool.function.name]), TOOLS.map((tool) => ["function", tool.name]));
});

test("tool results are sent back in the order and shape that the API requires", async () => {
  const { agent } = await ours("two calls, interleaved");
  for (const [id, content] of [["call_2", "noon"], ["call_1", "fine"]]) agent.messages.push({ id: `r-${id}`, role: "tool", toolCallId: id, content });
  server.seen.length = 0;
  await ours("plain", agent.messages, agent.threadId);
  const [{ body }] = server.seen;
  assert.deepEqual(body.messages.slice(2), [
    { role: "assistant", content: null, tool_calls: [
      { id: "call_1", type: "function", function: { name: "get_weather", arguments: '{"city":"Oslo"}' } },
      { id: "call_2", type: "function", function: { name: "get_time", arguments: '{"zone":"CET"}' } },
    ] },
    { role: "tool", tool_call_id: "call_1", content: "fine" },
    { role: "tool", tool_call_id: "call_2", content: "noon" },
  ]);
});

test("a truncated response is incomplete on both sides", async () => {
  await assert.rejects(official("cut off"));
  const { last, text } = await ours("cut off");
  assert.deepEqual([last.type, last.code], ["RUN_ERROR", "UPSTREAM_TRUNCATED"]);
  assert.equal(text, "And then the line", "the text so far is kept");
});

test("an error in the middle ends both", async () => {
  await assert.rejects(official("error in the middle"));
  const { last, text } = await ours("error in the middle");
  assert.deepEqual([last.type, last.code, last.message], ["RUN_ERROR", "oops", "The server had an error"]);
  assert.equal(text, "I was about to");
});

test("error responses: the status is reported, the server's message is in the log only", async () => {
  await assert.rejects(official("slow down"), { status: 429 });
  const slow = await ours("slow down");
  assert.deepEqual([slow.last.type, slow.last.code], ["RUN_ERROR", "UPSTREAM_STATUS"]);
  assert.match(slow.last.message, /429 .*try again in 11 s/);
  assert.equal(slow.last.metadata.retryAfter, 11);
  await assert.rejects(official("wrong key"), { status: 401 });
  const wrong = await ours("wrong key");
  assert.match(wrong.last.message, /401/);
  assert.ok(!JSON.stringify([slow.events, wrong.events]).includes("secret"));
  await logged(/sk-secret/);
  await logged(/org-secret/);
});
