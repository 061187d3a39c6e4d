// Writes the test vectors of the Rust tests for the binary form, with the official encoder:
//
//   node e2e/ag-ui/vectors.mjs > crates/agentwire-core/src/format/ag_ui/fixtures_proto/vectors.jsonl
//
// One line per event: the JSON form, the bytes in hex, and the JSON form returned by the official decoder where the
// two differ.

import { isDeepStrictEqual } from "node:util";
import { fileURLToPath } from "node:url";

import { decode, encode } from "@ag-ui/proto";

import { EVENTS, variants } from "./schema.mjs";

const plain = (value) => JSON.parse(JSON.stringify(value));

/** Every event type with every member, one variation at a time. */
export function events() {
  const all = [...EVENTS.values()].flatMap((schema) => variants(schema)).map(plain);
  const seen = new Set();
  return all.filter((event) => {
    const text = JSON.stringify(event);
    return !seen.has(text) && seen.add(text);
  });
}

export function vector(event) {
  const bytes = encode(event);
  const back = plain(decode(bytes));
  return { json: event, hex: Buffer.from(bytes).toString("hex"), ...(isDeepStrictEqual(back, event) ? {} : { back }) };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  // The messages of a request equal those of a snapshot, which covers them all; a second copy would double the file.
  const kept = events().filter((event) => event.type !== "RUN_STARTED" || event.input?.messages.length !== 1);
  for (const event of kept) console.log(JSON.stringify(vector(event)));
}
