// A real `langgraph dev` with scripted graphs, our binary, and the official AG-UI client.

import { execFile, spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

import { freePort } from "../../examples/support/ports.mjs";

for (const method of ["error", "warn"]) console[method] = () => {};
export const { HttpAgent } = await import("@ag-ui/client");

const here = path.dirname(fileURLToPath(import.meta.url));
export const root = process.env.AGENTWIRE_ROOT ?? path.resolve(here, "../..");
const target = process.env.AGENTWIRE_TARGET ?? path.resolve(root, process.env.CARGO_TARGET_DIR ?? "target");
const binary = path.resolve(process.env.AGENTWIRE ?? path.join(target, "debug", "agentwire"));
const langgraph = path.join(target, "venv", "langgraph", "bin", "langgraph");
export const python = path.join(target, "venv", "langgraph", "bin", "python");

/** The environment of the graphs: the place of this repository's Python helpers, and no traffic to other servers. */
const agentEnv = { AGENTWIRE_SDK: path.join(root, "sdk", "python", "src"), LANGSMITH_TRACING: "false", PYTHONDONTWRITEBYTECODE: "1", NO_COLOR: "1" };

/** Timeout for the start; generous, for busy machines. */
const START_LIMIT_MS = 300_000;

/** Starts the server in a separate folder, because it stores its threads beside the graphs. `more`: a folder with other graphs. */
export async function start(more) {
  if (!fs.existsSync(langgraph)) {
    throw new Error(`${langgraph} is missing: run \`e2e/run langgraph\`, which installs it`);
  }
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "agentwire-langgraph-"));
  fs.cpSync(path.join(here, "agent"), folder, { recursive: true });
  if (more) fs.cpSync(more, folder, { recursive: true });
  const port = await freePort();
  const args = ["dev", "--no-browser", "--no-reload", "--host", "127.0.0.1", "--port", String(port), "--n-jobs-per-worker", "8"];
  const quiet = { LANGGRAPH_NO_VERSION_CHECK: "true", LANGGRAPH_CLI_NO_ANALYTICS: "1", ...agentEnv };
  const child = spawn(langgraph, args, { cwd: folder, env: { ...process.env, ...quiet }, stdio: ["ignore", "pipe", "pipe"] });
  return ready(child, `http://127.0.0.1:${port}`, folder);
}

/** Waits for a server of the graphs. */
async function ready(child, url, folder) {
  let said = "";
  child.stdout.on("data", (bytes) => (said += bytes));
  child.stderr.on("data", (bytes) => (said += bytes));
  const ended = new Promise((resolve) => child.on("close", resolve));
  for (const begun = Date.now(); ; ) {
    if (child.exitCode !== null || Date.now() - begun > START_LIMIT_MS) {
      child.kill("SIGKILL");
      throw new Error(`${child.spawnargs.join(" ")} did not start:\n${said.slice(-4000)}`);
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

/** Starts the graphs outside LangGraph Server. */
export async function startApp(program = path.join(here, "agent", "app.py")) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "agentwire-graphs-"));
  const port = await freePort();
  const env = { ...process.env, ...agentEnv };
  const child = spawn(python, [program, String(port)], { cwd: folder, env, stdio: ["ignore", "pipe", "pipe"] });
  return { ...(await ready(child, `http://127.0.0.1:${port}`, folder)), program, env };
}

/** Starts the gateway; `{config}` stands for a file with that text. */
export async function serve(...args) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "agentwire-serve-"));
  const file = path.join(folder, "agentwire.toml");
  for (const { config } of args.filter((arg) => arg.config)) fs.writeFileSync(file, config);
  const flags = args.map((arg) => (arg.config ? file : arg));
  const store = `sqlite:${path.join(folder, "store.db")}`;
  const all = ["serve", ...flags, "--store", store, "--listen", "127.0.0.1:0", "--log", "info"];
  const child = spawn(binary, all, { env: { ...process.env, ...agentEnv }, stdio: ["ignore", "ignore", "pipe"] });
  let log = "";
  child.stderr.on("data", (bytes) => (log += bytes));
  const ended = new Promise((resolve) => child.on("close", resolve));
  const stop = async () => {
    child.kill("SIGKILL");
    await ended;
    fs.rmSync(folder, { recursive: true, force: true });
  };
  for (const begun = Date.now(); ; await new Promise((wake) => setTimeout(wake, 50))) {
    const url = log.match(/listening\s+(http:\/\/\S+)\s/)?.[1];
    if (url) return { url, stop, post: async (body) => Buffer.from(await (await post(url, body, "text/event-stream")).arrayBuffer()) };
    if (child.exitCode !== null || Date.now() - begun > START_LIMIT_MS) {
      await stop();
      throw new Error(`the gateway did not start:\n${log}`);
    }
  }
}

const json = async (answer) => {
  if (!answer.ok) throw new Error(`${answer.url}: ${answer.status} ${await answer.text()}`);
  return answer.json();
};

export const post = (url, body, accept = "*/*") =>
  fetch(url, { method: "POST", headers: { "content-type": "application/json", accept }, body: JSON.stringify(body) });

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
export function run(program, args, input, env = process.env) {
  return new Promise((resolve, reject) => {
    const child = execFile(program, args, { encoding: "buffer", maxBuffer: 64 << 20, timeout: 600_000, env }, (error, stdout, stderr) => {
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
