// A gateway without free file descriptors: it says so at most once a second, and recovers.

import assert from "node:assert/strict";
import net from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { test } from "node:test";

import { serve, soon } from "./support.mjs";

test("at most one warning a second while no connection can be taken", async (t) => {
  const agent = ["--store", "memory:", "--ag-ui", "http://127.0.0.1:9/"];
  const gateway = await serve(t, agent, { descriptors: 64 });
  const { hostname, port } = new URL(gateway.url);
  const started = performance.now();
  const sockets = Array.from({ length: 150 }, () => net.connect(Number(port), hostname).on("error", () => {}));
  t.after(() => sockets.forEach((socket) => socket.destroy()));
  const warnings = () => gateway.said().split("no more connections can be taken").length - 1;
  await soon("a warning", (async () => {
    while (warnings() === 0) await sleep(50);
  })());
  // Long enough for a warning per attempt to show.
  await sleep(4000);
  const seconds = Math.ceil((performance.now() - started) / 1000);
  assert.ok(warnings() <= seconds + 1, `${warnings()} warnings in ${seconds} s`);
  sockets.forEach((socket) => socket.destroy());
  const response = await soon("a response", fetch(`${gateway.url}/livez`));
  assert.equal(response.status, 200);
});
