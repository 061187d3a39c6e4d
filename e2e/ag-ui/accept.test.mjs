// The official clients accept the output of `agentwire convert` for every input.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { FAMILY, OLD, PROTO, SSE, agentwire, fixtures, officialClient, serve } from "./peers.mjs";

const bodies = new Map();
let server;
before(async () => {
  server = await serve(async (request) => bodies.get(request.url));
});
after(() => server.close());

const TARGETS = [
  { to: "ag-ui@1", type: SSE },
  { to: "ag-ui@chunks", type: SSE },
  { to: "ag-ui-proto", type: PROTO },
  { to: "ag-ui-proto@chunks", type: PROTO },
  { to: "ag-ui@0", type: SSE, versions: [OLD] },
  { to: "ag-ui@0.0.5x", type: SSE, versions: [...FAMILY, "1.0.0"] },
  { to: "ag-ui@copilotkit", type: SSE, versions: [...FAMILY, "1.0.0"] },
  // Clients with structured outcomes refuse the draft's.
  { to: "ag-ui@draft", type: SSE, versions: ["0.0.52"] },
];

for (const { name, format, file } of fixtures()) {
  for (const { to, type, versions = ["1.0.0"] } of TARGETS) {
    test(`client ${versions.join(", ")} accepts ${name} as ${to}`, async () => {
      const options = name.split(".").filter((part) => part.includes("=")).flatMap((pair) => ["-O", pair]);
      const made = await agentwire(["convert", "--from", format, "--to", to, ...options, file]);
      assert.ok(made.code === 0 || made.code === 3, `convert failed: ${made.stderr}`);
      assert.ok(made.stdout.length > 0, "convert wrote nothing");
      const path = `/${bodies.size}`;
      bodies.set(path, { type, body: made.stdout });
      const url = new URL(path, server.url).href;
      for (const version of versions) {
        const { accepted, reason, events } = await officialClient({ url, type, version });
        assert.ok(accepted, `${version}: ${reason}`);
        const last = events.at(-1)?.type;
        assert.ok(last === "RUN_FINISHED" || last === "RUN_ERROR", `${version}: the last event is ${last}`);
      }
    });
  }
}

test("a binary response under any other content type is not read as binary", async () => {
  // Validates the test above: if the client fell back to SSE, it would accept any bytes.
  const made = await agentwire(["convert", "--from", "ag-ui", "--to", "ag-ui-proto", "-"], 'data: {"type":"RUN_ERROR","message":"x"}\n\n');
  const { events } = await officialClient({ body: made.stdout, type: SSE });
  assert.equal(events.length, 0);
});
