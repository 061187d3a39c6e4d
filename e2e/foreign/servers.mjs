// Third-party AG-UI servers as processes, and a client that is connected to one of them directly.

import { spawn } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

import { freePort } from "../../examples/support/ports.mjs";
import { AgUi, sleep } from "../upstreams/gateway.mjs";

const here = path.dirname(fileURLToPath(import.meta.url));
const root = process.env.AGENTWIRE_ROOT ?? path.resolve(here, "../..");
const target = process.env.AGENTWIRE_TARGET ?? path.resolve(root, process.env.CARGO_TARGET_DIR ?? "target");

/** Agno takes seconds to import, and longer while other suites are running. */
const START_LIMIT_MS = 300_000;
/** Number of characters of a server's output that a failed start shows. */
const TAIL = 4000;

/**
 * Each server: its name, its program, the path of its AG-UI endpoint, and the features that its framework does not have.
 * `model`: it needs the scripted model as a server. `venv`: the environment that it does not share with the others.
 * `differs`: features that look different in the AI SDK. Mastra gives the result of an approved call without the call; the
 * AI SDK has no result alone, so that the call is named `unknown` there.
 * `trims`: its snapshots restate a streamed text without the white space at its end. The clients that apply snapshots have
 * the text without it, those that show what was streamed have it.
 * `cuts`: it breaks off the response after RUN_ERROR instead of ending it.
 */
export const SERVERS = [
  { name: "Pydantic AI", program: "pydantic_ai_app.py", endpoint: "/" },
  { name: "Agno", program: "agno_app.py", endpoint: "/agui" },
  { name: "Strands", program: "strands_app.py", endpoint: "/", model: true },
  { name: "Microsoft Agent Framework", program: "microsoft_app.py", endpoint: "/", model: true, venv: "foreign_microsoft", lacks: ["thoughts", "two tools of the page"] },
  { name: "LlamaIndex", program: "llamaindex_app.py", endpoint: "/run", model: true, venv: "foreign_llamaindex", lacks: ["thoughts", "approval", "cancel"], trims: true, cuts: true },
  { name: "Mastra", program: "mastra_app.mjs", endpoint: "/", model: true, lacks: ["cancel"], differs: ["approval"] },
];

/** No server of a framework reports to its makers. */
const QUIET = {
  AGNO_TELEMETRY: "false",
  OTEL_SDK_DISABLED: "true",
  MASTRA_TELEMETRY_DISABLED: "1",
};

/** Starts a program of `servers/` and waits until it responds. */
async function launch(name, program, { venv = "foreign", ...env } = {}) {
  const python = path.join(target, "venv", venv, "bin", "python");
  const runtime = program.endsWith(".py") ? python : process.execPath;
  if (!fs.existsSync(runtime)) throw new Error(`${runtime} is missing: run \`e2e/run foreign\`, which installs it`);
  const port = await freePort();
  const all = { ...process.env, ...QUIET, PYTHONDONTWRITEBYTECODE: "1", NO_COLOR: "1", ...env };
  const child = spawn(runtime, [path.join(here, "servers", program), String(port)], { env: all, stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  const keep = (bytes) => (output = (output + bytes).slice(-TAIL));
  child.stdout.on("data", keep);
  child.stderr.on("data", keep);
  const ended = new Promise((resolve) => child.on("close", resolve));
  const base = `http://127.0.0.1:${port}`;
  for (const begun = Date.now(); ; await sleep(100)) {
    if (child.exitCode !== null || Date.now() - begun > START_LIMIT_MS) {
      child.kill("SIGKILL");
      throw new Error(`${name} did not start:\n${output}`);
    }
    if (await fetch(`${base}/status`).then((answer) => answer.ok, () => false)) break;
  }
  const stop = async () => {
    child.kill("SIGKILL");
    await ended;
  };
  return { base, stop, output: () => output };
}

export async function start({ name, program, endpoint, model, venv, cuts }) {
  const scripted = model ? await launch("the scripted model", "model_app.py") : null;
  const server = await launch(name, program, { venv, ...(scripted ? { MODEL_URL: `${scripted.base}/v1` } : {}) }).catch(async (error) => {
    await scripted?.stop();
    throw error;
  });
  const stop = async () => {
    await server.stop();
    await scripted?.stop();
  };
  return { name, url: server.base + endpoint, cuts, stop, output: () => server.output() + (scripted?.output() ?? "") };
}

/** A user of the official client, connected directly to the server. */
export class Direct extends AgUi {
  constructor(server) {
    super({ base: () => server.url });
    // The server's pending items are in its last events.
    this.gateway.open = async () => this.open();
    if (server.cuts) this.agent.fetch = fetchUntilError;
  }

  async run(options) {
    const events = await super.run(options);
    // Mastra ends the run after an answer without an outcome, and the client goes on waiting for the answer.
    if (this.last.type === "RUN_FINISHED" && !this.last.outcome) this.agent.pendingInterrupts = [];
    return events;
  }

  calls() {
    return this.agent.messages.flatMap((message) => message.toolCalls ?? []).map((call) => [call.id, call.function.name, argumentsOf(call.function.arguments, true)]);
  }

  open() {
    const asked = this.last.outcome?.interrupts ?? [];
    if (asked.length > 0) return asked.map((item) => ({ ...item, kind: "approval" }));
    const messages = this.agent.messages;
    const answered = new Set(messages.filter((message) => message.role === "tool").map((message) => message.toolCallId));
    const calls = messages.flatMap((message) => message.toolCalls ?? []).filter((call) => !answered.has(call.id));
    return calls.map((call) => ({ id: call.id, kind: "frontend-tool", name: call.function.name }));
  }
}

/** A response that breaks off after RUN_ERROR ends there; any other that breaks off is an error as before. */
async function fetchUntilError(url, init) {
  const response = await fetch(url, init);
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  const pull = async (controller) => {
    try {
      const { done, value } = await reader.read();
      if (done) return controller.close();
      text += decoder.decode(value, { stream: true });
      controller.enqueue(value);
    } catch (error) {
      if (/"type":"RUN_ERROR"[^\n]*\n\n$/.test(text)) controller.close();
      else controller.error(error);
    }
  };
  return new Response(new ReadableStream({ pull }), { status: response.status, headers: response.headers });
}

/**
 * The arguments of a call. Agno repeats a call when it continues after the answer, and the official client appends the
 * repeated arguments. The gateway prevents this, so it is undone only for a direct connection.
 */
function argumentsOf(text, direct) {
  const half = text.slice(0, text.length / 2);
  return JSON.parse((direct && half + half === text ? half : text) || "{}");
}

/** A conversation without ids: calls are identified by number. Parallel tools end in any order. */
export function told(messages, direct = false) {
  const calls = messages.flatMap((message) => message.toolCalls ?? []).map((call) => call.id);
  const shown = messages.map(({ role, content, toolCalls, toolCallId }) => ({
    role,
    content: content || "",
    ...(toolCalls?.length ? { calls: toolCalls.map(({ function: { name, arguments: args } }) => [name, argumentsOf(args, direct)]) } : {}),
    ...(toolCallId ? { answers: calls.indexOf(toolCallId) } : {}),
  }));
  // A server may put each of several calls into a message of its own; a client sends the results after each or after all.
  const isCall = ({ role, calls }) => role === "assistant" && calls;
  for (let at = 0; at < shown.length; at += 1) {
    let end = at;
    while (shown[end] && (shown[end].role === "tool" || isCall(shown[end]))) end += 1;
    const run = shown.slice(at, end);
    const results = run.filter(({ role }) => role === "tool").sort((one, other) => one.answers - other.answers);
    shown.splice(at, end - at, ...run.filter(isCall), ...results);
    at = end;
  }
  return shown;
}
