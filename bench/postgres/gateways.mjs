// Measures two gateways on one PostgreSQL server: readers and commands at the gateway that does not drive a run, the time of a
// take-over, and the database's work for many readers. AGENTWIRE is the binary; run by `bench/postgres/run`.

import { ask, cluster, follow, postgres, run, sleep, until } from "../../e2e/replicas/cluster.mjs";

// Sections to measure, all by default: lag, commands, readers, takeover, size.
const wanted = (process.env.SECTIONS ?? "lag,commands,readers,takeover,size").split(",");
const ends = [];
const t = { after: (end) => ends.push(end) };
const server = await postgres(t, "fsync=on shared_buffers=256MB");
const WORDS = 400;

function show(name, times) {
  times.sort((a, b) => a - b);
  const at = (part) => times[Math.floor((times.length - 1) * part)].toFixed(1);
  console.log(`| ${name} | ${times.length} | ${at(0.5)} | ${at(0.99)} |`);
}

async function started(group, id) {
  const stream = await run(group.one, "plain", id, id);
  if (stream.response.status !== 200) throw new Error(`a run got ${stream.response.status}`);
  const call = await group.agent.call(id);
  return { stream, call };
}

/** The time of each frame of a stream, by its position. */
async function times(stream) {
  const found = new Map();
  for await (const { id } of stream.frames) found.set(id, performance.now());
  return found;
}

/** Milliseconds by which a reader at the other gateway is later than one at the owner. */
async function lag(name, options, mute) {
  if (!wanted.includes("lag")) return;
  const group = await cluster(t, { server, count: 2, ...options });
  if (mute) for (const replica of group.replicas) replica.link.notifications = false;
  const { stream, call } = await started(group, "r");
  const here = times(stream);
  const there = times(await follow(group.two, "plain", "r"));
  await sleep(1000);
  for (let word = 0; word < WORDS; word += 1) {
    call.word();
    await sleep(10 + Math.random() * 30);
  }
  call.finish();
  const [first, second] = [await here, await there];
  const seqs = [...second.keys()].filter((id) => first.has(id)).slice(20);
  show(name, seqs.map((id) => second.get(id) - first.get(id)));
  for (const replica of group.replicas) await replica.end("SIGTERM");
}

console.log("| two gateways, milliseconds | samples | p50 | p99 |\n|---|---:|---:|---:|");
await lag("reader at the other gateway, notified", {});
await lag("reader at the other gateway, direct (`advertise`)", { direct: true });
await lag("reader at the other gateway, `notify=false` (poll of 25 ms)", { parameters: "&notify=false" });
await lag("reader at the other gateway, notifications lost (poll of 100 ms)", { linked: true }, true);

const timed = async (work) => {
  const begun = performance.now();
  const { status, body } = await work();
  if (status !== 200) throw new Error(`${status} ${JSON.stringify(body)}`);
  return performance.now() - begun;
};
if (wanted.includes("commands")) {
  const group = await cluster(t, { server, count: 2 });
  const { call } = await started(group, "r");
  const [patches, pauses, stops] = [[], [], []];
  for (let count = 0; count < 200; count += 1) {
    const change = [{ op: "add", path: "/n", value: count }];
    patches.push(await timed(() => ask("PATCH", `${group.two.url}/agents/plain/state/r`, change)));
  }
  for (let count = 0; count < 200; count += 1) {
    pauses.push(await timed(() => ask("POST", `${group.two.url}/agents/plain/runs/r/${count % 2 ? "resume" : "pause"}`)));
  }
  for (let count = 0; count < 100; count += 1) {
    await started(group, `stop${count}`);
    stops.push(await timed(() => ask("POST", `${group.two.url}/agents/plain/runs/stop${count}/stop`)));
  }
  show("PATCH through the other gateway", patches);
  show("pause or resume through the other gateway", pauses);
  show("stop through the other gateway", stops);
  call.finish();
  for (const replica of group.replicas) await replica.end("SIGTERM");
}

if (wanted.includes("readers")) {
  const group = await cluster(t, { server, count: 2 });
  const { call } = await started(group, "r");
  // The database's transactions per second while one run of ten events a second is followed at the other gateway.
  const transactions = () => Number(server.sql("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'agentwire'"));
  const scans = () => Number(server.sql(`SELECT coalesce(sum(idx_scan), 0) FROM pg_stat_user_tables WHERE schemaname = '${group.schema}' AND relname LIKE 'log\\_%'`));
  const rows = [];
  for (const readers of [1, 300]) {
    const open = [];
    while (open.length < readers) {
      // Requests beyond the connections of a busy gateway are told to come back.
      const more = await Promise.all(Array.from({ length: Math.min(20, readers - open.length) }, () => follow(group.two, "plain", "r")));
      open.push(...more.filter(({ response }) => response.status === 200));
    }
    const reading = open.map((stream) => stream.take(100));
    await sleep(3000);
    const [before, scansBefore] = [transactions(), scans()];
    for (let word = 0; word < 100; word += 1) {
      call.word();
      await sleep(100);
    }
    await sleep(1500);
    rows.push([readers, (transactions() - before) / 11.5, (scans() - scansBefore) / 11.5]);
    await Promise.all(reading);
    for (const stream of open) await stream.close();
  }
  call.finish();
  console.log("\n| readers of one run with 10 events/s at the other gateway | transactions/s | index scans of the log/s |\n|---:|---:|---:|");
  for (const [readers, done, scanned] of rows) console.log(`| ${readers} | ${done.toFixed(0)} | ${scanned.toFixed(1)} |`);
  for (const replica of group.replicas) await replica.end("SIGTERM");
}

if (wanted.includes("takeover")) {
  console.log("\n| take-over after kill -9, seconds until a reader at another gateway has the ending | samples | median | max | allowed |\n|---|---:|---:|---:|---:|");
  for (const lease of [3000, 15_000]) {
    const found = [];
    for (let round = 0; round < (lease === 3000 ? 5 : 2); round += 1) {
      const pair = await cluster(t, { server, count: 2, lease });
      const { call } = await started(pair, "r");
      call.talk(3);
      const reader = await follow(pair.two, "plain", "r");
      await reader.take(5);
      await sleep(500 + Math.random() * 2000);
      const begun = performance.now();
      await pair.one.end("SIGKILL");
      await until("the ending", async () => (await reader.take(1)).some(({ data }) => data.includes("RUN_ERROR")));
      found.push((performance.now() - begun) / 1000);
      await pair.two.end("SIGKILL");
    }
    found.sort((a, b) => a - b);
    const allowed = (lease * 4) / 3000 + 1;
    console.log(`| lease ${lease / 1000} s | ${found.length} | ${found[Math.floor(found.length / 2)].toFixed(1)} | ${found.at(-1).toFixed(1)} | ${allowed.toFixed(1)} |`);
  }
}

// Token events of 20 runs, before and after compaction.
if (wanted.includes("size")) {
  const group = await cluster(t, { server, count: 1, settings: 'retention = { events = "3s" }\n' });
  const streams = [];
  for (let number = 0; number < 20; number += 1) streams.push(await run(group.one, "plain", `size${number}`, `size${number}`, "auto 2000"));
  for (const stream of streams) await stream.rest();
  const log = `(SELECT sum(pg_total_relation_size(inhrelid)) FROM pg_inherits WHERE inhparent = '${group.schema}.log'::regclass)`;
  const [events, payload, bytes] = server.sql(`SELECT sum(n), sum(octet_length(body) - 4 * n), ${log} FROM ${group.schema}.log`).split("|").map(Number);
  await until("the compaction", () => server.sql(`SELECT count(*) FROM ${group.schema}.runs WHERE kept = 'exact'`) === "0");
  const after = Number(server.sql(`SELECT pg_total_relation_size('${group.schema}.compacted')`));
  console.log("\n| events | payload, bytes | log, bytes | log / payload | compacted, bytes | compacted / payload |\n|---:|---:|---:|---:|---:|---:|");
  console.log(`| ${events} | ${payload} | ${bytes} | ${(bytes / payload).toFixed(2)} | ${after} | ${(after / payload).toFixed(3)} |`);
  await group.one.end("SIGTERM");
}
for (const end of ends) await end();
process.exit(0);
