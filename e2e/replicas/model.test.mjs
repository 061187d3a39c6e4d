// Random operations under random faults, against a model; longer by `make soak`. MODEL_SEED repeats a seed; `e2e/run` chooses
// one, so that a suite that it runs again has the same.

import assert from "node:assert/strict";
import { test } from "node:test";

import { model } from "./model.mjs";

const seed = Number(process.env.MODEL_SEED ?? Math.floor(Math.random() * 1e9));

for (const [kind, gateways, seconds] of [["postgres", 3, 30], ["sqlite", 2, 15], ["sqlite", 1, 10]]) {
  test(`the model holds with ${gateways} ${gateways === 1 ? "gateway" : "gateways"} on ${kind}, seed ${seed}`, async (t) => {
    const { broken, counts, runs } = await model(t, { seed, seconds, gateways, kind });
    assert.deepEqual(broken, [], JSON.stringify(counts));
    assert.ok(runs > 5 && counts.patch > 5, JSON.stringify(counts));
  });
}
