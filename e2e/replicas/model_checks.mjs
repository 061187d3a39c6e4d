// The promises, checked at the end of a model run, when all faults are over.

import { frames, isTerminal } from "../gateway/support.mjs";
import { ask, get, until } from "./cluster.mjs";

const POLICIES = { p: "plain", q: "queue", i: "interrupt" };

/** The longest time that a stopped run's agent may still be connected when the next one is called. */
const STOP_LATENCY_MS = 3000;

async function logOf(url) {
  const response = await fetch(url);
  const seen = [];
  for await (const { id, data } of frames(response)) seen.push({ id, data });
  return seen;
}

export async function check(world) {
  const { group, broken, agent = group.agent } = world;
  const at = (index, thread, path) => `${group.replicas[index % group.replicas.length].url}/agents/${POLICIES[thread[0]]}${path}`;
  // A request without a response may have been accepted.
  for (const [run, thread] of world.asked) {
    if (world.runs.has(run)) continue;
    const { status } = await until(`${run} is known`, async () => {
      const found = await get(at(0, thread, `/runs/${run}`));
      return found.status < 500 && found;
    });
    if (status === 200) world.runs.set(run, thread);
  }
  // Runs that wait for ever are stopped; then every accepted run has ended.
  const live = new Set(world.runs.keys());
  let round = 0;
  await until("all runs have ended", async () => {
    round += 1;
    for (const run of [...live]) {
      const thread = world.runs.get(run);
      const { status, body } = await get(at(round, thread, `/runs/${run}`));
      if (status === 200 && !["queued", "running", "paused"].includes(body.status)) live.delete(run);
      else if (status === 404) live.delete(run), broken.push(`P2: ${run} was accepted and is unknown`);
      else if (round > 2) await ask("POST", at(round, thread, `/runs/${run}/stop`)).catch(() => {});
    }
    return live.size === 0;
  });

  const logs = new Map();
  for (const [run, thread] of world.runs) {
    const all = await Promise.all(group.replicas.map((_, index) => logOf(at(index, thread, `/runs/${run}/stream`))));
    const [log] = all;
    logs.set(run, log.map(({ data }) => JSON.parse(data)));
    if (all.some((other) => JSON.stringify(other) !== JSON.stringify(log))) broken.push(`P1: the log of ${run} differs between gateways`);
    log.forEach(({ id }, seq) => id !== `${run}:${seq}` && broken.push(`P1: event ${seq} of ${run} is ${id}`));
    const ends = logs.get(run).filter(({ type }) => isTerminal(type)).length;
    if (ends !== 1 || !isTerminal(logs.get(run).at(-1).type)) broken.push(`P5: ${run} has ${ends} terminal events`);
  }
  for (const [id, data] of world.frames) {
    const [run, seq] = [id.slice(0, id.lastIndexOf(":")), Number(id.slice(id.lastIndexOf(":") + 1))];
    const stored = logs.get(run)?.[seq];
    if (JSON.stringify(stored) !== JSON.stringify(JSON.parse(data))) broken.push(`P2: ${id} was seen and is not in the log`);
  }

  const calls = Map.groupBy ? Map.groupBy(agent.calls, ({ runId }) => runId) : groupBy(agent.calls, ({ runId }) => runId);
  for (const [run, of] of calls) if (of.length > 1) broken.push(`P8, P9: the agent was called ${of.length} times for ${run}`);
  const answered = new Map();
  for (const { answers, runId } of agent.calls) {
    for (const { interruptId, payload } of answers) {
      if (answered.has(interruptId)) broken.push(`the agent got two answers to ${interruptId}`);
      answered.set(interruptId, payload.by);
      if (payload.by !== runId) broken.push(`the agent got the answer of ${payload.by} in ${runId}`);
    }
  }
  for (const [id, runs] of world.answers) if (new Set(runs).size > 1) broken.push(`two answers to ${id} were accepted: ${runs}`);

  const threads = [...new Set(world.runs.values())];
  for (const [number, thread] of threads.entries()) await checkThread(world, logs, thread, (path) => at(number, thread, path));
  return broken;
}

async function checkThread(world, logs, thread, url) {
  const { broken, group } = world;
  const runs = (await get(url(`/threads/${thread}/runs?limit=200`))).body.runs ?? [];
  const order = runs.map(({ runId }) => runId).reverse();

  // The state is the fold of the logs and of the patches between runs: each change once.
  const { snapshot } = (await get(url(`/state_snapshot/${thread}`))).body;
  const list = snapshot.list ?? [];
  if (new Set(list).size !== list.length) broken.push(`a patch of ${thread} was applied twice: ${list}`);
  for (const [value, { thread: of, fate }] of world.patches) {
    if (of === thread && fate === "acknowledged" && !list.includes(value)) broken.push(`P2: the acknowledged patch ${value} of ${thread} is lost`);
  }
  for (const value of list) if (world.patches.get(value)?.thread !== thread) broken.push(`nobody sent the patch ${value} of ${thread}`);
  const changed = [...logs].filter(([run, log]) => world.runs.get(run) === thread && !world.replaced.has(run) && log.some(isOwnDelta)).map(([run]) => run);
  const kept = Object.keys(snapshot.runs ?? {});
  for (const run of changed) if (!kept.includes(run)) broken.push(`the change of ${run} is in its log and not in the state of ${thread}`);
  for (const run of kept) if (!changed.includes(run)) broken.push(`the change of ${run} is in the state of ${thread} and not in its log`);

  // The history is the fold of the logs in the order in which the runs started.
  const { messages } = (await get(url(`/message_snapshot/${thread}`))).body;
  const expected = order
    .filter((run) => logs.has(run))
    .map((run) => ({ id: `${run}-answer`, content: logs.get(run).filter(({ type }) => type === "TEXT_MESSAGE_CONTENT").map(({ delta }) => delta).join("") }))
    .filter(({ content }) => content !== "");
  const found = messages.filter(({ role }) => role === "assistant").map(({ id, content }) => ({ id, content: content ?? "" }));
  const shown = found.filter(({ content }) => content !== "");
  if (runs.length < 200 && JSON.stringify(shown) !== JSON.stringify(expected)) {
    broken.push(`the history of ${thread} is ${shown.map(({ id }) => id)}, its logs say ${expected.map(({ id }) => id)}`);
  }
  const position = new Map(messages.map(({ id }, index) => [id, index]));
  for (const { id } of shown) {
    const question = position.get(id.replace("-answer", "-user"));
    if (id.startsWith("r") && !(question < position.get(id))) broken.push(`the question of ${id} is missing or late in ${thread}`);
  }

  // First come, first served, and one agent at a time.
  const calls = group.agent.calls.filter(({ threadId }) => threadId === thread).toSorted((a, b) => a.began - b.began);
  if (thread.startsWith("q")) {
    const called = calls.map(({ runId }) => runId);
    const due = order.filter((run) => called.includes(run));
    if (runs.length < 200 && JSON.stringify(called) !== JSON.stringify(due)) broken.push(`the queue of ${thread} ran ${called}, the order was ${due}`);
  }
  for (const [index, call] of calls.entries()) {
    const next = calls[index + 1];
    if (!next || call.ended <= next.began + STOP_LATENCY_MS) continue;
    const stops = stopped(world.stops, call.owner);
    const stop = stops.find(({ from, to }) => from <= next.began && call.ended >= from && call.ended <= to + STOP_LATENCY_MS);
    if (stop) continue;
    const { cause } = (await get(url(`/runs/${call.runId}`))).body;
    const faults = world.faults.filter(({ at }) => at <= call.ended).slice(-9).map(({ at, kind, index }) => `${kind} of ${index} at ${Math.round(at)}`);
    const times = `from ${Math.round(next.began)} to ${Math.round(call.ended)} ms, at gateways ${call.owner} and ${next.owner}`;
    broken.push(`P4: ${call.runId} (${cause}) and ${next.runId} ran at the same time ${times}, after ${faults.join(", ")}`);
  }
}

/**
 * The times at which a gateway could not close its connections, because it was stopped. One that is stopped again before it
 * had time to close them was stopped all the time.
 */
export function stopped(stops, gateway) {
  const times = [];
  for (const { owner, from, to } of stops.toSorted((a, b) => a.from - b.from)) {
    if (owner !== gateway) continue;
    if (times.length > 0 && from <= times.at(-1).to + STOP_LATENCY_MS) times.at(-1).to = Math.max(to, times.at(-1).to);
    else times.push({ from, to });
  }
  return times;
}

/** The change that the agent makes itself, as it is logged. */
const isOwnDelta = ({ type, delta }) => type === "STATE_DELTA" && delta.some(({ path }) => path.startsWith("/runs/"));

function groupBy(list, key) {
  const groups = new Map();
  for (const item of list) groups.set(key(item), [...(groups.get(key(item)) ?? []), item]);
  return groups;
}
