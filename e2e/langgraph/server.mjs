// A real `langgraph dev` with scripted graphs, our binary, and the official AG-UI client.

import { execFile, spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

import { freePort } from "../../examples/support/ports.mjs";

for (const method of ["error", "warn"]) console[method] = () => {};
const { HttpAgent } = await import("@ag-ui/client");

const here = path.dirname(fileURLToPath(import.meta.url));
export const root = process.env.AGENTWIRE_ROOT ?? path.resolve(here, "../..");
const target = process.env.AGENTWIRE_TARGET ?? path.resolve(root, process.env.CARGO_TARGET_DIR ?? "target");
const binary = path.resolve(process.env.AGENTWIRE ?? path.join(target, "debug", "agentwire"));
const langgraph = path.join(target, "venv", "langgraph", "bin", "langgraph");

/** Timeout for the start; generous, for busy machines. */
const START_LIMIT_MS = 300_000;

/** Starts the server in a separate folder, because it stores its threads beside the graphs. */
export async function start() {
  if (!fs.existsSync(langgraph)) {
    throw new Error(`${langgraph} is missing: run \`e2e/run langgraph\`, which installs it`);
  }
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "agentwire-langgraph-"));
  fs.cpSync(path.join(here, "agent"), folder, { recursive: true });
  const port = await freePort();
  const args = ["dev", "--no-browser", "--no-reload", "--host", "127.0.0.1", "--port", String(port), "--n-jobs-per-worker", "8"];
  const quiet = { LANGSMITH_TRACING: "false", LANGGRAPH_NO_VERSION_CHECK: "true", LANGGRAPH_CLI_NO_ANALYTICS: "1", NO_COLOR: "1" };
  const child = spawn(langgraph, args, { cwd: folder, env: { ...process.env, ...quiet }, stdio: ["ignore", "pipe", "pipe"] });
  let said = "";
  child.stdout.on("data", (bytes) => (said += bytes));
  child.stderr.on("data", (bytes) => (said += bytes));
  const ended = new Promise((resolve) => child.on("close", resolve));
  const url = `http://127.0.0.1:${port}`;
  for (const begun = Date.now(); ; ) {
    if (child.exitCode !== null || Date.now() - begun > START_LIMIT_MS) {
      child.kill("SIGKILL");
      throw new Error(`langgraph dev did not start:\n${said.slice(-4000)}`);
    }
    if (await fetch(`${url}/ok`).then((answer) => answer.ok, () => false)) break;
    await new Promise((wake) => setTimeout(wake, 200));
  }
  const stop = async () => {
    child.kill("SIGTERM");
    const timer = setTimeout(() => child.kill("SIGKILL"), 10_000);
    await ended;
    clearTimeout(timer);
    fs.rmSync(folder, { recursive: true, force: true });
  };
  return { url, stop };
}

const json = async (answer) => {
  if (!answer.ok) throw new Error(`${answer.url}: ${answer.status} ${await answer.text()}`);
  return answer.json();
};

export const post = (url, body) =>
  fetch(url, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

export const newThread = async (server) => (await json(await post(`${server.url}/threads`, {}))).thread_id;

export const threadState = async (server, thread) => json(await fetch(`${server.url}/threads/${thread}/state`));

/** Runs a graph on a thread and returns the bytes that the server streamed. */
export async function stream(server, thread, body) {
  const answer = await post(`${server.url}/threads/${thread}/runs/stream`, body);
  if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
  return Buffer.from(await answer.arrayBuffer());
}

export const frame = (name, data) => Buffer.from(`event: ${name}\r\ndata: ${JSON.stringify(data)}\r\n\r\n`);

/** Runs a program with `input`. */
function run(program, args, input) {
  return new Promise((resolve, reject) => {
    const child = execFile(program, args, { encoding: "buffer", maxBuffer: 64 << 20, timeout: 600_000 }, (error, stdout, stderr) => {
      if (error) reject(new Error(`${program} ${args.join(" ")} failed: ${error.message}\n${stderr}`));
      else resolve(stdout);
    });
    child.stdin.on("error", () => {});
    child.stdin.end(input);
  });
}

/** Converts the server's bytes. */
export const convert = (bytes, ...options) =>
  run(binary, ["convert", "--from", "langgraph", "--to", "ag-ui", ...options.flatMap((pair) => ["-O", pair])], bytes);

/** The run request for a request of a user interface: `{input, assistant, keys?, modes?, state?}`. */
export async function request(question) {
  const program = path.join(target, "debug", "langgraph_request");
  if (!fs.existsSync(program)) {
    throw new Error(`${program} is missing: build it with \`cargo build -p agentwire-tools\``);
  }
  return JSON.parse(await run(program, [], JSON.stringify(question)));
}

/** Passes a stream to the official client, together with the client's existing conversation. */
export async function officialClient(body, messages = []) {
  const agent = new HttpAgent({ url: "http://127.0.0.1:9/", threadId: "t", initialMessages: structuredClone(messages) });
  agent.fetch = async () => new Response(body, { headers: { "content-type": "text/event-stream" } });
  const events = [];
  await agent.runAgent({ runId: "r" }, { onEvent: ({ event }) => void events.push(event) });
  return { agent, events, messages: agent.messages, state: agent.state };
}
