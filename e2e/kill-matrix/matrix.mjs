// Real gateways that are killed, stopped, filled and cut off while clients read: fault × store × protocol.
//
// Each trial starts a run, lets a fault happen when its client has seen a number of frames, and reads the run to its end with
// the client's cursor. It is compared with the log: frames that were seen and are not in it or cannot be read any more are
// lost, frames that came twice are doubled, and a run without exactly one terminal event, at its end, has a wrong ending.

import { spawn } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import path from "node:path";

import { all, binary, folder, frames, isTerminal, post, soon } from "../gateway/support.mjs";
import { postgres, sleep, until } from "../replicas/cluster.mjs";

/** Debian's libfaketime, which moves the clock of one process. */
const FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

const LEASE_MS = 3000;

export const PROTOCOLS = {
  "AG-UI": {
    route: "/",
    format: "ag-ui",
    body: (thread, run) => ({ ...about(thread, run), protocolVersion: "1.0", state: {}, tools: [], context: [], forwardedProps: {} }),
  },
  HAI: { route: "/awp", format: "hai", body: (thread, run) => about(thread, run) },
  "AI SDK": {
    route: "/api/chat",
    format: "ai-sdk",
    body: (thread) => ({ id: thread, messages: [{ id: `${thread}-user`, role: "user", parts: [{ type: "text", text: "hello" }] }] }),
  },
};

const about = (threadId, runId) => ({ threadId, runId, messages: [{ id: `${runId}-user`, role: "user", content: "hello" }] });

/** The events of the agent: text, reasoning, a tool call with its result, state, a step. */
function script(threadId, runId) {
  const [m, c, q] = [`${runId}-m`, `${runId}-c`, `${runId}-q`];
  const text = (delta) => ({ type: "TEXT_MESSAGE_CONTENT", messageId: m, delta });
  return [
    { type: "RUN_STARTED", threadId, runId },
    { type: "STEP_STARTED", stepName: "think" },
    { type: "REASONING_START", messageId: q },
    { type: "REASONING_MESSAGE_START", messageId: q, role: "reasoning" },
    { type: "REASONING_MESSAGE_CONTENT", messageId: q, delta: "hm" },
    { type: "REASONING_MESSAGE_END", messageId: q },
    { type: "REASONING_END", messageId: q },
    { type: "STEP_FINISHED", stepName: "think" },
    { type: "STATE_SNAPSHOT", snapshot: { list: [] } },
    { type: "TOOL_CALL_START", toolCallId: c, toolCallName: "search" },
    { type: "TOOL_CALL_ARGS", toolCallId: c, delta: '{"query":' },
    { type: "TOOL_CALL_ARGS", toolCallId: c, delta: '"ünïcode"}' },
    { type: "TOOL_CALL_END", toolCallId: c },
    { type: "TOOL_CALL_RESULT", messageId: `${runId}-r`, toolCallId: c, content: "42" },
    { type: "STATE_DELTA", delta: [{ op: "add", path: "/list/-", value: 1 }] },
    { type: "TEXT_MESSAGE_START", messageId: m, role: "assistant" },
    ...["The ", "answer ", "is ", "42, ", "as ", "ever."].map(text),
    { type: "TEXT_MESSAGE_END", messageId: m },
    { type: "RUN_FINISHED", threadId, runId },
  ];
}

/** An AG-UI server. The plan of a thread has `cut`: bytes after which it hangs up; `pad`: characters in every text; `pace`. */
async function agentOf(t) {
  const plans = new Map();
  const calls = new Map();
  const server = http.createServer((request, response) => {
    let body = "";
    request.setEncoding("utf8").on("data", (part) => (body += part));
    request.on("end", async () => {
      const { threadId, runId } = JSON.parse(body);
      calls.set(threadId, (calls.get(threadId) ?? 0) + 1);
      const { cut = Infinity, pad = 0, pace = 0 } = plans.get(threadId) ?? {};
      response.on("error", () => {});
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.flushHeaders();
      let left = cut;
      for (const event of script(threadId, runId)) {
        if (pad > 0 && event.type === "TEXT_MESSAGE_CONTENT") event.delta += "x".repeat(pad);
        const bytes = Buffer.from(`data: ${JSON.stringify(event)}\n\n`);
        if (response.destroyed) return;
        if (left < bytes.length) {
          // Odd cuts break the connection in the middle of a chunked body, even ones end it cleanly.
          const hangUp = () => (cut % 2 ? response.destroy() : response.end());
          return left > 0 ? response.write(bytes.subarray(0, left), hangUp) : hangUp();
        }
        response.write(bytes);
        left -= bytes.length;
        if (pace > 0) await sleep(pace);
      }
      response.end();
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const bytes = (thread, run) => script(thread, run).reduce((sum, event) => sum + Buffer.byteLength(`data: ${JSON.stringify(event)}\n\n`), 0);
  return { url: `http://127.0.0.1:${server.address().port}/`, plans, calls, bytes };
}

/** A gateway process that can be ended and started again. */
class Gateway {
  constructor(t, { cwd, store, agent, env = {}, fileLimit }) {
    Object.assign(this, { cwd, env: { ...process.env, ...env }, fileLimit, child: null, url: null, said: "" });
    this.env.STORE = store;
    fs.writeFileSync(
      path.join(cwd, "agentwire.toml"),
      `listen = "127.0.0.1:0"\nstore = { env = "STORE" }\nlease = "${LEASE_MS}ms"\nstore_patience = "${LEASE_MS * 0.45}ms"
log = { level = "warn" }\nheartbeat = "1s"\n[agents.agent]\nupstream = { kind = "ag-ui", url = "${agent.url}" }\n`,
    );
    t.after(() => this.end("SIGKILL"));
  }

  spawn() {
    const command = [binary, "serve"];
    // Without the signal, a write beyond the limit fails as on a full disk.
    if (this.fileLimit) command.unshift("bash", "-c", `trap '' XFSZ; ulimit -f ${this.fileLimit}; exec "$0" "$@"`);
    this.child = spawn(command[0], command.slice(1), { cwd: this.cwd, env: this.env, stdio: ["ignore", "ignore", "pipe"] });
    const child = this.child;
    this.said = "";
    this.ended = new Promise((resolve) => child.on("close", (code, signal) => resolve({ code, signal })));
    child.stderr.setEncoding("utf8").on("data", (text) => (this.said += text));
  }

  async start() {
    this.spawn();
    const died = this.ended.then(({ code }) => Promise.reject(new Error(`serve ended with ${code}: ${this.said}`)));
    died.catch(() => {});
    const listening = until("the gateway's address", () => this.said.match(/listening\s+\S*?(http:\/\/[\d.]+:\d+)\s/));
    this.url = (await Promise.race([listening, died]))[1];
    return this;
  }

  async end(signal) {
    if (!this.child) return;
    this.child.kill(signal);
    await soon("the end of a gateway", this.ended);
    this.child = null;
  }
}

/** The client of one trial. */
class Client {
  constructor(protocol, thread) {
    Object.assign(this, { protocol: PROTOCOLS[protocol], thread, run: `run-${thread}`, seen: [], unstored: [] });
  }

  async begin(url) {
    const { route, body } = this.protocol;
    const response = await post(`${url}${route}`, body(this.thread, this.run), { "idempotency-key": this.run });
    if (response.status !== 200) throw new Error(`${response.status}: ${await response.text()}`);
    this.run = response.headers.get("x-run-id") ?? this.run;
    this.stream = frames(response);
  }

  note({ id, data }) {
    // An ending that the log could not take has no position.
    if (!id) return void this.unstored.push(data);
    this.seen.push({ id, data });
    this.run = id.slice(0, id.lastIndexOf(":"));
  }

  /** Reads up to a number of frames in all; false if the stream ended before. */
  async read(count) {
    while (this.seen.length < count) {
      const { value, done } = await soon("a frame", this.stream.next());
      if (done) return false;
      this.note(value);
    }
    return true;
  }

  /** Leaves the stream, and reads the rest of the run with the cursor until it has ended. */
  async resume(url) {
    await this.stream?.return();
    await until(`the end of ${this.run}`, async () => {
      const headers = this.seen.length > 0 ? { "last-event-id": this.seen.at(-1).id } : {};
      const response = await fetch(`${url()}/runs/${this.run}/stream?format=${this.protocol.format}`, { headers }).catch(() => null);
      if (response?.status === 200) for (const frame of await all(response)) this.note(frame);
      else await response?.body?.cancel();
      const state = await fetch(`${url()}/runs/${this.run}`).catch(() => null);
      const known = state?.status === 200 ? await state.json() : null;
      return known && !["queued", "running", "paused"].includes(known.status);
    });
    // What came between the last read and the end.
    const headers = this.seen.length > 0 ? { "last-event-id": this.seen.at(-1).id } : {};
    for (const frame of await all(await fetch(`${url()}/runs/${this.run}/stream?format=${this.protocol.format}`, { headers }))) this.note(frame);
  }

  /** Compares what was seen with the log. */
  async verdict(url, agent) {
    const log = (await all(await fetch(`${url}/runs/${this.run}/stream?format=${this.protocol.format}`))).filter(({ id }) => id);
    const stored = new Map(log.map(({ id, data }) => [id, data]));
    const seen = new Map(this.seen.map(({ id, data }) => [id, data]));
    const gone = this.seen.filter(({ id, data }) => stored.get(id) !== data).length;
    const missed = log.filter(({ id }) => !seen.has(id)).length;
    const ends = (await all(await fetch(`${url}/runs/${this.run}/stream?format=ag-ui`))).map(({ data }) => isTerminal(JSON.parse(data).type));
    const isRight = ends.filter(Boolean).length === 1 && ends.at(-1) && (agent.calls.get(this.thread) ?? 0) <= 1;
    return { lost: gone + missed, doubled: this.seen.length - seen.size, ending: isRight ? 0 : 1 };
  }
}

/** One store: where a gateway keeps its data, and a second gateway on it. */
async function place(t, store, server, options = {}) {
  const agent = await agentOf(t);
  const cwd = folder(t);
  schemas += 1;
  const address = {
    memory: "memory:",
    SQLite: "sqlite:matrix.db",
    PostgreSQL: `${server?.address}?schema=matrix_${process.pid}_${schemas}&sslmode=disable`,
  }[store];
  return { agent, cwd, gateway: new Gateway(t, { cwd, store: address, agent, ...options }), again: () => new Gateway(t, { cwd, store: address, agent, ...options }) };
}

let schemas = 0;

/** The number of frames of an undisturbed run. A run that a busy machine cut short is repeated. */
async function length(gateway, protocol, agent) {
  let last;
  for (let attempt = 0; attempt < 5; attempt += 1) {
    const client = new Client(protocol, `whole${attempt}`);
    agent.plans.set(client.thread, {});
    await client.begin(gateway.url);
    await client.read(Infinity);
    await client.resume(() => gateway.url);
    if (client.seen.length >= 10) return client.seen.length;
    last = client.seen.at(-1)?.data;
  }
  throw new Error(`no undisturbed run came to its end, the last one with ${last}`);
}

/** Positions 0 to `count`, each `stride`-th and the last. */
const positions = (count, stride) => Array.from({ length: count + 1 }, (_, at) => at).filter((at) => at % stride === 0 || at === count);

const PACE = { pace: 4 };

/** The faults: a name, the stores that it exists for, and the trials. `trial` is called by `each` for every position. */
export const FAULTS = [
  {
    name: "`kill -9` of the gateway after every frame",
    stores: ["SQLite", "PostgreSQL"],
    async trials({ t, store, protocol, server, stride, add }) {
      const { agent, gateway } = await place(t, store, server);
      await gateway.start();
      for (const at of positions(await length(gateway, protocol, agent), stride)) {
        const client = await disturbed(agent, gateway, protocol, `t${at}`, at, PACE);
        await gateway.end("SIGKILL");
        await gateway.start();
        await client.resume(() => gateway.url);
        add(await client.verdict(gateway.url, agent));
      }
    },
  },
  {
    name: "`kill -9` again during the recovery",
    stores: ["SQLite", "PostgreSQL"],
    async trials({ t, store, protocol, server, stride, add }) {
      const { agent, gateway } = await place(t, store, server);
      await gateway.start();
      for (const wait of [0, 10, 30, 60, 120, 250].filter((_, at) => at % Math.ceil(stride / 4) === 0)) {
        const client = await disturbed(agent, gateway, protocol, `t${wait}`, 9, PACE);
        for (let times = 0; times < 3; times += 1) {
          await gateway.end("SIGKILL");
          gateway.spawn();
          await sleep(wait);
        }
        await gateway.end("SIGKILL");
        await gateway.start();
        await client.resume(() => gateway.url);
        add(await client.verdict(gateway.url, agent));
      }
    },
  },
  {
    name: "the agent's server hangs up at every byte",
    stores: ["memory", "SQLite", "PostgreSQL"],
    async trials({ t, store, protocol, server, stride, add }) {
      const { agent, gateway } = await place(t, store, server);
      await gateway.start();
      const cuts = positions(agent.bytes("t0000", "run-t0000"), stride * 16 + 1 - (stride === 1 ? 16 : 0));
      const worker = async () => {
        for (let cut = cuts.pop(); cut !== undefined; cut = cuts.pop()) {
          const thread = `t${String(cut).padStart(4, "0")}`;
          agent.plans.set(thread, { cut });
          const client = new Client(protocol, thread);
          await client.begin(gateway.url);
          await client.read(Infinity);
          await client.resume(() => gateway.url);
          add(await client.verdict(gateway.url, agent));
        }
      };
      await Promise.all([worker(), worker(), worker(), worker()]);
    },
  },
  {
    name: "`kill -9` of the database server",
    stores: ["PostgreSQL"],
    async trials({ t, store, protocol, server, stride, add }) {
      const { agent, gateway } = await place(t, store, server);
      await gateway.start();
      for (const at of positions(await length(gateway, protocol, agent), Math.max(stride, 5))) {
        const client = await disturbed(agent, gateway, protocol, `t${at}`, at, PACE);
        await server.end("SIGKILL");
        server.start();
        await client.resume(() => gateway.url);
        add(await client.verdict(gateway.url, agent));
      }
    },
  },
  {
    name: "the disk is full; later it has room again",
    stores: ["SQLite"],
    async trials({ t, store, protocol, stride, add }) {
      for (const blocks of [600, 700, 800, 1000, 1400].filter((_, at) => at % Math.ceil(stride / 4) === 0)) {
        const { agent, gateway } = await place(t, store, null, { fileLimit: blocks });
        await gateway.start();
        const clients = [];
        let failures = 0;
        // The last runs fill the file and fail; those after them are refused.
        for (let number = 0; number < 6; number += 1) {
          agent.plans.set(`t${number}`, { pad: 40_000 });
          const client = new Client(protocol, `t${number}`);
          const begun = await client.begin(gateway.url).then(() => true, () => false);
          if (!begun) {
            failures += 1;
            continue;
          }
          clients.push(client);
          await client.read(Infinity);
          if (client.unstored.some((data) => data.includes("STORE_UNAVAILABLE"))) failures += 1;
        }
        if (failures === 0) throw new Error(`the file of ${blocks} KiB was not full`);
        await gateway.end("SIGKILL");
        gateway.fileLimit = null;
        await gateway.start();
        for (const client of clients) {
          if (client.seen.length === 0) continue;
          await client.resume(() => gateway.url);
          add(await client.verdict(gateway.url, agent));
        }
      }
    },
  },
  {
    name: "SIGSTOP for longer than the lease; another gateway goes on",
    stores: ["SQLite", "PostgreSQL"],
    async trials({ t, store, protocol, server, stride, add }) {
      const { agent, gateway, again } = await place(t, store, server);
      await gateway.start();
      const other = await again().start();
      const total = await length(gateway, protocol, agent);
      for (const at of positions(total, Math.max(8, stride))) {
        const client = await disturbed(agent, gateway, protocol, `t${at}`, at, PACE);
        gateway.child.kill("SIGSTOP");
        await client.resume(() => other.url);
        gateway.child.kill("SIGCONT");
        await until("the woken gateway", () => fetch(`${gateway.url}/livez`).then(({ ok }) => ok, () => false));
        // Whatever the woken gateway tries to write now, the log stays as it is.
        await sleep(200);
        add(await client.verdict(other.url, agent));
      }
    },
  },
  {
    name: "the clock jumps by an hour and by a day, back and forth",
    stores: ["memory", "SQLite", "PostgreSQL"],
    async trials({ t, store, protocol, server, stride, add }) {
      const clock = path.join(folder(t), "clock");
      fs.writeFileSync(clock, "+0");
      const env = { LD_PRELOAD: FAKETIME, FAKETIME_TIMESTAMP_FILE: clock, FAKETIME_NO_CACHE: "1", FAKETIME_DONT_FAKE_MONOTONIC: "1", DONT_FAKE_MONOTONIC: "1" };
      if (!fs.existsSync(FAKETIME)) throw new Error(`${FAKETIME} was not found: install Debian's package libfaketime`);
      const { agent, gateway } = await place(t, store, server, { env });
      await gateway.start();
      const total = await length(gateway, protocol, agent);
      for (const jump of ["+1h", "-1h", "+1d", "-1d"].filter((_, at) => at % Math.ceil(stride / 4) === 0)) {
        for (const at of positions(total, Math.max(8, stride))) {
          const client = await disturbed(agent, gateway, protocol, `t${jump}${at}`, at, PACE);
          fs.writeFileSync(clock, jump);
          const { headers } = await fetch(`${gateway.url}/livez`);
          if (Math.abs(Date.parse(headers.get("date")) - Date.now()) < 1_800_000) throw new Error("the clock did not jump");
          await client.read(Infinity);
          fs.writeFileSync(clock, "+0");
          await client.resume(() => gateway.url);
          add(await client.verdict(gateway.url, agent));
        }
      }
    },
  },
];

/** A run whose client has seen a number of frames. */
async function disturbed(agent, gateway, protocol, thread, at, plan) {
  agent.plans.set(thread, plan);
  const client = new Client(protocol, thread);
  await client.begin(gateway.url);
  await client.read(at);
  return client;
}

/**
 * Runs all faults and calls `done` with each row of the table. `stride` leaves positions out; with `rotate`, each fault and store
 * has one protocol, the next one each time. Rows for which `known` returns true are left out.
 */
export async function matrix(t, { stride, rotate = false, known = () => false, done }) {
  const server = await postgres(t, "fsync=on");
  const protocols = Object.keys(PROTOCOLS);
  let turn = 0;
  for (const { name, stores, trials } of FAULTS) {
    for (const store of stores) {
      turn += 1;
      for (const protocol of rotate ? [protocols[turn % protocols.length]] : protocols) {
        if (known(name, store, protocol)) continue;
        const row = { name, store, protocol, trials: 0, lost: 0, doubled: 0, ending: 0, error: null };
        const add = ({ lost, doubled, ending }) => {
          row.trials += 1;
          row.lost += lost;
          row.doubled += doubled;
          row.ending += ending;
        };
        const ends = [];
        const inner = { after: (end) => ends.push(end) };
        try {
          await trials({ t: inner, store, protocol, server, stride, add });
        } catch (error) {
          row.error = error;
        }
        for (const end of ends.reverse()) await end();
        await done(row);
      }
    }
  }
}
