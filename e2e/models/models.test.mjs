// The same scripted servers behind the official clients of OpenAI and Anthropic and behind the gateway: both must see the
// same content, and the gateway's next request must have all that the model needs back.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { HttpAgent } from "@ag-ui/client";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

import { ANTHROPIC, RESPONSES, serve } from "./server.mjs";

process.env.SUPPRESS_TRANSFORMATION_WARNINGS = "1";

const here = path.dirname(fileURLToPath(import.meta.url));
const root = process.env.AGENTWIRE_ROOT ?? path.resolve(here, "../..");
const target = process.env.AGENTWIRE_TARGET ?? path.resolve(root, process.env.CARGO_TARGET_DIR ?? "target");
const binary = path.resolve(process.env.AGENTWIRE ?? path.join(target, "debug", "agentwire"));
/** Timeout for any wait; generous, for busy machines. */
const PATIENCE_MS = 180_000;

const KINDS = { anthropic: ANTHROPIC, "openai-responses": RESPONSES };
const agentOf = (kind, scene) => `${kind}-${Object.keys(KINDS[kind]).indexOf(scene)}`;
const TOOLS = ["get_weather", "get_time"].map((name) => ({ name, description: name, parameters: { type: "object", properties: {} } }));

let server;
let gateway;
let folder;
before(async () => {
  server = await serve();
  folder = fs.mkdtempSync(path.join(os.tmpdir(), "agentwire-models-"));
  const agents = Object.entries(KINDS).flatMap(([kind, scenes]) => Object.keys(scenes).map((scene) => `[agents.${agentOf(kind, scene)}]
threads = "${kind}"
upstream = { kind = "${kind}", url = "${server.url}/v1", model = "${scene}", system = "Be brief.", api_key_env = "E2E_KEY", options = { service_tier = "auto" } }`));
  fs.writeFileSync(path.join(folder, "agentwire.toml"), agents.join("\n"));
  const env = { ...process.env, NO_COLOR: "1", E2E_KEY: "sk-e2e" };
  const child = spawn(binary, ["serve", "--listen", "127.0.0.1:0", "--store", "memory:"], { cwd: folder, env, stdio: ["ignore", "ignore", "pipe"] });
  gateway = { child, log: "" };
  child.stderr.on("data", (bytes) => (gateway.log += bytes));
  for (const begun = Date.now(); !gateway.url; await new Promise((wake) => setTimeout(wake, 20))) {
    gateway.url = gateway.log.match(/listening\s+(http:\/\/\S+)\s/)?.[1];
    assert.ok(child.exitCode === null && Date.now() - begun < PATIENCE_MS, `the gateway did not start:\n${gateway.log}`);
  }
});
after(async () => {
  gateway?.child.kill("SIGKILL");
  await server?.close();
  fs.rmSync(folder, { recursive: true, force: true });
});

const openai = () => new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "sk-e2e", maxRetries: 0 });
const anthropic = () => new Anthropic({ baseURL: server.url, apiKey: "sk-e2e", maxRetries: 0 });

/** The final message of the official client, in the terms of the comparison. */
const official = {
  async anthropic(model) {
    const stream = anthropic().messages.stream({ model, max_tokens: 100, messages: [{ role: "user", content: "Hello" }] });
    const final = await stream.finalMessage();
    const of = (type) => final.content.filter((block) => block.type === type);
    const { usage } = final;
    return {
      final,
      text: of("text").map((block) => block.text).join(""),
      thoughts: of("thinking").map((block) => block.thinking).join(""),
      calls: [...of("tool_use"), ...of("server_tool_use")].map((block) => [block.id, block.name, block.input]),
      sources: of("text").flatMap((block) => block.citations ?? []).map((citation) => citation.url),
      total: usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens + usage.output_tokens,
    };
  },
  async "openai-responses"(model) {
    const final = await openai().responses.stream({ model, input: "Hello" }).finalResponse();
    const of = (type) => final.output.filter((item) => item.type === type);
    const parts = of("message").flatMap((item) => item.content);
    return {
      final,
      text: parts.map((part) => part.text ?? part.refusal).join(""),
      thoughts: of("reasoning").flatMap((item) => item.summary).map((part) => part.text).join(""),
      calls: [...of("function_call").map((item) => [item.call_id, item.name, JSON.parse(item.arguments)]), ...of("web_search_call").map((item) => [item.id, "web_search", { type: item.action.type, query: item.action.query }]), ...of("code_interpreter_call").map((item) => [item.id, "code_interpreter", { code: item.code }])],
      sources: parts.flatMap((part) => part.annotations ?? []).map((annotation) => annotation.url),
      total: final.usage.total_tokens,
    };
  },
};

let runs = 0;
/** The result of the official AG-UI client from the gateway. */
async function ours(kind, model, { agent, resume } = {}) {
  runs += 1;
  agent ??= new HttpAgent({ url: `${gateway.url}/agents/${agentOf(kind, model)}`, threadId: `t${runs}`, initialMessages: [{ id: `u${runs}`, role: "user", content: "Hello" }] });
  const known = agent.messages.length;
  const events = [];
  let failure;
  try {
    await agent.runAgent({ runId: `r${runs}`, tools: TOOLS, resume }, { onEvent: ({ event }) => void events.push(event) });
  } catch (error) {
    failure = error;
    if (events.length > 0 && events.at(-1).type !== "RUN_ERROR") throw error;
  }
  const fresh = agent.messages.slice(known);
  const assistant = fresh.filter((message) => message.role === "assistant");
  return {
    agent,
    events,
    failure,
    last: events.at(-1),
    text: assistant.map((message) => message.content ?? "").join(""),
    thoughts: fresh.filter((message) => message.role === "reasoning").map((message) => message.content).join(""),
    calls: assistant.flatMap((message) => message.toolCalls ?? []).map((call) => [call.id, call.function.name, JSON.parse(call.function.arguments)]),
    sources: fresh.filter((message) => message.activityType === "agentwire.source").map((message) => message.content.url),
  };
}

const FAIL = ["overloaded", "overloaded in the middle", "cut off", "slow down", "wrong key", "failed", "error event"];

for (const [kind, scenes] of Object.entries(KINDS)) {
  for (const scene of Object.keys(scenes).filter((scene) => !FAIL.includes(scene) && scene !== "approval")) {
    test(`${kind}, ${scene}: the same content through the official client and through the gateway`, async () => {
      const wanted = await official[kind](scene);
      const { events, last, ...found } = await ours(kind, scene);
      assert.equal(last.type, "RUN_FINISHED", JSON.stringify(last));
      for (const member of ["text", "thoughts", "calls", "sources"]) assert.deepEqual(found[member], wanted[member], member);
      assert.equal(last.usage[0].totalTokens, wanted.total);
      const declared = wanted.calls.filter(([, name]) => name.startsWith("get_")).map(([id]) => id);
      assert.deepEqual(last.outcome?.pendingToolCallIds ?? [], declared);
      const reason = wanted.final.stop_reason ?? wanted.final.incomplete_details?.reason;
      assert.equal(events.find((event) => event.name === "agentwire.finish_reason")?.value.reason, reason);
    });
  }
}

test("requests have the route, the headers and the members of the official clients", async () => {
  for (const kind of Object.keys(KINDS)) {
    server.seen.length = 0;
    await official[kind]("plain");
    await ours(kind, "plain");
    const [theirs, sent] = server.seen;
    assert.equal(sent.url, theirs.url.replace(/\?.*/, ""));
    for (const name of ["authorization", "x-api-key", "anthropic-version", "content-type"]) assert.equal(sent.headers[name], theirs.headers[name], name);
    assert.equal(sent.body.stream, true);
    assert.equal(sent.body.service_tier, "auto");
    assert.equal(sent.body.system ?? sent.body.instructions, "Be brief.");
    assert.deepEqual(sent.body.tools.map((tool) => tool.name), ["get_weather", "get_time"]);
  }
});

/** Members that are set, at any depth: the official client adds `null`s. */
const set = (value) => JSON.parse(JSON.stringify(value, (_, inner) => (inner === null ? undefined : inner)));

test("anthropic: signed thinking, the call and its result are in the next request as the client received them", async () => {
  const { final } = await official.anthropic("thinking and a call");
  const { agent } = await ours("anthropic", "thinking and a call");
  agent.addMessage({ id: "result", role: "tool", toolCallId: "toolu_9", content: "sunny" });
  server.seen.length = 0;
  const second = await ours("anthropic", "thinking and a call", { agent });
  assert.equal(second.text, "It is sunny.");
  const [, assistant, user] = server.seen[0].body.messages;
  const plain = (block) => (({ caller, ...rest }) => rest)(block);
  assert.deepEqual(assistant.content, set(final.content).map(plain));
  assert.deepEqual(user.content, [{ type: "tool_result", tool_use_id: "toolu_9", content: [{ type: "text", text: "sunny" }] }]);
  agent.addMessage({ id: "more", role: "user", content: "And tomorrow?" });
  server.seen.length = 0;
  await ours("anthropic", "plain", { agent: Object.assign(agent, { url: `${gateway.url}/agents/${agentOf("anthropic", "plain")}` }) });
  const turns = server.seen[0].body.messages;
  assert.deepEqual(turns.map((turn) => turn.role), ["user", "assistant", "user", "assistant", "user"]);
  assert.equal(turns[3].content[0].signature, "c2Vjb25k");
});

test("anthropic: a search and its encrypted result are in the next request", async () => {
  const { agent } = await ours("anthropic", "web search");
  agent.addMessage({ id: "more", role: "user", content: "Sure?" });
  server.seen.length = 0;
  await ours("anthropic", "web search", { agent });
  const blocks = server.seen[0].body.messages[1].content;
  assert.deepEqual(blocks.map((block) => block.type), ["text", "server_tool_use", "web_search_tool_result", "text"]);
  assert.equal(blocks[2].content[0].encrypted_content, "ZW5jcnlwdGVk");
});

test("openai-responses: encrypted reasoning, the call and its output are in the next request", async () => {
  const { final } = await official["openai-responses"]("reasoning and a call");
  const { agent } = await ours("openai-responses", "reasoning and a call");
  agent.addMessage({ id: "result", role: "tool", toolCallId: "call_9", content: "sunny" });
  server.seen.length = 0;
  const second = await ours("openai-responses", "reasoning and a call", { agent });
  assert.equal(second.text, "It is sunny.");
  const { body } = server.seen[0];
  assert.equal(body.store, false);
  assert.deepEqual(body.include, ["reasoning.encrypted_content"]);
  const [, reasoning, call, output] = body.input;
  assert.deepEqual(reasoning, final.output[0]);
  assert.deepEqual([call.type, call.call_id, call.arguments], ["function_call", "call_9", '{"city":"Oslo"}']);
  assert.deepEqual(output, { type: "function_call_output", call_id: "call_9", output: "sunny" });
});

test("openai-responses: a request for approval is an interrupt, and its answer lets the run go on", async () => {
  for (const approved of [false, true]) {
    const { agent, last } = await ours("openai-responses", "approval");
    const [interrupt] = last.outcome.interrupts;
    assert.deepEqual([interrupt.id, interrupt.toolCallId], ["mcpr_1", "mcpr_1"]);
    server.seen.length = 0;
    const second = await ours("openai-responses", "approval", { agent, resume: [{ interruptId: interrupt.id, status: "resolved", payload: { approved } }] });
    const kinds = server.seen[0].body.input.map((item) => item.type ?? item.role);
    assert.deepEqual(kinds, ["user", "mcp_approval_request", "mcp_approval_response"]);
    assert.equal(server.seen[0].body.input[2].approve, approved);
    assert.equal(second.text, approved ? "Five." : "");
  }
});

test("errors of the models are errors of the run, and their secrets stay in the log", async () => {
  const code = async (kind, scene) => {
    await assert.rejects(official[kind](scene), undefined, `${kind} ${scene}`);
    const { last, failure } = await ours(kind, scene);
    assert.ok(!JSON.stringify([last, String(failure)]).includes("secret"));
    return last?.code ?? failure.code ?? JSON.parse(failure.message.match(/\{.*\}/s)?.[0] ?? "{}").error?.code;
  };
  for (const [kind, scene, wanted] of [
    ["anthropic", "overloaded in the middle", "overloaded_error"],
    ["anthropic", "cut off", "UPSTREAM_TRUNCATED"],
    ["openai-responses", "error event", "rate_limit_exceeded"],
  ]) assert.equal(await code(kind, scene), wanted, `${kind} ${scene}`);
  // The client of OpenAI returns a failed or incomplete response without throwing.
  assert.equal((await ours("openai-responses", "failed")).last.code, "server_error");
  assert.equal((await ours("openai-responses", "cut off")).last.code, "UPSTREAM_TRUNCATED");
  for (const kind of Object.keys(KINDS)) {
    for (const scene of ["slow down", "wrong key"]) {
      await assert.rejects(official[kind](scene));
      const { last, failure } = await ours(kind, scene);
      assert.ok(last?.type === "RUN_ERROR" || failure, scene);
      assert.ok(!JSON.stringify([last, String(failure)]).includes("secret"), scene);
    }
  }
  const { last, failure } = await ours("anthropic", "overloaded");
  assert.ok(last?.type === "RUN_ERROR" || failure);
});
