// `agentwire check` and the official client agree on violations, and the client accepts the output of `convert`.

import assert from "node:assert/strict";
import { before, describe, test } from "node:test";

import { corpus } from "./corpus.mjs";
import { FAMILY, OLD, PROTO, SSE, agentwire, fixtureBody, fixtures, officialClient, tool } from "./peers.mjs";

const SEED = Number(process.env.SEED ?? 1);
const COUNT = Number(process.env.COUNT ?? 3000);
// Number of failing streams that are shown.
const SHOWN = 5;

const streams = [
  ...fixtures()
    .filter(({ format }) => format === "ag-ui")
    .filter(({ file }) => /\.(sse|jsonl)$/.test(file))
    .map(({ name, file }) => ({ name, kind: "fixture", stream: fixtureBody(file) })),
  ...corpus(SEED, COUNT),
];

let verdicts;
let officials;
before(async () => {
  verdicts = await tool("verdicts", streams.map(({ name, stream }) => ({ name, stream })));
  officials = [];
  for (const { stream } of streams) officials.push(await officialClient({ body: stream }));
});

function complain(problems) {
  const shown = problems.slice(0, SHOWN).map(({ index, what }) => `${streams[index].name}: ${what}\n${streams[index].stream}`);
  assert.equal(problems.length, 0, `${problems.length} of ${streams.length} streams (SEED=${SEED}):\n\n${shown.join("\n")}`);
}

describe("verdicts", () => {
  test("check rejects every stream that the official client rejects", () => {
    const problems = [];
    streams.forEach((_, index) => {
      const { violations, malformed } = verdicts[index];
      const refused = malformed !== null || violations.some(({ client }) => client);
      if (!officials[index].accepted && !refused) {
        problems.push({ index, what: `the client says "${officials[index].reason}", check says ${JSON.stringify(violations)}` });
      }
    });
    complain(problems);
  });

  test("the official client rejects every stream that check rejects by a rule of the client", () => {
    const problems = [];
    streams.forEach((_, index) => {
      const { violations, malformed } = verdicts[index];
      const own = violations.filter(({ client }) => client).map(({ rule }) => rule);
      if (officials[index].accepted && (malformed !== null || own.length > 0)) {
        problems.push({ index, what: `check says ${malformed ?? own}, the client accepts` });
      }
    });
    complain(problems);
  });

  test("the command line reports the same as the batch program", async () => {
    // The corpus goes through `tools/src/bin/verdicts.rs`; this test compares that program with the command.
    for (let index = 0; index < Math.min(streams.length, 150); index += 1) {
      const { violations, malformed } = verdicts[index];
      const { code, stdout } = await agentwire(["check", "-"], streams[index].stream);
      const named = violations.map(({ rule, client }) => (client ? rule : `${rule} (spec)`));
      const text = stdout.toString();
      // The command also detects the framing, which may fail for damaged text.
      if (code === 3) continue;
      assert.equal(code, malformed !== null || violations.length > 0 ? 1 : 0, `${streams[index].name}\n${text}`);
      for (const rule of named.slice(0, 20)) assert.ok(text.includes(`: ${rule}: `), `${streams[index].name}: ${rule} is missing in\n${text}`);
    }
  });

  test("the corpus contains enough of both verdicts", () => {
    const accepted = officials.filter((official) => official.accepted).length;
    assert.ok(accepted > streams.length / 5 && accepted < (streams.length * 4) / 5, `${accepted} of ${streams.length} are accepted`);
    const rules = new Set(verdicts.flatMap(({ violations }) => violations.map(({ rule }) => rule)));
    const expected = [
      "run-first", "run-active", "run-over", "run-ids", "no-terminal", "unclosed", "text-open", "text-not-open",
      "tool-open", "tool-not-open", "reasoning-open", "reasoning-not-open", "span-open", "span-not-open", "step-open", "step-not-open",
      "step-owner", "subagent-open", "subagent-reused", "subagent-not-open", "subagent-parent", "owner", "parent-owner",
    ];
    assert.deepEqual(expected.filter((rule) => !rules.has(rule)), [], "rules that no stream breaks");
  });
});

const TARGETS = [
  { to: "ag-ui@1", type: SSE },
  { to: "ag-ui@chunks", type: SSE },
  { to: "ag-ui-proto@1", type: PROTO },
  { to: "ag-ui@0", type: SSE, version: OLD },
  ...FAMILY.map((version) => ({ to: "ag-ui@0.0.5x", type: SSE, version })),
];

describe("the guard", () => {
  for (const { to, type, version = "1.0.0" } of TARGETS) {
    test(`makes every stream acceptable for client ${version} as ${to}`, async () => {
      const problems = [];
      for (let index = 0; index < streams.length; index += 1) {
        const output = verdicts[index].outputs[to];
        const body = type === PROTO ? Buffer.from(output, "hex") : output;
        const { accepted, reason, events } = await officialClient({ body, type, version });
        const last = events.at(-1)?.type;
        if (!accepted) problems.push({ index, what: `"${reason}" for\n${output}` });
        else if (last !== "RUN_FINISHED" && last !== "RUN_ERROR") problems.push({ index, what: `the last event is ${last}` });
      }
      complain(problems);
    });
  }
});
