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

/** Each server: its name, its program, and the path of its AG-UI endpoint. */
export const SERVERS = [
  { name: "pydantic-ai", program: "pydantic_ai_app.py", endpoint: "/" },
  { name: "agno", program: "agno_app.py", endpoint: "/agui" },
];

export async function start({ name, program, endpoint }) {
  const python = path.join(target, "venv", "foreign", "bin", "python");
  if (!fs.existsSync(python)) throw new Error(`${python} is missing: run \`e2e/run foreign\`, which installs it`);
  const port = await freePort();
  const env = { ...process.env, PYTHONDONTWRITEBYTECODE: "1", AGNO_TELEMETRY: "false", NO_COLOR: "1" };
  const child = spawn(python, [path.join(here, "servers", program), String(port)], { env, stdio: ["ignore", "pipe", "pipe"] });
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
  return { name, url: base + endpoint, stop, output: () => output };
}

/** A user of the official client, connected directly to the server. */
export class Direct extends AgUi {
  constructor(server) {
    super({ base: () => server.url });
    // The server's pending items are in its last events.
    this.gateway.open = async () => this.open();
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
  for (let at = 0; at < shown.length; at += 1) {
    let end = at;
    while (shown[end]?.role === "tool") end += 1;
    shown.splice(at, end - at, ...shown.slice(at, end).sort((one, other) => one.answers - other.answers));
    at = end;
  }
  return shown;
}
