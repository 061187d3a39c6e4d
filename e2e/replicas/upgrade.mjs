// A rolling upgrade of three gateways under load: from the binary OLD to AGENTWIRE, whose schema may be newer; run by
// `scripts/rolling-upgrade`. The model test is the load and the check; faults come between the steps.

import { spawnSync } from "node:child_process";

import { binary } from "../gateway/support.mjs";
import { fault, model } from "./model.mjs";

const old = process.env.OLD;
if (!old) throw new Error("OLD must name the binary of the earlier version");
const seconds = Number(process.env.SEED_SECONDS ?? 90);
const seed = Number(process.env.FIRST_SEED ?? Math.floor(Math.random() * 1e9));

const ends = [];
const t = { after: (end) => ends.push(end) };
const notes = [];

/** `agentwire store migrate` of the new version: its exit code. */
function migrate(world, server, ...args) {
  const store = `${server.address}?schema=${world.group.schema}&sslmode=disable`;
  const done = spawnSync(binary, ["store", "migrate", ...args, "--store", "env:STORE"], { env: { ...process.env, STORE: store }, encoding: "utf8" });
  notes.push(`migrate ${args.join(" ")}: ${done.status} ${(done.stdout + done.stderr).trim()}`);
  return done.status;
}

const version = (world, server) => server.sql(`SELECT version FROM ${world.group.schema}.meta`);

async function replace(world, index, signal) {
  const replica = world.group.replicas[index];
  await replica.end(signal);
  replica.program = binary;
  await replica.start();
  notes.push(`gateway ${index} is new, after ${signal}`);
}

const steps = [
  (world, server) => {
    const before = version(world, server);
    const due = migrate(world, server, "--check");
    if (migrate(world, server) !== 0) throw new Error(notes.join("\n"));
    if (migrate(world, server, "--check") !== 0) throw new Error("there is still something to do");
    notes.push(`schema ${before} to ${version(world, server)}, ${due === 1 ? "migrated" : "nothing to do"}`);
  },
  // Old gateways on the new schema, with faults.
  fault,
  fault,
  (world) => replace(world, 0, "SIGTERM"),
  fault,
  // An old one dies, and a new one or the other old one takes its runs over.
  (world) => replace(world, 1, "SIGKILL"),
  fault,
  fault,
  (world) => replace(world, 2, "SIGTERM"),
];
let step = 0;
const disturb = async (world, server) => {
  await (steps[step] ?? fault)(world, server);
  step += 1;
};
const result = await model(t, { seed, seconds, gateways: 3, kind: "postgres", program: old, disturb });
for (const end of ends) await end();
notes.forEach((note) => console.log(note));
console.log(`seed ${seed}: ${result.runs} runs, ${result.frames} events seen, ${JSON.stringify(result.counts)}`);
result.broken.forEach((line) => console.log(`FAILED ${line}`));
const isDone = step >= steps.length;
if (!isDone) console.log(`FAILED only ${step} of ${steps.length} steps within ${seconds} s: set SEED_SECONDS`);
process.exit(result.broken.length === 0 && isDone ? 0 : 1);
