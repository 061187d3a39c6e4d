// The official pipeline over the benchmark stream: the work of a TypeScript translator between agent and client.
// Prints the microseconds of CPU time per text delta.

import fs from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

process.env.SUPPRESS_TRANSFORMATION_WARNINGS = "1";
// The packages are those of the end-to-end suite, so that they are installed only once.
const require = createRequire(new URL("../../e2e/ag-ui/package.json", import.meta.url));
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { CompatibilityBoundary, enforceEvents, parseSSEStream, transformChunks, verifyEvents } = (await load("@ag-ui/client")).default ?? (await load("@ag-ui/client"));
const { EventEncoder } = (await load("@ag-ui/encoder")).default ?? (await load("@ag-ui/encoder"));
const { Subject } = require("rxjs");

const ROUNDS = 5;
const CHUNK = 16 * 1024;
const bytes = fs.readFileSync(process.argv[2]);

function once() {
  const source = new Subject();
  const encoder = new EventEncoder();
  let [written, deltas, failure] = [0, 0, null];
  const boundary = new CompatibilityBoundary();
  boundary
    .run({ messages: [] }, { run: () => parseSSEStream(source) })
    .pipe(enforceEvents(), transformChunks(), verifyEvents())
    .subscribe({
      next: (event) => {
        written += Buffer.byteLength(encoder.encodeSSE(event));
        if (event.type === "TEXT_MESSAGE_CONTENT") deltas += 1;
      },
      error: (error) => (failure = error),
    });
  for (let at = 0; at < bytes.length; at += CHUNK) {
    source.next({ type: "data", data: bytes.subarray(at, at + CHUNK) });
  }
  source.complete();
  if (failure) throw failure;
  if (written < bytes.length / 2 || deltas === 0) throw new Error(`only ${written} bytes and ${deltas} deltas came out`);
  return deltas;
}

let best = Infinity;
for (let round = 0; round < ROUNDS; round += 1) {
  const before = process.cpuUsage();
  const deltas = once();
  const { user, system } = process.cpuUsage(before);
  best = Math.min(best, (user + system) / deltas);
}
console.log(best.toFixed(3));
