// A gateway without free file descriptors: it says so at most once a second, its streams go on, and it recovers.

import assert from "node:assert/strict";
import net from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { test } from "node:test";

import { frames, input, post, serve, soon, typesOf, upstream } from "./support.mjs";

test("at most one warning a second while no connection can be taken", async (t) => {
  let say;
  const agent = await upstream(t, (response, { threadId, runId }) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    say = (event) => response.write(`data: ${JSON.stringify({ threadId, runId, messageId: "m", ...event })}\n\n`);
    say({ type: "RUN_STARTED" });
    say({ type: "TEXT_MESSAGE_START", role: "assistant" });
  });
  const gateway = await serve(t, ["--store", "memory:", "--ag-ui", agent.url], { descriptors: 64 });
  const stream = frames(await post(`${gateway.url}/`, input("t", "r", "hello")));
  for (let seen = 0; seen < 2; seen += 1) await soon("the start of the stream", stream.next());
  const { hostname, port } = new URL(gateway.url);
  const started = performance.now();
  const sockets = Array.from({ length: 150 }, () => net.connect(Number(port), hostname).on("error", () => {}));
  t.after(() => sockets.forEach((socket) => socket.destroy()));
  const warnings = () => gateway.said().split("no more connections can be taken").length - 1;
  await soon("a warning", (async () => {
    while (warnings() === 0) await sleep(50);
  })());
  say({ type: "TEXT_MESSAGE_CONTENT", delta: "still here" });
  const { value } = await soon("an event of the open stream", stream.next());
  assert.deepEqual(typesOf([value]), ["TEXT_MESSAGE_CONTENT"]);
  // Long enough for a warning per attempt to show.
  await sleep(4000);
  const seconds = Math.ceil((performance.now() - started) / 1000);
  assert.ok(warnings() <= seconds + 1, `${warnings()} warnings in ${seconds} s`);
  sockets.forEach((socket) => socket.destroy());
  const response = await soon("a response", fetch(`${gateway.url}/livez`));
  assert.equal(response.status, 200);
});
