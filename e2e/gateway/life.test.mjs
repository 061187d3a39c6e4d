// Crashes and shutdowns of the gateway and of the agent's server: no event that a client saw is lost, and every run ends.

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { test } from "node:test";

import { all, folder, frames, input, isTerminal, post, root, serve, typesOf, upstream } from "./support.mjs";

process.env.SUPPRESS_TRANSFORMATION_WARNINGS = "1";
for (const method of ["error", "warn"]) console[method] = () => {};
const { HttpAgent } = await import("@ag-ui/client");

/** Checks that the official client accepts a stream to its end. */
async function accepted(text) {
  const agent = new HttpAgent({ url: "http://127.0.0.1:9/", threadId: "t" });
  agent.fetch = async () => new Response(text, { headers: { "content-type": "text/event-stream" } });
  const events = [];
  let failure = null;
  const watch = { onEvent: ({ event }) => void events.push(event), onRunFailed: ({ error }) => void (failure = error) };
  await agent.runAgent({}, watch).catch((error) => (failure = error));
  // The client also reports RUN_ERROR as a failure of the run, with the message of the stream.
  const said = events.find((event) => event.type === "RUN_ERROR");
  assert.ok(failure === null || said !== undefined, `${failure}\n${text}`);
  return events;
}

const EVENTS = 40;

test("kill -9 after each event of a 40-event run", async (t) => {
  const cwd = folder(t);
  let limit = 0;
  const agent = await upstream(t, (response, { threadId, runId }) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    const say = (event) => response.write(`data: ${JSON.stringify(event)}\n\n`);
    say({ type: "RUN_STARTED", threadId, runId });
    const messageId = `${runId}-answer`;
    // The gateway emits RUN_STARTED itself, so that is the first event that a client sees.
    if (limit > 1) say({ type: "TEXT_MESSAGE_START", messageId, role: "assistant" });
    for (let index = 2; index < Math.min(limit, EVENTS - 2); index += 1) {
      say({ type: "TEXT_MESSAGE_CONTENT", messageId, delta: `word${index} ` });
    }
    if (limit >= EVENTS - 1) say({ type: "TEXT_MESSAGE_END", messageId });
    if (limit === EVENTS) say({ type: "RUN_FINISHED", threadId, runId });
  });
  let gateway = await serve(t, ["--store", "sqlite:e2e.db", "--ag-ui", agent.url], { cwd });
  for (let index = 1; index <= EVENTS; index += 1) {
    limit = index;
    const seen = [];
    const run = `r${index}`;
    for await (const frame of frames(await post(`${gateway.url}/`, input(`t${index}`, run, "hello")))) {
      seen.push(frame);
      if (seen.length === index) break;
    }
    const { signal } = await gateway.end("SIGKILL");
    assert.equal(signal, "SIGKILL");
    gateway = await serve(t, ["--store", "sqlite:e2e.db", "--ag-ui", agent.url], { cwd });
    const log = await all(await fetch(`${gateway.url}/runs/${run}/stream`));
    assert.deepEqual(log.slice(0, seen.length), seen, `the events of ${run} that were seen are in the log`);
    log.forEach((frame, seq) => assert.equal(frame.id, `${run}:${seq}`));
    const response = await fetch(`${gateway.url}/runs/${run}/stream`, { headers: { "last-event-id": seen.at(-1).id } });
    assert.equal(response.headers.get("agentwire-recovery"), "whole");
    assert.deepEqual(await all(response), log.slice(seen.length));
    const types = typesOf(log);
    assert.equal(types.filter(isTerminal).length, 1, run);
    assert.equal(JSON.parse(log.at(-1).data).code, index < EVENTS ? "GATEWAY_LOST" : undefined, run);
    await accepted(log.map((frame) => frame.raw).join(""));
    // The same run id returns the same run, and the thread is free for another one.
    assert.deepEqual(await all(await post(`${gateway.url}/`, input(`t${index}`, run, "hello"))), log);
  }
  // A client may see the first event before the agent gets its request; every event of the agent follows a request.
  const asked = agent.calls.map(({ runId }) => runId);
  assert.equal(new Set(asked).size, asked.length, "no agent was asked twice");
  for (let index = 2; index <= EVENTS; index += 1) assert.ok(asked.includes(`r${index}`), `r${index} was asked for`);
  limit = EVENTS;
  const free = await all(await post(`${gateway.url}/`, input("t5", "after", "hello")));
  assert.equal(typesOf(free).at(-1), "RUN_FINISHED");
});

/** A recording as one SSE body. */
function recording(name) {
  const text = fs.readFileSync(path.join(root, "e2e", "fixtures", name), "utf8");
  return name.endsWith(".sse") ? text : text.split("\n").filter(Boolean).map((line) => `data: ${line}\n\n`).join("");
}

for (const name of ["text.sse", "parallel_tools.jsonl", "state.jsonl"]) {
  test(`the agent's server truncates ${name} at every byte`, async (t) => {
    const body = Buffer.from(recording(name));
    const agent = await upstream(t, (response, { runId }) => {
      const cut = Number(runId.slice(3));
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.flushHeaders();
      // Odd positions break the connection in the middle of a chunked body, even ones end it cleanly.
      if (cut === 0) return cut % 2 ? response.destroy() : response.end();
      response.write(body.subarray(0, cut), () => (cut % 2 ? response.destroy() : response.end()));
    });
    const { url } = await serve(t, ["--store", "memory:", "--ag-ui", agent.url]);
    const cuts = Array.from({ length: body.length + 1 }, (_, cut) => cut);
    let [finished, truncated] = [0, 0];
    const worker = async () => {
      for (let cut = cuts.pop(); cut !== undefined; cut = cuts.pop()) {
        const seen = await all(await post(`${url}/`, input(`t${cut}`, `cut${cut}`, "hello")));
        const types = typesOf(seen);
        assert.equal(types[0], "RUN_STARTED", `cut at ${cut}`);
        assert.equal(types.filter(isTerminal).length, 1, `cut at ${cut}: ${types}`);
        assert.ok(isTerminal(types.at(-1)), `cut at ${cut}: ${types}`);
        await accepted(seen.map((frame) => frame.raw).join(""));
        if (types.at(-1) === "RUN_FINISHED") finished += 1;
        else {
          const { code } = JSON.parse(seen.at(-1).data);
          assert.equal(code, "UPSTREAM_TRUNCATED", `cut at ${cut}`);
          truncated += 1;
        }
      }
    };
    await Promise.all(Array.from({ length: 8 }, worker));
    assert.equal(finished + truncated, body.length + 1);
    assert.ok(finished > 0 && truncated > body.length / 2, `${finished} finished, ${truncated} truncated`);
    assert.equal((await fetch(`${url}/livez`)).status, 200);
  });
}

test("SIGTERM with 50 live runs: all of them finish, no new ones start, exit code 0, and a restart has them", async (t) => {
  const cwd = folder(t);
  const waiting = [];
  const agent = await upstream(t, (response, { threadId, runId }) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    const say = (event) => response.write(`data: ${JSON.stringify(event)}\n\n`);
    say({ type: "RUN_STARTED", threadId, runId });
    say({ type: "TEXT_MESSAGE_START", messageId: runId, role: "assistant" });
    waiting.push(() => {
      say({ type: "TEXT_MESSAGE_CONTENT", messageId: runId, delta: "at last" });
      say({ type: "TEXT_MESSAGE_END", messageId: runId });
      say({ type: "RUN_FINISHED", threadId, runId });
      response.end();
    });
  });
  const gateway = await serve(t, ["--store", "sqlite:e2e.db", "--ag-ui", agent.url], { cwd });
  const streams = await Promise.all(
    Array.from({ length: 50 }, async (_, index) => {
      const stream = frames(await post(`${gateway.url}/`, input(`t${index}`, `r${index}`, "hello")));
      const seen = [(await stream.next()).value, (await stream.next()).value];
      return { stream, seen };
    }),
  );
  const ended = gateway.end("SIGTERM");
  for (;;) {
    const { status } = await fetch(`${gateway.url}/readyz`);
    if (status === 503) break;
  }
  assert.equal((await post(`${gateway.url}/`, input("new", "new", "hello"))).status, 503);
  for (const go of waiting) go();
  for (const { stream, seen } of streams) {
    for await (const frame of stream) seen.push(frame);
    assert.equal(typesOf(seen).at(-1), "RUN_FINISHED");
  }
  assert.deepEqual(await ended, { code: 0, signal: null });
  const next = await serve(t, ["--store", "sqlite:e2e.db", "--ag-ui", agent.url], { cwd });
  for (const [index, { seen }] of streams.entries()) {
    assert.deepEqual(await all(await fetch(`${next.url}/runs/r${index}/stream`)), seen);
  }
  assert.deepEqual(await next.end("SIGTERM"), { code: 0, signal: null });
});
