// The fold builds the same messages and state as the official client: for whole, compacted and late-joined streams.

import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { isDeepStrictEqual } from "node:util";

import { corpus, orderlyStreams } from "./corpus.mjs";
import { fixtureBody, fixtures, officialClient, tool } from "./peers.mjs";

const SEED = Number(process.env.SEED ?? 21);
const COUNT = Number(process.env.COUNT ?? 2500);
const SHOWN = 5;

/** An unpaired surrogate has no UTF-8 form, and a retired event has no id: each side generates one. */
const settle = (json) =>
  JSON.parse(JSON.stringify(json), (_, one) => {
    if (typeof one !== "string") return one;
    if (/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(one) || /:(thinking|thought):\d+$/.test(one)) return "made up";
    return one.toWellFormed();
  });

/** The client's final messages and state. */
const held = ({ agent }) => settle({ messages: agent.messages, state: agent.state });

/** The same for a stream written by agentwire, which keeps unknown properties in the metadata key `agentwire`. */
const heldOfOurs = (client) =>
  JSON.parse(JSON.stringify(held(client)), (_, one) => {
    if (typeof one?.metadata !== "object" || one.metadata === null) return one;
    const { agentwire, ...rest } = one.metadata;
    const { metadata, ...others } = one;
    return Object.keys(rest).length > 0 ? { ...others, metadata: rest } : others;
  });

/**
 * Streams that the fold reads differently on purpose: two messages with one id (the client then shares one object
 * between them), and a patch that replaces the whole content of an activity (which need not stay an object).
 */
function isPeculiar(stream, { agent }) {
  const held = agent.messages.map(({ id }) => id);
  if (new Set(held).size < held.length) return true;
  return stream.split("\n\n").some((frame) => {
    if (!frame.startsWith("data: ")) return false;
    let event;
    try {
      event = JSON.parse(frame.slice(6));
    } catch {
      return false;
    }
    const messages = event.messages ?? event.input?.messages;
    const ids = Array.isArray(messages) ? messages.map((message) => message?.id) : [];
    const calls = Array.isArray(messages) ? messages.flatMap((message) => message?.toolCalls ?? []).map((call) => call?.id) : [];
    const whole = Array.isArray(event.patch) && event.patch.some((operation) => operation?.path === "");
    return whole || new Set(ids).size < ids.length || new Set(calls).size < calls.length;
  });
}

let cases;
before(async () => {
  const streams = [
    ...fixtures()
      .filter(({ name, file }) => name.startsWith("ag-ui/") && /\.(sse|jsonl)$/.test(file))
      .map(({ name, file }) => ({ name, stream: fixtureBody(file), orderly: !/broken/.test(name) })),
    ...corpus(SEED, COUNT),
    ...[...orderlyStreams(SEED, COUNT / 4)].map((one) => ({ ...one, orderly: true })),
  ];
  cases = [];
  for (const { name, stream, orderly } of streams) {
    const official = await officialClient({ body: stream });
    if (!official.accepted || official.events.length === 0 || isPeculiar(stream, official)) continue;
    cases.push({ name, stream, official, orderly });
  }
  const folds = await tool("fold", cases.map(({ name, stream }) => ({ name, stream })));
  cases.forEach((one, index) => (one.fold = folds[index]));
});

/** Compares one aspect of every case and shows the first differences. */
async function compare(look) {
  const problems = [];
  for (const one of cases) {
    const found = await look(one);
    if (!found) continue;
    const { ours, theirs, stream = one.stream } = found;
    if (!isDeepStrictEqual(ours, theirs)) {
      problems.push(`${one.name}\n  ours   ${JSON.stringify(ours)}\n  theirs ${JSON.stringify(theirs)}\n${stream}`);
    }
  }
  assert.equal(problems.length, 0, `${problems.length} of ${cases.length} streams (SEED=${SEED}):\n\n${problems.slice(0, SHOWN).join("\n")}`);
}

describe("the fold", () => {
  test("has enough streams for a meaningful comparison", () => {
    assert.ok(cases.length > COUNT / 5, `${cases.length} streams are valid`);
  });

  test("builds the client's messages", () =>
    compare(({ fold, official }) => ({ ours: settle(fold.messages), theirs: held(official).messages })));

  test("builds the client's state", () =>
    compare(({ fold, official }) => ({ ours: settle(fold.state), theirs: held(official).state })));

  test("has the client's open interrupts", () =>
    compare(({ fold, official }) => ({ ours: fold.interrupts, theirs: official.agent.pendingInterrupts.map(({ id }) => id) })));

  test("has the client's pending tool calls", () =>
    compare(({ fold, official }) => {
      const last = official.events.at(-1);
      return last.type === "RUN_FINISHED" && official.pending ? { ours: fold.pending, theirs: official.pending } : null;
    }));

  /** Runs a stream written by agentwire through the client and compares the result with the original's. */
  const again = async (body, official) => {
    const client = await officialClient({ body });
    return { ours: client.accepted ? heldOfOurs(client) : client.reason, theirs: heldOfOurs(official), stream: body };
  };

  test("is the same for a stored stream after compaction", () =>
    compare(({ fold, official }) => again(fold.compacted, official)));

  for (const [index, place] of ["the first event", "half of the events", "all events but one"].entries()) {
    test(`is the same for a reader that joins after ${place}`, () =>
      // If an id was reused, a client that joins late has one owner for both uses.
      compare(({ fold, official, orderly }) => (orderly ? again(fold.joins[index], official) : null)));
  }
});
