// The real peers: `adk api_server` with a scripted model on one side, the official AG-UI client on the other,
// and agentwire's requests and conversion between them.

import { execFile, spawn } from "node:child_process";
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

import { freePort } from "../../examples/support/ports.mjs";

// The client warns about every tolerated deviation.
process.env.SUPPRESS_TRANSFORMATION_WARNINGS = "1";

const here = path.dirname(fileURLToPath(import.meta.url));
/** The suite: `adk` has ADK 2.x installed, `adk-1` has 1.x and uses these files too. */
export const suite = process.env.ADK_SUITE ?? "adk";
const client = createRequire(path.join(here, "..", suite, "package.json")).resolve("@ag-ui/client");
const { HttpAgent } = await import(pathToFileURL(client));

const root = process.env.AGENTWIRE_ROOT ?? path.resolve(here, "../..");
const target = process.env.AGENTWIRE_TARGET ?? path.resolve(root, process.env.CARGO_TARGET_DIR ?? "target");
const binary = path.resolve(process.env.AGENTWIRE ?? path.join(target, "debug", "agentwire"));
const adkRequest = path.join(target, "debug", "adk_request");

/** Number of characters of a server's output that a failed start shows. */
const TAIL = 4000;
/** ADK takes seconds to import, and longer while other suites are running. */
const START_LIMIT_MS = 300_000;

function need(file, hint) {
  if (!fs.existsSync(file)) throw new Error(`${file} is missing: ${hint}`);
  return file;
}

/** Starts `adk api_server` on a free loopback port; stops it by its process id. */
export async function startServer() {
  const adk = need(path.join(target, "venv", suite, "bin", "adk"), `run \`e2e/run ${suite}\` once, which installs it`);
  const port = await freePort();
  const memory = ["--session_service_uri", "memory://", "--artifact_service_uri", "memory://"];
  const args = ["api_server", "--host", "127.0.0.1", "--port", String(port), ...memory, path.join(here, "apps")];
  const env = {
    ...process.env,
    PYTHONPATH: path.join(root, "sdk", "python", "src"),
    PYTHONDONTWRITEBYTECODE: "1",
    ADK_DISABLE_TELEMETRY: "1",
  };
  const child = spawn(adk, args, { env, stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  const keep = (bytes) => (output = (output + bytes).slice(-TAIL));
  child.stdout.on("data", keep);
  child.stderr.on("data", keep);
  const url = `http://127.0.0.1:${port}`;
  const deadline = Date.now() + START_LIMIT_MS;
  for (;;) {
    if (child.exitCode !== null) throw new Error(`adk api_server ended with code ${child.exitCode}:\n${output}`);
    try {
      if ((await fetch(`${url}/list-apps`)).ok) break;
    } catch {}
    if (Date.now() > deadline) {
      child.kill("SIGKILL");
      throw new Error(`adk api_server did not start:\n${output}`);
    }
    await new Promise((wake) => setTimeout(wake, 100));
  }
  return {
    url,
    output: () => output,
    close: () =>
      new Promise((resolve) => {
        child.on("close", resolve);
        child.kill("SIGKILL");
      }),
  };
}

function run(file, args, input) {
  return new Promise((resolve, reject) => {
    const options = { encoding: "buffer", maxBuffer: 64 << 20, timeout: 600_000 };
    const child = execFile(file, args, options, (error, stdout, stderr) => {
      if (error && typeof error.code !== "number") reject(new Error(`${file} could not be run: ${error.message}`));
      else resolve({ code: error?.code ?? 0, stdout, stderr: stderr.toString() });
    });
    child.stdin.on("error", () => {});
    child.stdin.end(input);
  });
}

/** The output of `adk_request` for one request; see `tools/src/bin/adk_request.rs`. */
export async function ask(question) {
  need(adkRequest, "build it with `cargo build -p agentwire-tools`");
  const { stdout } = await run(adkRequest, [], `${JSON.stringify({ app: "demo", user: "u1", ...question })}\n`);
  return JSON.parse(stdout);
}

/** Sends a request that `adk::input` has built. */
export async function send(server, { method, path: where, body }) {
  const init = { method, headers: body ? { "content-type": "application/json" } : {} };
  return fetch(server.url + where, { ...init, body: body ? JSON.stringify(body) : undefined });
}

export async function convert(body, ...options) {
  need(binary, "build it with `cargo build`");
  return run(binary, ["convert", "--from", "adk", "--to", "ag-ui", ...options, "-"], body);
}

/** A conversation of a user interface: the official client and a session of the real server. */
export class Conversation {
  constructor(server, threadId) {
    this.server = server;
    this.answer = null;
    this.agent = new HttpAgent({ url: "http://127.0.0.1:9/", threadId, fetch: async () => this.answer() });
    this.threadId = threadId;
    this.runs = 0;
  }

  /** The session as the gateway would know it, created if missing. */
  async session(input) {
    let response = await send(this.server, await ask({ call: "get_session", input }));
    if (response.status === 404) {
      const created = await send(this.server, await ask({ call: "create_session", input }));
      if (!created.ok) throw new Error(`the session was not created: ${created.status} ${await created.text()}`);
      response = created;
    }
    return ask({ call: "session", body: await response.text() });
  }

  /** Runs the agent; returns the events that the client accepted. */
  async run(text, { tools = [], resume, options = [], context = [] } = {}) {
    this.runs += 1;
    const runId = `run-${this.runs}`;
    if (text !== undefined) this.agent.messages.push({ id: `u-${this.runs}`, role: "user", content: text });
    const input = {
      threadId: this.threadId,
      runId,
      state: this.agent.state,
      messages: this.agent.messages,
      tools,
      context,
      forwardedProps: {},
      ...(resume ? { resume } : {}),
    };
    const known = await this.session(input);
    const request = await ask({ call: "run", input, state: known.rawState, waiting: known.waiting });
    if (request.error) throw new Error(`${request.error}: ${request.message}`);
    const response = await send(this.server, request);
    const native = Buffer.from(await response.arrayBuffer());
    const made = await convert(native, "--thread", this.threadId, "--run", runId, ...options);
    this.native = native.toString();
    this.answer = () => new Response(made.stdout, { headers: { "content-type": "text/event-stream" } });
    const events = [];
    const watch = ({ event }) => void events.push(event);
    try {
      await this.agent.runAgent({ runId, tools, ...(resume ? { resume } : {}) }, { onEvent: watch });
    } catch (error) {
      if (events.at(-1)?.type !== "RUN_ERROR") {
        throw new Error(`the official client refused: ${error.message}\n${made.stdout}`, { cause: error });
      }
    }
    this.request = request;
    return events;
  }

  /** The messages stored by ADK, as read by `adk::input`. */
  async stored() {
    const response = await send(this.server, await ask({ call: "get_session", input: this.input() }));
    return ask({ call: "session", body: await response.text() });
  }

  input() {
    return { threadId: this.threadId, runId: "r", messages: [], tools: [], context: [] };
  }
}

export const of = (events, type) => events.filter((event) => event.type === type);
export const custom = (events, name) => of(events, "CUSTOM").filter((event) => event.name === name).map((event) => event.value);
export const said = (events) => of(events, "TEXT_MESSAGE_CONTENT").map((event) => event.delta).join("");
