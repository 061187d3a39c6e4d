// The kill matrix with few positions; `make kill-matrix` tries all of them.

import assert from "node:assert/strict";
import { test } from "node:test";

import { matrix } from "./matrix.mjs";

test("no fault loses or doubles a frame or ends a run wrongly, in any store, in protocols by turns", async (t) => {
  const bad = [];
  await matrix(t, {
    stride: 13,
    rotate: true,
    done: (row) => {
      t.diagnostic(`${row.name}, ${row.store}, ${row.protocol}: ${row.trials} trials`);
      if (row.error || row.trials === 0 || row.lost + row.doubled + row.ending > 0) bad.push({ ...row, error: row.error?.stack });
    },
  });
  assert.deepEqual(bad, []);
});
