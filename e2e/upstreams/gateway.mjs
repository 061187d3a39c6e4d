// The real binary in front of a real agent server, and a user of each of the real clients: `@ag-ui/client`, the
// HAI client port, and `ai` with its own transport.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import fs from "node:fs";
import { createRequire } from "node:module";
import os from "node:os";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

import { freePort } from "../../examples/support/ports.mjs";
import { chatWith, client as aiClient } from "../ai-sdk/support.mjs";
import { HaiClient, framesOf } from "../hai/client.mjs";

// The client warns about every tolerated deviation.
process.env.SUPPRESS_TRANSFORMATION_WARNINGS = "1";

const here = path.dirname(fileURLToPath(import.meta.url));
const { HttpAgent } = await import(pathToFileURL(createRequire(path.join(here, "../adk/package.json")).resolve("@ag-ui/client")));

const root = process.env.AGENTWIRE_ROOT ?? path.resolve(here, "../..");
const target = process.env.AGENTWIRE_TARGET ?? path.resolve(root, process.env.CARGO_TARGET_DIR ?? "target");
export const binary = path.resolve(process.env.AGENTWIRE ?? path.join(target, "debug", "agentwire"));

/** Timeout for any wait; generous, for busy machines. */
const PATIENCE_MS = 180_000;

/** Runs the binary; returns its exit code and output. */
export function command(...args) {
  const { status, stdout, stderr } = spawnSync(binary, args, { encoding: "utf8", env: { ...process.env, NO_COLOR: "1" } });
  return { code: status, stdout, stderr };
}

export const sleep = (ms) => new Promise((wake) => setTimeout(wake, ms));

/** Waits until `look` returns a value. */
export async function until(look, what) {
  for (const begun = Date.now(); Date.now() - begun < PATIENCE_MS; await sleep(20)) {
    const found = await look();
    if (found) return found;
  }
  throw new Error(`timed out waiting for ${what}`);
}

/** The gateway as a process, with a store that survives it. */
export class Gateway {
  static async start(...args) {
    const gateway = new Gateway();
    gateway.folder = fs.mkdtempSync(path.join(os.tmpdir(), "agentwire-upstreams-"));
    gateway.args = args;
    // It restarts at the same address after a crash, so no other process may get its port in between.
    await gateway.begin(`127.0.0.1:${await freePort()}`);
    return gateway;
  }

  /**
   * A gateway with one agent per entry: name and upstream, as TOML. The agents share their threads, so that the routes at
   * `/`, which are those of the first agent, serve the runs of all.
   */
  static async configured(agents, more = "") {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), "agentwire-config-"));
    const file = path.join(folder, "agentwire.toml");
    const tables = Object.entries(agents).map(([name, upstream]) => `[agents.${name}]\nthreads = "shared"\nupstream = ${upstream}\n`);
    fs.writeFileSync(file, `${more}\n${tables.join("\n")}`);
    const gateway = await Gateway.start("--config", file);
    gateway.config = folder;
    return gateway;
  }

  async begin(address) {
    const store = `sqlite:${path.join(this.folder, "store.db")}`;
    const args = ["serve", ...this.args, "--store", store, "--listen", address, "--log", "info"];
    this.child = spawn(binary, args, { env: { ...process.env, NO_COLOR: "1" }, stdio: ["ignore", "ignore", "pipe"] });
    this.log = "";
    this.ended = new Promise((resolve) => this.child.on("close", resolve));
    this.child.stderr.on("data", (bytes) => (this.log += bytes));
    const url = await until(() => {
      if (this.child.exitCode !== null) throw new Error(`the gateway ended:\n${this.log}`);
      return this.log.match(/listening\s+(http:\/\/\S+)\s/)?.[1];
    }, "the gateway");
    this.url = url;
    await until(() => fetch(`${url}/readyz`).then((answer) => answer.ok, () => false), "the gateway to be ready");
  }

  /** Kills the process and restarts it at the same address. */
  async crash() {
    this.child.kill("SIGKILL");
    await this.ended;
    await this.begin(this.url.slice("http://".length));
  }

  async stop() {
    this.child.kill("SIGKILL");
    await this.ended;
    for (const folder of [this.folder, this.config].filter(Boolean)) fs.rmSync(folder, { recursive: true, force: true });
  }

  /** A pause in the middle of a scripted agent's response: text for the question, and a function that ends the pause. */
  gate() {
    const file = path.join(this.folder, fresh("gate"));
    return { words: `wait-for:${file}`, open: () => fs.writeFileSync(file, "") };
  }

  base(agent) {
    return agent ? `${this.url}/agents/${agent}` : this.url;
  }

  async get(where) {
    const answer = await fetch(this.url + where);
    assert.equal(answer.status, 200, `${where}: ${answer.status}`);
    return answer.json();
  }

  async post(where) {
    const answer = await fetch(this.url + where, { method: "POST" });
    return { status: answer.status, body: await answer.json() };
  }

  /** The pending items of the thread. */
  async open(thread) {
    const items = await this.get(`/threads/${encodeURIComponent(thread)}/pending`);
    return (items.pending ?? items).filter((item) => item.awaitingResult);
  }
}

let made = 0;
/** A name that is unique in this process. */
export const fresh = (what) => `${what}-${process.pid}-${++made}`;

export const of = (events, type) => events.filter((event) => event.type === type);
export const said = (events) => of(events, "TEXT_MESSAGE_CONTENT").map((event) => event.delta).join("");

/** Reads an SSE body as it arrives, until `enough` returns true. */
export async function readFrames(response, enough = () => false) {
  const frames = [];
  let rest = "";
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return { frames, whole: true };
      rest += decoder.decode(value, { stream: true });
      for (let at = rest.indexOf("\n\n"); at >= 0; at = rest.indexOf("\n\n")) {
        const lines = rest.slice(0, at).split("\n");
        rest = rest.slice(at + 2);
        const data = lines.filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
        if (data.length === 0 || data[0] === "[DONE]") continue;
        const id = lines.find((line) => line.startsWith("id: "))?.slice(4);
        frames.push({ id, event: JSON.parse(data.join("\n")) });
        if (enough(frames)) {
          await reader.cancel();
          return { frames, whole: false };
        }
      }
    }
  } catch (error) {
    return { frames, whole: false, error };
  }
}

/** A user of the official AG-UI client. */
export class AgUi {
  static label = "ag-ui";

  constructor(gateway, agent, thread = fresh("thread")) {
    this.thread = thread;
    this.gateway = gateway;
    this.agent = new HttpAgent({ url: gateway.base(agent), threadId: thread });
    this.events = [];
  }

  say(text, options = {}) {
    this.agent.messages.push({ id: fresh("user"), role: "user", content: text });
    return this.run(options);
  }

  /** Runs the client; returns the events that it accepted. A rejected event is an error. */
  async run({ runId = fresh("run"), tools = [], resume, onEvent = () => {} } = {}) {
    const events = [];
    this.runId = runId;
    const watch = ({ event }) => {
      events.push(event);
      onEvent(event, events);
    };
    try {
      await this.agent.runAgent({ runId, tools, ...(resume ? { resume } : {}) }, { onEvent: watch });
    } catch (error) {
      if (events.at(-1)?.type !== "RUN_ERROR") throw error;
    }
    this.events.push(...events);
    this.last = events.at(-1);
    return events;
  }

  /** Answers all pending items, each with the result of `decide`. */
  async answer(decide, options = {}) {
    const items = await this.gateway.open(this.thread);
    const calls = items.filter((item) => item.kind === "frontend-tool");
    for (const item of calls) {
      const content = decide(item);
      this.agent.messages.push({ id: fresh("tool"), role: "tool", toolCallId: item.id, content: typeof content === "string" ? content : JSON.stringify(content) });
    }
    const asked = items.filter((item) => item.kind !== "frontend-tool");
    const resume = asked.map((item) => ({ interruptId: item.id, status: "resolved", payload: decide(item) }));
    return this.run({ ...options, ...(resume.length > 0 ? { resume } : {}) });
  }

  state() {
    return this.agent.state;
  }

  texts() {
    return this.agent.messages.filter((message) => message.role === "assistant" && message.content).map((message) => message.content);
  }

  calls() {
    return this.agent.messages.flatMap((message) => message.toolCalls ?? []).map((call) => [call.id, call.function.name, JSON.parse(call.function.arguments || "{}")]);
  }

  failed() {
    return this.last.type === "RUN_ERROR" ? this.last.code : null;
  }
}

/** A user of a HAI client. */
export class Hai {
  static label = "hai";

  constructor(gateway, agent, thread = fresh("thread")) {
    Object.assign(this, { gateway, thread, url: `${gateway.base(agent)}/awp`, client: new HaiClient(), questions: new Set(), last: null });
  }

  say(text, options = {}) {
    const message = { id: fresh("user"), role: "user", content: text };
    this.client.messages.push(message);
    return this.run({ ...options, messages: [message] });
  }

  async run({ messages = [], runId = fresh("run"), tools = [], onEvent = () => {} } = {}) {
    this.runId = runId;
    const body = { threadId: this.thread, runId, messages, tools, context: [], state: this.client.state, forwardedProps: {} };
    const response = await fetch(this.url, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
    assert.equal(response.status, 200);
    const events = [];
    const { error } = await readFrames(response, (frames) => {
      const { event } = frames.at(-1);
      events.push(event);
      onEvent(event, events);
      this.client.apply(event);
      return false;
    });
    if (error) throw error;
    this.last = events.at(-1);
    assert.ok(this.client.finished, "the stream has an end");
    return events;
  }

  async answer(decide, options = {}) {
    const items = await this.gateway.open(this.thread);
    for (const item of items) assert.ok(this.client.calls.get(item.id)?.ready, `the client was shown a call ${item.id}`);
    const messages = items.map((item) => {
      if (item.toolCallId !== item.id) this.questions.add(item.id);
      const content = decide(item);
      return { id: fresh("tool"), role: "tool", toolCallId: item.id, content: typeof content === "string" ? content : JSON.stringify(content) };
    });
    return this.run({ ...options, messages });
  }

  state() {
    return this.client.state;
  }

  texts() {
    return [...this.client.texts().values()].filter(({ role, text }) => role === "assistant" && text).map(({ text }) => text);
  }

  /** The agent's calls, without those that represent a question. */
  calls() {
    return [...this.client.calls].filter(([id, call]) => call.ready && !this.questions.has(id)).map(([id, call]) => [id, call.name, JSON.parse(call.args || "{}")]);
  }

  failed() {
    return this.last.type === "RUN_ERROR" ? this.last.code : null;
  }
}

/** A user of a page with a version of `ai`. */
class AiSdk {
  static async open(gateway, agent, version, thread = fresh("thread")) {
    const page = new this();
    Object.assign(page, { gateway, thread, version, base: gateway.base(agent) });
    await page.load([]);
    return page;
  }

  /** Opens the page. */
  async load(messages) {
    const ai = await aiClient(this.version);
    const api = `${this.base}/api/chat`;
    // The profile is the client's major version.
    const withProfile = async (input, init) => {
      const answer = await fetch(`${input}?profile=${this.version[0]}`, init);
      this.onAnswer?.(answer);
      this.refusal = answer.headers.get("agentwire-error-code");
      return answer;
    };
    this.chunks = [];
    this.chat = await chatWith(this.version, {
      id: this.thread,
      messages,
      generateId: () => fresh("ui"),
      transport: new ai.DefaultChatTransport({ api, fetch: withProfile, body: () => this.body ?? {} }),
      onError: () => {},
      ...this.chatOptions?.(ai),
    });
  }

  async say(text, { tools } = {}) {
    this.body = tools ? { tools } : {};
    await this.chat.sendMessage({ text });
    return this.chat.messages;
  }

  async answer(decide) {
    const items = await this.gateway.open(this.thread);
    for (const item of items) {
      const payload = decide(item);
      const asked = this.parts().find((part) => part.approval?.id === item.id && part.state === "approval-requested");
      // An approval holds only a boolean and a reason, and no arguments; the output of the call holds any value.
      const decides = typeof payload.approved === "boolean" && Object.keys(payload).every((key) => ["approved", "reason"].includes(key));
      if (asked && decides) {
        await this.chat.addToolApprovalResponse({ id: item.id, approved: payload.approved, ...(payload.reason ? { reason: payload.reason } : {}) });
        continue;
      }
      const part = asked ?? this.parts().find((part) => [item.id, `interrupt:${item.id}`].includes(part.toolCallId) && part.state === "input-available");
      assert.ok(part, `the page shows a part to answer for ${item.kind} ${item.id}: ${JSON.stringify(this.parts())}`);
      const add = this.chat.addToolOutput ?? this.chat.addToolResult;
      await add({ tool: part.toolName ?? part.type.slice(5), toolCallId: part.toolCallId, output: payload });
    }
    await this.chat.sendMessage();
    return this.chat.messages;
  }

  parts() {
    return this.chat.messages.flatMap((message) => (message.role === "assistant" ? message.parts : []));
  }

  state() {
    return this.parts().findLast((part) => part.type === "data-state")?.data;
  }

  texts() {
    return this.parts().filter((part) => part.type === "text" && part.text).map((part) => part.text);
  }

  calls() {
    return this.parts().filter((part) => part.toolCallId && !part.toolCallId.startsWith("interrupt:")).map((part) => [part.toolCallId, part.toolName ?? part.type.slice(5), part.input]);
  }

  failed() {
    return this.chat.status === "error" ? (this.refusal ?? this.chat.error.message) : null;
  }
}

/** A page that sends by itself once everything is approved, with the helper that `ai` has for it. */
class AutomaticAiSdk extends AiSdk {
  chatOptions({ lastAssistantMessageIsCompleteWithApprovalResponses: isComplete }) {
    assert.equal(typeof isComplete, "function");
    return { sendAutomaticallyWhen: isComplete };
  }
}

/** Pages that send by themselves, with each version of `ai` that has approvals. */
export const automaticPages = ["6.0.326", "7.0.169"].map((version) => [
  `ai ${version[0]}`,
  (gateway, agent) => AutomaticAiSdk.open(gateway, agent, version),
]);

/** Each client: its name, and a function that opens it on an agent. */
export const clients = [
  ["ag-ui", async (...where) => new AgUi(...where)],
  ["hai", async (...where) => new Hai(...where)],
  ["ai 7", (gateway, agent, thread) => AiSdk.open(gateway, agent, "7.0.169", thread)],
  ["ai 5", (gateway, agent, thread) => AiSdk.open(gateway, agent, "5.0.277", thread)],
];

/** All clients, with one more version of `ai` for cases that the others do not cover. */
export const everyone = [...clients, ["ai 6", (gateway, agent, thread) => AiSdk.open(gateway, agent, "6.0.326", thread)]];

/** Follows a run as AG-UI from a cursor. */
export async function follow(gateway, agent, run, after, enough) {
  const query = after ? `?after=${encodeURIComponent(after)}` : "";
  const response = await fetch(`${gateway.base(agent)}/runs/${encodeURIComponent(run)}/stream${query}`);
  assert.equal(response.status, 200);
  return readFrames(response, enough);
}

/** Starts a run in AG-UI and disconnects once `enough` returns true. */
export async function startAndLeave(gateway, agent, { thread = fresh("thread"), text, enough, ...more }) {
  const runId = fresh("run");
  const body = { threadId: thread, runId, messages: [{ id: fresh("user"), role: "user", content: text }], tools: [], context: [], state: {}, forwardedProps: {}, ...more };
  const response = await fetch(gateway.base(agent), { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  assert.equal(response.status, 200);
  return { thread, runId, body, ...(await readFrames(response, enough)) };
}

/** The official client's result for these events; it throws on an event that it does not accept. */
export async function accepted(events, thread) {
  const body = events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("");
  const agent = new HttpAgent({ url: "http://127.0.0.1:9/", threadId: thread });
  agent.fetch = async () => new Response(body, { headers: { "content-type": "text/event-stream" } });
  try {
    await agent.runAgent({ runId: "replayed" });
  } catch (error) {
    if (events.at(-1).type !== "RUN_ERROR") throw error;
  }
  return agent;
}
