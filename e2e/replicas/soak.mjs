// The model test for a long time: `make soak`. SEEDS (20) runs of SEED_SECONDS (180) each, from FIRST_SEED on (random).

import { model } from "./model.mjs";

const number = (name, otherwise) => Number(process.env[name] ?? otherwise);
const [seeds, seconds] = [number("SEEDS", 20), number("SEED_SECONDS", 180)];
const first = number("FIRST_SEED", Math.floor(Math.random() * 1e9));
// One to three gateways on both stores.
const PLANS = [["postgres", 3], ["sqlite", 2], ["postgres", 2], ["sqlite", 3], ["postgres", 3], ["sqlite", 1], ["postgres", 1], ["postgres", 3]];

let [passed, failed] = [0, 0];
for (let index = 0; index < seeds; index += 1) {
  const [kind, gateways] = process.env.PLAN ? process.env.PLAN.split(",").map((part, at) => (at ? Number(part) : part)) : PLANS[index % PLANS.length];
  const seed = first + index;
  const ends = [];
  const t = { after: (end) => ends.push(end) };
  const result = await model(t, { seed, seconds, gateways, kind }).catch((error) => ({ broken: [`${error.stack}`], counts: {} }));
  for (const end of ends) await Promise.resolve(end()).catch?.(() => {});
  const verdict = result.broken.length === 0 ? "ok    " : "FAILED";
  console.log(`${verdict} seed ${seed}: ${gateways} gateways on ${kind}, ${result.runs} runs, ${result.frames} events seen, ${JSON.stringify(result.counts)}`);
  for (const line of result.broken.slice(0, 20)) console.log(`       ${line}`);
  if (result.broken.length === 0) passed += 1;
  else failed += 1;
}
console.log(`soak: ${passed} seeds passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
