// The two sides of every comparison: our binary and helper programs, and the official clients.

import { execFile, spawn } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import { createRequire } from "node:module";
import path from "node:path";
import { fileURLToPath } from "node:url";

// Both clients warn about every tolerated deviation, and a corpus contains thousands of them.
process.env.SUPPRESS_TRANSFORMATION_WARNINGS = "1";
for (const method of ["error", "warn"]) console[method] = () => {};

const { HttpAgent } = await import("@ag-ui/client");

/** The released clients by version. `OLD` is the last one without reasoning and activities. */
export const OLD = "0.0.39";
const CLIENTS = {
  "1.0.0": HttpAgent,
  [OLD]: (await import("@ag-ui/client-0")).HttpAgent,
  // Its module for `import` cannot apply patches in Node: it imports a CommonJS package as a namespace.
  "0.0.52": createRequire(import.meta.url)("agui-0-0-52").HttpAgent,
  "0.0.55": (await import("agui-0-0-55")).HttpAgent,
  "0.0.58": (await import("agui-0-0-58")).HttpAgent,
  "0.0.59": (await import("agui-0-0-59")).HttpAgent,
};
/** The clients of the family 0.0.5x. The first two read no outcome and one, and know no subagents. */
export const FAMILY = ["0.0.52", "0.0.55", "0.0.58", "0.0.59"];
export const clientOf = (version) => CLIENTS[version];

export const root =
  process.env.AGENTWIRE_ROOT ?? path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../..");
const target = process.env.AGENTWIRE_TARGET ?? path.resolve(root, process.env.CARGO_TARGET_DIR ?? "target");
export const binary = path.resolve(process.env.AGENTWIRE ?? path.join(target, "debug", "agentwire"));

export const PROTO = "application/vnd.ag-ui.event+proto";
export const SSE = "text/event-stream";

/** Runs the command line; returns its exit code and output. */
export function agentwire(args, input) {
  return new Promise((resolve, reject) => {
    const options = { encoding: "buffer", maxBuffer: 256 << 20, timeout: 600_000 };
    const child = execFile(binary, args, options, (error, stdout, stderr) => {
      if (error && typeof error.code !== "number") {
        reject(new Error(`${binary} could not be run: ${error.message} (build it with \`cargo build\`)`));
      } else {
        resolve({ code: error?.code ?? 0, stdout, stderr: stderr.toString() });
      }
    });
    child.stdin.on("error", () => {});
    child.stdin.end(input);
  });
}

/** Sends JSON lines to a program of `tools/` and returns its output lines. */
export async function tool(name, requests) {
  const program = path.join(target, "debug", name);
  if (!fs.existsSync(program)) {
    throw new Error(`${program} is missing: build it with \`cargo build -p agentwire-tools\``);
  }
  const child = spawn(program, { stdio: ["pipe", "pipe", "inherit"] });
  const ended = new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", resolve);
  });
  child.stdin.on("error", () => {});
  child.stdin.end(requests.map((request) => `${JSON.stringify(request)}\n`).join(""));
  child.stdout.setEncoding("utf8");
  let text = "";
  for await (const part of child.stdout) text += part;
  const code = await ended;
  const answers = text.split("\n").filter(Boolean).map((line) => JSON.parse(line));
  if (code !== 0 || answers.length !== requests.length) {
    throw new Error(`${name} ended with code ${code} after ${answers.length} of ${requests.length} answers`);
  }
  return answers;
}

/** A client that requests the binary form; the standard client never does. */
class BinaryAgent extends HttpAgent {
  requestInit(input) {
    const init = super.requestInit(input);
    return { ...init, headers: { ...init.headers, Accept: PROTO } };
  }
}

/**
 * Runs an official client over a response body and returns the result.
 *
 * `url` reaches a real server; without it the client gets the body as a `Response`, which is the same pipeline
 * without the socket.
 */
export async function officialClient({ body, type = SSE, url, version = "1.0.0", threadId = "t1", state }) {
  const Agent = type === PROTO ? BinaryAgent : CLIENTS[version];
  const old = version === OLD || version === "0.0.52";
  const answer = async () => new Response(body, { headers: { "content-type": type } });
  const agent = new Agent({ url: url ?? "http://127.0.0.1:9/", threadId, initialState: state });
  const original = globalThis.fetch;
  // The old clients have no `fetch` option.
  if (!url && old) globalThis.fetch = answer;
  if (!url && !old) agent.fetch = answer;
  const events = [];
  let pending = null;
  const watch = {
    onEvent: ({ event }) => void events.push(event),
    onRunFinishedEvent: ({ outcome, pendingToolCallIds }) => void (pending = outcome === "success" ? pendingToolCallIds : null),
  };
  try {
    await agent.runAgent({ runId: "r1" }, watch);
    return { accepted: true, agent, events, pending };
  } catch (error) {
    // A stream that ends before its first event is an empty pipeline, not a rejection.
    if (error?.name === "EmptyError") return { accepted: true, agent, events };
    return { accepted: false, agent, events, reason: String(error?.message ?? error) };
  } finally {
    if (!url && old) globalThis.fetch = original;
  }
}

/** A loopback server that responds to every request with the result of `handle`. */
export async function serve(handle) {
  const server = http.createServer((request, response) => {
    const parts = [];
    request.on("data", (part) => parts.push(part));
    request.on("end", async () => {
      const { status = 200, type = SSE, body } = await handle(request, Buffer.concat(parts));
      response.writeHead(status, { "content-type": type });
      response.end(body);
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}/`,
    close: () => new Promise((resolve) => { server.closeAllConnections(); server.close(resolve); }),
  };
}

/** Every checked-in stream: the e2e fixtures, and the captures of every readable format. */
export function fixtures() {
  const found = [];
  const add = (folder, format, keep) => {
    if (!fs.existsSync(folder)) return;
    for (const name of fs.readdirSync(folder).sort()) {
      const file = path.join(folder, name);
      if (keep(name) && fs.statSync(file).isFile()) found.push({ name: `${format}/${name}`, format, file });
    }
  };
  add(path.join(root, "e2e", "fixtures"), "ag-ui", (name) => /\.(sse|jsonl)$/.test(name));
  const formats = path.join(root, "crates", "agentwire-core", "src", "format");
  for (const folder of fs.readdirSync(formats).sort()) {
    const keep = (name) => !name.endsWith(".md") && !name.includes(".events.jsonl");
    add(path.join(formats, folder, "fixtures"), folder.replaceAll("_", "-"), keep);
  }
  return found;
}

/** A stream of events as an SSE body. */
export const sse = (events) => events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("");

/** The SSE body of an e2e fixture, regardless of its stored framing. */
export function fixtureBody(file) {
  const text = fs.readFileSync(file, "utf8");
  if (!file.endsWith(".jsonl")) return text;
  return text.split("\n").filter(Boolean).map((line) => `data: ${line}\n\n`).join("");
}
