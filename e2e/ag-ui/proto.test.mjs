// The binary form equals the official one, byte for byte, in both directions.

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { isDeepStrictEqual } from "node:util";

import { enforceEvents } from "@ag-ui/client";
import { decode, encode } from "@ag-ui/proto";
import { of } from "rxjs";

import { root, tool } from "./peers.mjs";
import { EVENTS, INPUT, randomness, value, variants } from "./schema.mjs";
import { events, vector } from "./vectors.mjs";

const SHOWN = 5;
const plain = (json) => JSON.parse(JSON.stringify(json));
const hex = (bytes) => Buffer.from(bytes).toString("hex");

const random = randomness(7);
const sample = [
  ...events(),
  ...Array.from({ length: 4000 }, () => plain(value(EVENTS.get(random.pick([...EVENTS.keys()])), random, { fill: 0.5 }))),
];

function complain(problems, all) {
  assert.equal(problems.length, 0, `${problems.length} of ${all}:\n${problems.slice(0, SHOWN).join("\n\n")}`);
}

test("every event type is in the sample", () => {
  assert.equal(EVENTS.size, 31);
  assert.deepEqual([...new Set(sample.map((event) => event.type))].sort(), [...EVENTS.keys()].sort());
});

test("the writer produces the bytes of the official encoder", async () => {
  const answers = await tool("proto", sample.map((event) => ({ event })));
  const problems = [];
  answers.forEach((answer, index) => {
    const wanted = hex(encode(sample[index]));
    if (answer.hex !== wanted) problems.push(`${JSON.stringify(sample[index])}\n  theirs ${wanted}\n  ours   ${answer.hex ?? answer.error}`);
  });
  complain(problems, sample.length);
});

test("the reader produces the events of the official decoder", async () => {
  const bytes = sample.map((event) => encode(event));
  const answers = await tool("proto", bytes.map((one) => ({ eventHex: hex(one) })));
  const problems = [];
  answers.forEach((answer, index) => {
    const wanted = plain(decode(bytes[index]));
    if (!isDeepStrictEqual(answer.json, wanted)) {
      problems.push(`${hex(bytes[index])}\n  theirs ${JSON.stringify(wanted)}\n  ours   ${JSON.stringify(answer.json) ?? answer.error}`);
    }
  });
  complain(problems, sample.length);
});

/** The official verdict on the bytes of one event: `null` if rejected, `undefined` if dropped. */
async function official(bytes) {
  let event;
  try {
    event = decode(bytes);
  } catch (error) {
    return error.name === "AGUIUnknownEventTypeError" || error.constructor.name === "AGUIUnknownEventTypeError" ? undefined : null;
  }
  // A double that is not a number has no JSON form to compare.
  if (JSON.stringify(event, (_, one) => (typeof one === "number" && !Number.isFinite(one) ? "\u0000nan" : one)).includes("\\u0000nan")) return undefined;
  let out;
  let failed = false;
  of(event).pipe(enforceEvents()).subscribe({ next: (passed) => (out = passed), error: () => (failed = true) });
  return failed ? null : plain(out ?? null) ?? undefined;
}

test("damaged bytes are rejected by both or read alike by both", async () => {
  const damaged = [];
  for (let count = 0; count < 6000; count += 1) {
    const bytes = Buffer.from(encode(random.pick(sample)));
    for (let times = 1 + random.below(2); times > 0; times -= 1) {
      const at = random.below(bytes.length);
      bytes[at] = random.pick([0, 1, 0x0a, 0x12, 0x7f, 0x80, 0xff, bytes[at] ^ (1 << random.below(8))]);
    }
    damaged.push(random.chance(0.2) ? bytes.subarray(0, random.below(bytes.length)) : bytes);
  }
  const answers = await tool("proto", damaged.map((bytes) => ({ eventHex: hex(bytes) })));
  const problems = [];
  for (let index = 0; index < damaged.length; index += 1) {
    const wanted = await official(damaged[index]);
    const ours = answers[index].json ?? null;
    // Both sides replace bytes that are not UTF-8, but not always with the same number of U+FFFD.
    const settle = (json) => JSON.parse(JSON.stringify(json).replace(/\ufffd+/g, "\ufffd"));
    // The official parser treats a stray end of a group as the end of a message; agentwire rejects such bytes.
    if (answers[index].error?.includes("expected a protobuf message, found other bytes")) continue;
    if (wanted === undefined) continue;
    if (wanted === null ? ours !== null : !isDeepStrictEqual(settle(ours), settle(wanted))) {
      problems.push(`${hex(damaged[index])}\n  theirs ${JSON.stringify(wanted)}\n  ours   ${JSON.stringify(answers[index])}`);
    }
  }
  complain(problems, damaged.length);
});

/** The bytes of a length-delimited field. */
function field(bytes, wanted) {
  let at = 0;
  const varint = () => {
    let result = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = bytes[at++];
      result += (byte & 0x7f) * 2 ** shift;
      if (byte < 0x80) return result;
    }
  };
  while (at < bytes.length) {
    const tag = varint();
    if (tag % 8 === 0) varint();
    else {
      const length = varint();
      if (Math.floor(tag / 8) === wanted) return bytes.subarray(at, at + length);
      at += length;
    }
  }
  throw new Error(`there is no field ${wanted}`);
}

test("requests have the official binary form too", async () => {
  // The official package encodes a request only as part of RUN_STARTED.
  const inputs = [...variants(INPUT), ...Array.from({ length: 500 }, () => value(INPUT, random, { fill: 0.6 }))]
    .map(plain)
    .map((input) => ({ ...input, protocolVersion: "1.0" }));
  const bytes = inputs.map((input) => field(field(encode({ type: "RUN_STARTED", threadId: "t", runId: "r", input }), 12), 5));
  const written = await tool("proto", inputs.map((input) => ({ input })));
  const read = await tool("proto", bytes.map((one) => ({ inputHex: hex(one) })));
  const problems = [];
  inputs.forEach((input, index) => {
    const theirs = hex(bytes[index]);
    if (written[index].hex !== theirs) {
      problems.push(`${JSON.stringify(input)}\n  theirs ${theirs}\n  ours   ${written[index].hex ?? written[index].error}`);
    }
    const back = plain(decode(encode({ type: "RUN_STARTED", threadId: "t", runId: "r", input }))).input;
    if (!isDeepStrictEqual(read[index].json, back)) {
      problems.push(`${theirs}\n  theirs ${JSON.stringify(back)}\n  ours   ${JSON.stringify(read[index])}`);
    }
  });
  complain(problems, inputs.length);
});

test("the vectors of the Rust tests are up to date", () => {
  const file = path.join(root, "crates/agentwire-core/src/format/ag_ui/fixtures_proto/vectors.jsonl");
  const lines = fs.readFileSync(file, "utf8").trimEnd().split("\n");
  assert.ok(lines.length > 1000);
  for (const line of lines) assert.equal(line, JSON.stringify(vector(JSON.parse(line).json)));
});
