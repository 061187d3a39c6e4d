// Random operations of several clients at random gateways under faults, and a record of everything that they saw.
// `model_checks.mjs` compares the record with the promises.

import http from "node:http";

import { frames, input } from "../gateway/support.mjs";
import { cluster, get, postgres, sleep, until } from "./cluster.mjs";
import { check } from "./model_checks.mjs";

const LEASE = 5000;
const CLIENTS = 12;
const POLICIES = { p: "plain", q: "queue", i: "interrupt" };
const THREADS = ["p0", "p1", "q0", "q1", "i0"];

/** A generator of random numbers with a seed (mulberry32). */
function random(seed) {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let value = Math.imul(state ^ (state >>> 15), 1 | state);
    value = (value + Math.imul(value ^ (value >>> 7), 61 | value)) ^ value;
    return ((value ^ (value >>> 14)) >>> 0) / 4294967296;
  };
  return {
    below: (count) => Math.floor(next() * count),
    of: (list) => list[Math.floor(next() * list.length)],
    chance: (part) => next() < part,
  };
}

/** An agent that plays the script in the question, and records its calls. */
async function modelAgent(t) {
  const calls = [];
  const server = http.createServer((request, response) => {
    let body = "";
    request.setEncoding("utf8").on("data", (part) => (body += part));
    request.on("end", async () => {
      const { threadId, runId, messages, resume } = JSON.parse(body);
      const call = { threadId, runId, owner: Number(request.url.slice(1)), began: performance.now(), ended: Infinity, answers: resume ?? [] };
      calls.push(call);
      response.on("error", () => {});
      response.on("close", () => (call.ended = performance.now()));
      response.writeHead(200, { "content-type": "text/event-stream" });
      const say = (event) => !response.destroyed && response.write(`data: ${JSON.stringify(event)}\n\n`);
      say({ type: "RUN_STARTED", threadId, runId });
      const question = messages.findLast(({ role }) => role === "user")?.content ?? "";
      const { words = 1, pause = 0, end = "finish" } = question.startsWith("{") ? JSON.parse(question) : {};
      const messageId = `${runId}-answer`;
      say({ type: "STATE_DELTA", delta: [{ op: "add", path: `/runs/${runId}`, value: words }] });
      for (let word = 0; word < words && !response.destroyed; word += 1) {
        if (word === 0) say({ type: "TEXT_MESSAGE_START", messageId, role: "assistant" });
        say({ type: "TEXT_MESSAGE_CONTENT", messageId, delta: `${runId}.${word} ` });
        if (pause > 0) await sleep(pause);
      }
      if (words > 0) say({ type: "TEXT_MESSAGE_END", messageId });
      if (end === "hang") return;
      if (end === "fail") say({ type: "RUN_ERROR", message: "no", code: "AGENT_SAYS_NO" });
      else if (end === "ask") {
        const interrupts = [{ id: `${runId}-q`, reason: "confirm" }];
        say({ type: "RUN_FINISHED", threadId, runId, outcome: { type: "interrupt", interrupts } });
      } else say({ type: "RUN_FINISHED", threadId, runId });
      response.end();
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${server.address().port}/`, calls };
}

/** Everything that clients saw and were told. */
class World {
  constructor(group, dice) {
    Object.assign(this, { group, dice, created: 0, isOver: false });
    /** Runs that a gateway has accepted: id → thread. */
    this.runs = new Map();
    /** Requests whose outcome is unknown or a refusal: id → thread. */
    this.asked = new Map();
    /** Frames that were seen: `run:seq` → bytes, and who saw other bytes. */
    this.frames = new Map();
    this.broken = [];
    /** Patches: value → "sent", then "acknowledged" or "refused"; with its thread. */
    this.patches = new Map();
    /** Accepted answers: interrupt → run ids. */
    this.answers = new Map();
    /** Runs whose change of the state the next attempt to begin the thread has replaced. */
    this.replaced = new Set();
    /** Times at which gateways were stopped: { owner, from, to }. */
    this.stops = [];
    /** All faults: { at, kind, index }. */
    this.faults = [];
    this.counts = {};
  }

  count(name) {
    this.counts[name] = (this.counts[name] ?? 0) + 1;
  }

  get replica() {
    return this.dice.of(this.group.replicas);
  }

  url(thread, path = "") {
    return `${this.replica.url}/agents/${POLICIES[thread[0]]}${path}`;
  }

  /** A request; `null` if there was no response. */
  async ask(method, url, body) {
    const init = { method, headers: { "content-type": "application/json" }, signal: AbortSignal.timeout(12_000) };
    if (body !== undefined) init.body = JSON.stringify(body);
    return fetch(url, init).catch(() => null);
  }

  /** Reads a stream, records its frames and checks that their numbers have no hole. */
  async read(response, run, next, limit) {
    let count = 0;
    const reading = frames(response);
    for (;;) {
      // A connection that breaks, or that this client gives up after its time limit, is the end of the reading.
      const { value, done } = await reading.next().catch(() => ({ done: true }));
      if (done) break;
      const { id, data } = value;
      if (id === undefined) continue;
      const seq = Number(id.slice(id.lastIndexOf(":") + 1));
      if (id.slice(0, id.lastIndexOf(":")) !== run || seq !== next) {
        this.broken.push(`P1: a reader of ${run} expected ${next} and received ${id}`);
        break;
      }
      if (!this.frames.has(id)) this.frames.set(id, data);
      else if (this.frames.get(id) !== data) this.broken.push(`P1: two readers saw different events ${id}`);
      next += 1;
      count += 1;
      if (limit !== undefined && count >= limit) break;
    }
    await reading.return().catch(() => {});
    return next;
  }

  /** Starts a run, or repeats a start. */
  async start(thread, run, members) {
    this.asked.set(run, thread);
    const response = await this.ask("POST", this.url(thread), { ...input(thread, run, ""), protocolVersion: "1.0", ...members });
    if (response?.status !== 200) return void (await response?.body?.cancel());
    // A refusal is a stream of RUN_ERROR without a position.
    const before = this.frames.has(`${run}:0`);
    await this.read(response, run, 0, this.dice.chance(0.5) ? this.dice.below(6) + 1 : undefined);
    if (before || this.frames.has(`${run}:0`)) this.runs.set(run, thread);
  }

  question(script) {
    const content = JSON.stringify(script);
    return { messages: [{ id: `u${this.created}-${this.dice.below(1e9)}`, role: "user", content }] };
  }

  script() {
    const end = this.dice.of(["finish", "finish", "finish", "finish", "ask", "fail", "hang"]);
    return { words: this.dice.below(30), pause: this.dice.of([0, 0, 10, 60]), end };
  }

  async step() {
    const { dice } = this;
    const thread = dice.of(THREADS);
    const known = dice.of([...this.runs.keys()]);
    const chosen = dice.below(100);
    if (chosen < 22) {
      this.count("start");
      const run = `r${(this.created += 1)}`;
      const members = this.question(this.script());
      members.messages[0].id = `${run}-user`;
      const starts = [this.start(thread, run, members)];
      // The same request again, at another gateway.
      if (dice.chance(0.3)) starts.push(this.start(thread, run, members));
      await Promise.all(starts);
    } else if (chosen < 45) {
      this.count("patch");
      const value = `p${(this.created += 1)}`;
      this.patches.set(value, { thread, fate: "sent" });
      const response = await this.ask("PATCH", this.url(thread, `/state/${thread}`), [{ op: "add", path: "/list/-", value }]);
      if (response) {
        const text = await response.text().catch(() => "");
        if (response.status === 200) this.patches.get(value).fate = "acknowledged";
        else if (![503, 500].includes(response.status)) this.broken.push(`a patch of ${thread} got ${response.status}: ${text}`);
      }
    } else if (chosen < 60 && known) {
      const word = dice.of(["stop", "stop", "stop", "pause", "resume", "resume"]);
      this.count(word);
      const response = await this.ask("POST", this.url(this.runs.get(known), `/runs/${known}/${word}`));
      if (response) {
        const text = await response.text().catch(() => "");
        const allowed = word === "stop" ? [200, 503, 500] : [200, 409, 503, 500];
        if (!allowed.includes(response.status)) this.broken.push(`${word} of ${known} got ${response.status}: ${text}`);
      }
    } else if (chosen < 80 && known) {
      await this.follow(known);
    } else if (chosen < 92) {
      await this.answer(thread);
    } else {
      this.count("look");
      const path = dice.of([`/message_snapshot/${thread}`, `/state_snapshot/${thread}`, `/threads/${thread}/pending`, "/threads"]);
      const response = await this.ask("GET", this.url(thread, path));
      if (response) {
        const text = await response.text().catch(() => "");
        if (![200, 503, 500].includes(response.status)) this.broken.push(`${path} got ${response.status}: ${text}`);
      }
    }
  }

  /** Follows a run with a few connections, each at another gateway, from the last cursor. */
  async follow(run) {
    this.count("follow");
    let next = 0;
    for (let connection = 0; connection < 4 && !this.isOver; connection += 1) {
      const after = next === 0 ? "" : `?after=${run}:${next - 1}`;
      const response = await this.ask("GET", this.url(this.runs.get(run), `/runs/${run}/stream${after}`));
      if (!response) continue;
      if (response.status === 204) return;
      if (response.status !== 200) {
        const text = await response.text().catch(() => "");
        if (![503, 500].includes(response.status)) this.broken.push(`P3: following ${run} after ${next - 1} got ${response.status}: ${text}`);
        continue;
      }
      const verdict = response.headers.get("agentwire-recovery");
      if (verdict !== "whole") this.broken.push(`P3: ${run} after ${next - 1} is ${verdict}`);
      next = await this.read(response, run, next, this.dice.below(12) + 1);
    }
  }

  /** Answers the open questions of a thread, sometimes twice at once and differently. */
  async answer(thread) {
    const response = await this.ask("GET", this.url(thread, `/threads/${thread}/pending`));
    const open = response?.status === 200 ? await response.json().catch(() => []) : [];
    if (open.length === 0) return;
    this.count("answer");
    const give = async () => {
      const run = `a${(this.created += 1)}`;
      const resume = open.map(({ id }) => ({ interruptId: id, status: "resolved", payload: { by: run } }));
      await this.start(thread, run, { resume, messages: [] });
      if (this.runs.has(run)) for (const { id } of open) this.answers.set(id, [...(this.answers.get(id) ?? []), run]);
    };
    await Promise.all(this.dice.chance(0.5) ? [give(), give()] : [give()]);
  }

  async client() {
    while (!this.isOver) {
      await this.step();
      await sleep(this.dice.below(100));
    }
  }
}

/** One fault, and its end. */
export async function fault(world, server) {
  const { dice, group } = world;
  const index = dice.below(group.replicas.length);
  const replica = group.replicas[index];
  const kinds = ["kill", "kill", "stop", "term", ...(server ? ["cut", "hole", "delay", "mute", "commit", "commit", "server"] : []), ...(group.neighbours.length > 0 ? ["neighbour"] : [])];
  const kind = dice.of(kinds);
  world.count(`fault ${kind}`);
  world.faults.push({ at: performance.now(), kind, index });
  const { link } = replica;
  if (kind === "kill" || kind === "term") {
    await replica.end(kind === "kill" ? "SIGKILL" : "SIGTERM");
    await sleep(dice.below(3000));
    // The server may be away; it is waited for.
    await replica.start();
  } else if (kind === "stop") {
    const stop = { owner: index, from: performance.now(), to: Infinity };
    world.stops.push(stop);
    replica.signal("SIGSTOP");
    await sleep(dice.below(2 * LEASE));
    replica.signal("SIGCONT");
    stop.to = performance.now();
  } else if (kind === "cut" || kind === "hole") {
    link.set(kind);
    await sleep(dice.below(2 * LEASE));
    link.set("pass");
  } else if (kind === "delay") {
    link.delay = 200;
    await sleep(dice.below(LEASE));
    link.delay = 0;
  } else if (kind === "neighbour") {
    group.neighbours[index].cut();
    await sleep(dice.below(LEASE));
    group.neighbours[index].isOpen = true;
  } else if (kind === "mute") {
    link.notifications = false;
    await sleep(dice.below(LEASE));
    link.notifications = true;
  } else if (kind === "commit") {
    for (let cut = 0; cut < 5; cut += 1) {
      link.cutAtCommit(1 + dice.below(4));
      await sleep(300);
    }
  } else {
    await server.end(dice.of(["SIGQUIT", "SIGKILL"]));
    await sleep(dice.below(1500));
    await server.start();
  }
}

const AGENTS = Object.values({
  plain: `busy = { policy = "reject", detached = "reject" }\ndefault = true`,
  queue: `busy = { policy = "enqueue", limit = 50, detached = "enqueue" }`,
  interrupt: `busy = "interrupt"`,
}).map((busy, index) => `[agents.${["plain", "queue", "interrupt"][index]}]\nupstream = { kind = "ag-ui", url = "AGENT" }\n${busy}\n`).join("\n");

/**
 * Runs the model with a seed; returns the violations and the counts of operations and faults. `program` is another binary of the
 * gateways, and `disturb` is called in place of a random fault.
 */
export async function model(t, { seed, seconds, gateways = 3, kind = "postgres", program, disturb = fault }) {
  const dice = random(seed);
  const server = kind === "postgres" ? await postgres(t) : null;
  const agent = await modelAgent(t);
  const options = { agent, agents: AGENTS, count: gateways, lease: LEASE, linked: server !== null, ownAgent: true, program };
  // Half of the seeds have the direct way between gateways.
  if (server && seed % 2 === 0) options.direct = true;
  const group = await cluster(t, server ? { ...options, server } : { ...options, store: "sqlite:model.db" });
  const world = new World(group, dice);
  for (const thread of THREADS) {
    // A busy machine may lose a lease even without a fault.
    for (let attempt = 0, ended = false; !ended; attempt += 1) {
      const run = `${thread}-first${attempt}`;
      const messages = [{ id: `${run}-user`, role: "user", content: '{"words":0}' }];
      await world.start(thread, run, { messages, state: { list: [], runs: {} } });
      const found = await until("the first run has ended", async () => {
        const { status, body } = await get(world.url(thread, `/runs/${run}`));
        return status !== 200 || !["running", "queued"].includes(body.status) ? body.status ?? "none" : false;
      });
      ended = found === "finished";
      // The next attempt sends the first state again.
      if (!ended) world.replaced.add(run);
    }
  }
  const clients = Array.from({ length: CLIENTS }, () => world.client());
  const end = performance.now() + seconds * 1000;
  while (performance.now() < end) {
    await sleep(500 + dice.below(3000));
    await disturb(world, server);
  }
  world.isOver = true;
  await Promise.all(clients);
  await check(world);
  return { broken: world.broken, counts: world.counts, runs: world.runs.size, frames: world.frames.size };
}
