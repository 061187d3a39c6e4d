// The real binary, upstreams controlled by the test, and a parser for streams.

import { spawn } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

export const root =
  process.env.AGENTWIRE_ROOT ?? path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../..");
const target = process.env.AGENTWIRE_TARGET ?? path.resolve(root, process.env.CARGO_TARGET_DIR ?? "target");
export const binary = path.resolve(process.env.AGENTWIRE ?? path.join(target, "debug", "agentwire"));

// Timeout for any wait; generous, for busy machines.
const PATIENCE_MS = 180_000;

/** Waits for an expected event, with a timeout. */
export function soon(what, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`timed out: ${what}`)), PATIENCE_MS);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** A folder that is removed after the test. */
export function folder(t) {
  const made = fs.mkdtempSync(path.join(os.tmpdir(), "agentwire-e2e-"));
  t.after(() => fs.rmSync(made, { recursive: true, force: true }));
  return made;
}

/** `agentwire serve` on a free port, perhaps with a limit of open files. */
export async function serve(t, args = [], { cwd, descriptors } = {}) {
  const command = [binary, "serve", "--listen", "127.0.0.1:0", "--log", "warn", ...args];
  if (descriptors !== undefined) command.unshift("sh", "-c", `ulimit -n ${descriptors}; exec "$0" "$@"`);
  const child = spawn(command[0], command.slice(1), {
    cwd: cwd ?? folder(t),
    stdio: ["ignore", "ignore", "pipe"],
  });
  let said = "";
  const ended = new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code, signal) => resolve({ code, signal }));
  });
  t.after(() => child.kill("SIGKILL"));
  child.stderr.setEncoding("utf8");
  const url = await soon(
    "the gateway's address",
    new Promise((resolve, reject) => {
      child.stderr.on("data", (text) => {
        said += text;
        const found = said.match(/listening\s+\S*?(http:\/\/[\d.]+:\d+)\s/);
        if (found) resolve(found[1]);
      });
      ended.then(({ code }) => reject(new Error(`serve ended with ${code}: ${said}`)));
    }),
  );
  const end = async (signal) => {
    child.kill(signal);
    return soon("the end of the gateway", ended);
  };
  return { url, end, said: () => said };
}

/** The server of an AG-UI agent: `answer(response, input, number)` writes the response. */
export async function upstream(t, answer) {
  const calls = [];
  const server = http.createServer((request, response) => {
    let body = "";
    request.setEncoding("utf8").on("data", (part) => (body += part));
    request.on("end", () => {
      const input = JSON.parse(body);
      calls.push(input);
      response.on("error", () => {});
      answer(response, input, calls.length - 1);
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${server.address().port}/`, calls };
}

export const input = (threadId, runId, text) => ({
  threadId,
  runId,
  messages: [{ id: `${runId}-user`, role: "user", content: text }],
  tools: [],
  context: [],
  state: {},
  forwardedProps: {},
});

export function post(url, body, headers = {}) {
  const init = { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json", ...headers } };
  return soon(`an answer from ${url}`, fetch(url, init));
}

/** The frames of a stream as they arrive: `{ id, data, raw }`. A broken connection ends it. */
export async function* frames(response) {
  const decoder = new TextDecoder();
  let text = "";
  try {
    for await (const bytes of response.body) {
      text += decoder.decode(bytes, { stream: true });
      for (let at = text.indexOf("\n\n"); at >= 0; at = text.indexOf("\n\n")) {
        const raw = text.slice(0, at + 2);
        text = text.slice(at + 2);
        const data = raw.match(/^data: (.*)$/m)?.[1];
        if (data !== undefined) yield { id: raw.match(/^id: (.*)$/m)?.[1], data, raw };
      }
    }
  } catch (error) {
    if (error.name !== "TypeError" && error.name !== "AbortError") throw error;
  }
}

export async function all(response) {
  const seen = [];
  for await (const frame of frames(response)) seen.push(frame);
  return seen;
}

export const typesOf = (seen) => seen.map((frame) => JSON.parse(frame.data).type);
export const isTerminal = (type) => type === "RUN_FINISHED" || type === "RUN_ERROR";
