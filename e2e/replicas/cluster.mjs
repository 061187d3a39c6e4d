// PostgreSQL, several real gateways on it, an agent that the test drives, and a load balancer without stickiness.

import { execFile, execFileSync, spawn } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import os from "node:os";
import path from "node:path";
import { describe, it } from "node:test";
import { promisify } from "node:util";

import { binary, folder, frames, input, post, root, soon } from "../gateway/support.mjs";
import { freePort } from "../../examples/support/ports.mjs";
import { link, neighbour } from "./link.mjs";

/** The programs of the newest PostgreSQL on this machine. */
export const programs = (() => {
  const base = "/usr/lib/postgresql";
  const versions = fs.existsSync(base) ? fs.readdirSync(base).filter((name) => fs.existsSync(`${base}/${name}/bin/initdb`)) : [];
  versions.sort((a, b) => Number(b) - Number(a));
  return versions.length > 0 ? `${base}/${versions[0]}/bin` : "/usr/bin";
})();

/**
 * The tests of a file that wait for leases and time limits most of the time: `add` in place of `test`, and `run` at the end runs
 * `concurrency` of them at once, each with gateways of its own.
 */
export function parallel(name, concurrency) {
  const tests = [];
  const add = (title, body) => tests.push([title, body]);
  const run = () => describe(name, { concurrency }, () => tests.forEach(([title, body]) => it(title, body)));
  return { add, run };
}

export const sleep = (ms) => new Promise((wake) => setTimeout(wake, ms));

/** Waits until `check` returns something true. */
export async function until(what, check) {
  let isOver = false;
  const wait = async () => {
    // A check that never succeeds must not keep the process alive after the limit.
    while (!isOver) {
      const found = await check();
      if (found) return found;
      await sleep(25);
    }
  };
  return soon(what, wait()).finally(() => (isOver = true));
}

/** The output of a program. Not synchronous: the proxies and agents of all tests are in this process. */
export async function output(program, args, options = {}) {
  return (await promisify(execFile)(program, args, { encoding: "utf8", ...options })).stdout;
}

/** Runs a command that needs root. */
function asRoot(...command) {
  const line = process.getuid() === 0 ? command : ["sudo", "-n", ...command];
  try {
    execFileSync(line[0], line.slice(1), { stdio: "pipe" });
  } catch (error) {
    throw new Error(`a server with a small disk needs root, or \`sudo -n\`: ${line.join(" ")}: ${error.stderr ?? error.message}`);
  }
}

/**
 * A PostgreSQL server of its own. `settings` are further settings of the server. With `disk`, a size as of `mount`, its files are on a
 * disk of that size: `fill()` leaves no byte free, `free()` undoes it.
 */
export async function postgres(t, settings = "fsync=off", { disk } = {}) {
  const base = fs.mkdtempSync(path.join(os.tmpdir(), "agentwire-e2e-"));
  if (disk) asRoot("mount", "-t", "tmpfs", "-o", `size=${disk}`, "tmpfs", base);
  // For the user of the server.
  fs.chmodSync(base, 0o755);
  const ballast = path.join(base, "ballast");
  const home = path.join(base, "server");
  const env = { ...process.env, PG_SETTINGS: settings };
  const script = path.join(root, "scripts", "postgres");
  const readPid = () => Number(fs.readFileSync(path.join(home, "data", "postmaster.pid"), "utf8").split("\n")[0]);
  let address, pid;
  const start = async () => {
    address = (await output(script, ["start", home], { env })).trim();
    pid = readPid();
  };
  await start();
  // Ends the server if this process is killed.
  const watch = `while kill -0 ${process.pid} 2>/dev/null; do sleep 2; done
    kill -QUIT $(head -n 1 ${home}/data/postmaster.pid) 2>/dev/null; sleep 1; rm -rf ${base}/* ; umount ${base} 2>/dev/null; rm -rf ${base}`;
  spawn("sh", ["-c", watch], { detached: true, stdio: "ignore" }).unref();
  t.after(async () => {
    try {
      process.kill(Number(fs.readFileSync(path.join(home, "pooler", "pid"), "utf8")), "SIGTERM");
    } catch {}
    try {
      process.kill(pid, "SIGQUIT");
    } catch {}
    await until("the end of the server", () => !alive(pid));
    if (disk) asRoot("umount", "--lazy", base);
    fs.rmSync(base, { recursive: true, force: true });
  });
  const url = new URL(address);
  return {
    home,
    settings,
    get address() {
      return address;
    },
    get port() {
      return Number(url.port);
    },
    get pid() {
      return pid;
    },
    get isAlive() {
      return alive(pid);
    },
    start,
    fill() {
      const file = fs.openSync(ballast, "a");
      for (let size = 1 << 20; size > 0; size = Math.floor(size / 2)) {
        const bytes = Buffer.alloc(size);
        try {
          while (fs.writeSync(file, bytes) === size);
        } catch (error) {
          if (error.code !== "ENOSPC") throw error;
        }
      }
      fs.closeSync(file);
    },
    free: () => fs.rmSync(ballast),
    /** Ends the server: SIGQUIT is `pg_ctl stop -m immediate`; SIGKILL also ends its children. */
    async end(signal) {
      const children = signal === "SIGKILL" ? childrenOf(pid) : [];
      process.kill(pid, signal);
      for (const child of children) {
        try {
          process.kill(child, "SIGKILL");
        } catch {}
      }
      await until("the end of the server", () => ![pid, ...children].some(alive));
    },
    sql: (text) => sql(address, text),
  };
}

/** The output of a statement. */
export function sql(address, text) {
  const args = ["-XqAt", "-v", "ON_ERROR_STOP=1", "-d", address.replace(/\?.*/, ""), "-c", text];
  return execFileSync(path.join(programs, "psql"), args, { encoding: "utf8" }).trim();
}

export function alive(pid) {
  try {
    return !/^\d+ \(.*\) Z/.test(fs.readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return false;
  }
}

function childrenOf(pid) {
  return fs.readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ").filter(Boolean).map(Number);
}

/** Gateways end with this process. */
const gateways = new Set();
process.on("exit", () => gateways.forEach((child) => child.kill("SIGKILL")));
for (const signal of ["SIGTERM", "SIGINT"]) process.once(signal, () => process.exit(1));

/** One gateway process. `end` and `start` end it and start it again at another port, perhaps with another `program`. */
async function replica(t, { config, store, cwd, env = {}, args = [], program = binary }) {
  const self = { said: "", url: null, pid: null, ended: null, program };
  let child = null;
  self.start = async () => {
    child = spawn(self.program, ["serve", "--config", config, ...args], {
      cwd,
      env: { ...process.env, ...env, STORE: store },
      stdio: ["ignore", "ignore", "pipe"],
    });
    const process_ = child;
    gateways.add(process_);
    process_.on("exit", () => gateways.delete(process_));
    self.pid = child.pid;
    self.said = "";
    self.ended = new Promise((resolve) => process_.on("close", (code, signal) => resolve({ code, signal })));
    process_.stderr.setEncoding("utf8");
    self.url = await soon(
      "the gateway's address",
      new Promise((resolve, reject) => {
        process_.on("error", reject);
        process_.stderr.on("data", (text) => {
          self.said += text;
          const found = self.said.match(/listening\s+\S*?(http:\/\/[\d.]+:\d+)\s/);
          if (found) resolve(found[1]);
        });
        self.ended.then(({ code }) => reject(new Error(`serve ended with ${code}: ${self.said}`)));
      }),
    );
  };
  self.signal = (name) => child.kill(name);
  self.end = async (signal) => {
    child.kill(signal);
    return soon("the end of the gateway", self.ended);
  };
  t.after(async () => {
    child?.kill("SIGKILL");
    await self.ended;
  });
  await self.start();
  return self;
}

let schemas = 0;

/**
 * Gateways on one store. `agents` is TOML with `AGENT` in place of the agent's address. With `linked`, each gateway reaches
 * the server through a proxy of its own, `replicas[i].link`. `store` is another store for all.
 */
export async function cluster(t, options = {}) {
  const { server, count = 3, agents = AGENTS, lease = 15_000, settings = "", linked = false, parameters = "", store, env } = options;
  let { agent } = options;
  agent ??= await scriptedAgent(t);
  const cwd = folder(t);
  const configOf = (index) => path.join(cwd, `agentwire${index}.toml`);
  /** With `direct`, gateways reach each other past the database; `neighbours[i]` is the way to a gateway. */
  const neighbours = [];
  const patience = Math.floor(lease * 0.45);
  const times = `lease = "${lease}ms"\nstore_patience = "${patience}ms"\n`;
  for (let index = 0; index < count; index += 1) {
    // With `ownAgent`, each gateway calls the agent at a path of its own, its number.
    const url = options.ownAgent ? `${agent.url}${index}` : agent.url;
    let direct = "";
    if (options.direct) {
      const port = await freePort();
      neighbours.push(await neighbour(t, port));
      const advertise = `http://127.0.0.1:${neighbours[index].port}`;
      direct = `replicas = { key = { env = "REPLICAS_KEY" }, listen = "127.0.0.1:${port}", advertise = "${advertise}" }\n`;
    }
    fs.writeFileSync(configOf(index), `${times}${SETTINGS}${direct}${settings}\n${agents.replaceAll("AGENT", url)}`);
  }
  const schema = `e2e_${process.pid}_${(schemas += 1)}`;
  const replicas = await Promise.all(
    Array.from({ length: count }, async (_, index) => {
      let [address, between] = [store, null];
      if (!store) {
        between = linked ? await link(t, server.port) : null;
        const at = between ? server.address.replace(/:\d+\//, `:${between.port}/`) : server.address;
        address = `${at}?schema=${schema}&sslmode=disable${parameters}`;
      }
      const key = options.keys?.[index] ?? "a key of all gateways in this test";
      const made = await replica(t, { config: configOf(index), store: address, cwd, program: options.program, env: { REPLICAS_KEY: key, ...env, ...options.envOf?.(index) } });
      made.link = between;
      return made;
    }),
  );
  return { agent, replicas, neighbours, cwd, schema, one: replicas[0], two: replicas[1], three: replicas[2] };
}

/** The lease of tests in which one expires. */
export const SHORT_LEASE = 4000;

const SETTINGS = `
listen = "127.0.0.1:0"
store = { env = "STORE" }
log = { level = "warn" }
heartbeat = "1s"
`;

/** One agent for each policy. */
export const AGENTS = `
[agents.plain]
upstream = { kind = "ag-ui", url = "AGENT" }
busy = { policy = "reject", detached = "reject" }
default = true

[agents.queue]
upstream = { kind = "ag-ui", url = "AGENT" }
busy = { policy = "enqueue", limit = 50, detached = "enqueue" }

[agents.interrupt]
upstream = { kind = "ag-ui", url = "AGENT" }
busy = "interrupt"

[agents.cancel]
upstream = { kind = "ag-ui", url = "AGENT" }
on_disconnect = "cancel"

[agents.gate]
upstream = { kind = "ag-ui", url = "AGENT" }
approve = ["delete_*"]
`;

/**
 * An AG-UI server whose runs the test drives: `await agent.call(runId)` is the call of a run. A message `auto N` answers by
 * itself with N words.
 */
export async function scriptedAgent(t) {
  const calls = [];
  const waiting = new Map();
  const server = http.createServer((request, response) => {
    let body = "";
    request.setEncoding("utf8").on("data", (part) => (body += part));
    request.on("end", () => {
      const { threadId, runId, ...rest } = JSON.parse(body);
      response.on("error", () => {});
      response.writeHead(200, { "content-type": "text/event-stream" });
      const call = { threadId, runId, input: rest, headers: request.headers, began: performance.now(), ended: null, words: 0 };
      call.closed = new Promise((resolve) =>
        response.on("close", () => {
          call.ended ??= performance.now();
          resolve();
        }),
      );
      call.say = (event) => response.write(`data: ${JSON.stringify(event)}\n\n`);
      const messageId = `${runId}-answer`;
      call.word = () => {
        if (call.words === 0) call.say({ type: "TEXT_MESSAGE_START", messageId, role: "assistant" });
        call.say({ type: "TEXT_MESSAGE_CONTENT", messageId, delta: `word${call.words} ` });
        call.words += 1;
      };
      call.talk = (count) => {
        for (let index = 0; index < count; index += 1) call.word();
      };
      call.finish = (outcome) => {
        if (call.words > 0) call.say({ type: "TEXT_MESSAGE_END", messageId });
        call.say({ type: "RUN_FINISHED", threadId, runId, ...(outcome ? { outcome } : {}) });
        response.end();
      };
      call.say({ type: "RUN_STARTED", threadId, runId });
      calls.push(call);
      waiting.get(runId)?.(call);
      const auto = rest.messages?.at(-1)?.content?.match?.(/^auto (\d+)/);
      if (auto) {
        call.talk(Number(auto[1]));
        call.finish();
      }
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const find = (runId) => calls.find((call) => call.runId === runId);
  return {
    url: `http://127.0.0.1:${server.address().port}/`,
    calls,
    find,
    count: (runId) => calls.filter((call) => call.runId === runId).length,
    call: (runId) =>
      soon(`the call of ${runId}`, new Promise((resolve) => (find(runId) ? resolve(find(runId)) : waiting.set(runId, resolve)))),
  };
}

/**
 * A load balancer: every request goes to the next gateway. `cut()` returns the milliseconds after which a stream is cut, or
 * `null`. A gateway that refuses the connection is skipped.
 */
export async function balancer(t, replicas, { cut = () => null } = {}) {
  let next = 0;
  const used = new Map();
  const server = http.createServer((request, response) => {
    response.on("error", () => {});
    const parts = [];
    request.on("data", (part) => parts.push(part));
    request.on("end", () => attempt(replicas.length));
    const attempt = (left) => {
      const target = next++ % replicas.length;
      const url = new URL(request.url, replicas[target].url);
      const headers = { ...request.headers, host: url.host };
      const onward = http.request(url, { method: request.method, headers, agent: false }, (answer) => {
        used.set(target, (used.get(target) ?? 0) + 1);
        response.writeHead(answer.statusCode, { ...answer.headers, "x-replica": String(target) });
        response.flushHeaders();
        answer.pipe(response);
        answer.on("aborted", () => response.destroy());
        answer.on("error", () => response.destroy());
        response.on("close", () => onward.destroy());
        const limit = (answer.headers["content-type"] ?? "").includes("event-stream") ? cut(request) : null;
        if (limit !== null) {
          const timer = setTimeout(() => response.destroy(), limit);
          response.on("close", () => clearTimeout(timer));
        }
      });
      onward.on("error", (error) => {
        if (error.code === "ECONNREFUSED" && left > 1) return attempt(left - 1);
        response.headersSent ? response.destroy() : response.writeHead(502).end();
      });
      onward.end(Buffer.concat(parts));
    };
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${server.address().port}`, used };
}

/** A request with a JSON response: `{ status, body }`. */
export async function ask(method, url, body) {
  const init = { method, headers: { "content-type": "application/json" } };
  if (body !== undefined) init.body = JSON.stringify(body);
  const response = await soon(`an answer from ${url}`, fetch(url, init));
  const text = await response.text();
  let parsed = text;
  try {
    parsed = JSON.parse(text);
  } catch {}
  return { status: response.status, body: parsed, headers: response.headers };
}

export const get = (url) => ask("GET", url);

/** The stream of a request with a buffer: `take(n)` and `rest()`. */
export class Stream {
  constructor(response) {
    this.response = response;
    this.verdict = response.headers.get("agentwire-recovery");
    this.frames = frames(response);
    this.seen = [];
  }

  async take(count) {
    const taken = [];
    while (taken.length < count) {
      const { value, done } = await soon(`${count} frames after ${this.seen.length}`, this.frames.next());
      if (done) throw new Error(`the stream ended after ${this.seen.length} frames`);
      taken.push(value);
      this.seen.push(value);
    }
    return taken;
  }

  async rest() {
    const taken = [];
    for (;;) {
      const { value, done } = await soon(`the end of a stream after ${this.seen.length} frames`, this.frames.next());
      if (done) return taken;
      taken.push(value);
      this.seen.push(value);
    }
  }

  async close() {
    await this.frames.return();
  }
}

/** Starts a run at a gateway, with an agent of the cluster. */
export async function run(replica, agent, thread, id, text = "hello", more = {}) {
  const response = await post(`${replica.url}/agents/${agent}`, { ...input(thread, id, text), protocolVersion: "1.0", ...more });
  return new Stream(response);
}

export async function follow(replica, agent, id, after) {
  const query = after === undefined ? "" : `?after=${encodeURIComponent(after)}`;
  return new Stream(await soon("a stream", fetch(`${replica.url}/agents/${agent}/runs/${id}/stream${query}`)));
}

/**
 * Reads a run to its end with any number of connections, each at the next address, from the last cursor. Checks that nothing is
 * missing or doubled: the number of every event.
 */
export async function readThrough(at, agent, id, first) {
  const seen = [];
  let connections = 0;
  let stream = first;
  const deadline = performance.now() + 180_000;
  for (;;) {
    if (performance.now() > deadline) throw new Error(`timed out: the end of ${id} after ${seen.length} events`);
    stream ??= await follow({ url: at() }, agent, id, seen.at(-1)?.id).catch(() => null);
    if (stream && stream.response.status === 204) return { seen, connections };
    if (stream && stream.response.status === 200) {
      connections += 1;
      for await (const frame of stream.frames) {
        const [, seq] = frame.id?.match(/:(\d+)(?:\.\d+)?$/) ?? [];
        if (Number(seq) !== seen.length) throw new Error(`event ${seen.length} expected, ${frame.id} received`);
        seen.push(frame);
        const { type } = JSON.parse(frame.data);
        if (type === "RUN_FINISHED" || type === "RUN_ERROR") return { seen, connections };
      }
    } else {
      await stream?.response.body?.cancel();
      await sleep(50);
    }
    stream = undefined;
  }
}

export const last = (seen) => (seen.length > 0 ? JSON.parse(seen.at(-1).data) : undefined);
export const status = async (replica, agent, id) => (await get(`${replica.url}/agents/${agent}/runs/${id}`)).body.status;
