// Reduces a stream to a small one that still shows a disagreement of `verdicts.test.mjs`.
//
//   SEED=1 node minimize.mjs 356 [ag-ui@chunks]     by number; with a profile: a stream whose output is rejected
//   node minimize.mjs FILE.sse [ag-ui@chunks]

import fs from "node:fs";

import { corpus } from "./corpus.mjs";
import { OLD, PROTO, SSE, officialClient, tool } from "./peers.mjs";

const [what, target] = process.argv.slice(2);
const number = Number(what);
const stream = Number.isNaN(number)
  ? fs.readFileSync(what, "utf8")
  : [...corpus(Number(process.env.SEED ?? 1), number + 1)].at(-1).stream;

async function judge(body) {
  const [verdict] = await tool("verdicts", [{ name: "", stream: body }]);
  if (target) {
    const output = verdict.outputs[target];
    const type = target.startsWith("ag-ui-proto") ? PROTO : SSE;
    const given = { body: type === PROTO ? Buffer.from(output, "hex") : output, type, version: target.endsWith("@0") ? OLD : target.endsWith("@0.0.5x") ? "0.0.58" : "1.0.0" };
    const { accepted, reason } = await officialClient(given);
    return accepted ? null : `${reason}\n${output}`;
  }
  const { accepted, reason } = await officialClient({ body });
  const refused = verdict.malformed !== null || verdict.violations.some(({ client }) => client);
  return refused === accepted ? `client: ${reason ?? "accepts"}; check: ${verdict.malformed ?? JSON.stringify(verdict.violations)}` : null;
}

let frames = stream.split("\n\n").filter(Boolean);
const body = (list) => list.map((frame) => `${frame}\n\n`).join("");
let reason = await judge(body(frames));
if (!reason) {
  console.log("no disagreement");
  process.exit(0);
}
for (let again = true; again; ) {
  again = false;
  const attempt = async (candidate) => {
    const found = await judge(body(candidate));
    if (found) [frames, reason, again] = [candidate, found, true];
    return Boolean(found);
  };
  for (let at = frames.length - 1; at >= 0; at -= 1) await attempt(frames.filter((_, index) => index !== at));
  for (let at = 0; at < frames.length; at += 1) {
    let event;
    try {
      event = JSON.parse(frames[at].replace(/^data: ?/, ""));
    } catch {
      continue;
    }
    const places = (holder, path = []) =>
      Object.keys(holder).flatMap((key) => {
        const value = holder[key];
        return [[...path, key], ...(typeof value === "object" && value !== null ? places(value, [...path, key]) : [])];
      });
    for (const path of places(event)) {
      const smaller = structuredClone(event);
      const holder = path.slice(0, -1).reduce((value, key) => value?.[key], smaller);
      const key = path.at(-1);
      if (holder === undefined || holder === null || !(key in holder)) continue;
      if (Array.isArray(holder)) holder.splice(Number(key), 1);
      else delete holder[key];
      if (await attempt(frames.with(at, `data: ${JSON.stringify(smaller)}`))) event = smaller;
    }
  }
}
console.log(`${reason}\n\n${body(frames)}`);
