// The HAI client package against the gateway: its own tests, the packed package under the name of the standard, a chat,
// a question, cuts at random bytes, control, history, and the binary form.

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { before, test } from "node:test";
import { pathToFileURL } from "node:url";

import { cutter, gateway, quiet, sdk, temporary, textOf as textIn } from "./peers.mjs";

let kit;
before(async () => {
  execFileSync("npm", ["run", "build"], { cwd: sdk, ...quiet });
  kit = await import(pathToFileURL(path.join(sdk, "dist", "index.mjs")));
});

const textOf = (agent) => textIn(kit, agent);

test("the tests of the package pass", () => {
  const files = fs.readdirSync(path.join(sdk, "test")).filter((name) => name.endsWith(".test.mjs"));
  // Node runs no tests inside of tests while this variable is set.
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  const args = ["--test", "--test-reporter=tap", ...files.map((name) => path.join(sdk, "test", name))];
  const { status, stdout } = spawnSync(process.execPath, args, { cwd: sdk, env, ...quiet });
  assert.equal(status, 0, stdout);
  assert.ok(Number(stdout.match(/^# pass (\d+)$/m)[1]) > 10, stdout);
});

test("a chat, its history, and the same events in the binary form", async (t) => {
  const url = await gateway(t);
  const runs = [];
  for (const isBinary of [false, true]) {
    const agent = new kit.HttpAgent({ url: `${url}/awp`, threadId: `chat-${isBinary}`, binary: isBinary, initialMessages: [{ id: "q", role: "user", content: "think tools state" }] });
    const events = [];
    await agent.runAgent({ runId: `run-${isBinary}` }, { onEvent: ({ event }) => void events.push(event) });
    runs.push({ types: events.map(({ type }) => type), text: textOf(agent), state: agent.state });
    const { messages } = await agent.history();
    assert.ok(messages.length >= 2, JSON.stringify(messages));
    assert.equal((await agent.status()).status, "finished");
  }
  assert.deepEqual(runs[0], runs[1]);
  assert.ok(runs[0].text.length > 10 && Object.keys(runs[0].state).length > 0);
});

test("a question is a call of confirmAction, and its answer continues the conversation", async (t) => {
  const url = await gateway(t);
  const agent = new kit.HttpAgent({ url: `${url}/awp`, initialMessages: [{ id: "q", role: "user", content: "approve" }] });
  const calls = [];
  await agent.runAgent({}, { onNewToolCall: ({ toolCall }) => void calls.push(toolCall) });
  const question = calls.at(-1);
  assert.equal((await agent.pending()).length ?? (await agent.pending()).pending.length, 1);
  agent.addToolResult(question.id, { approved: true });
  const { newMessages } = await agent.runAgent();
  assert.match(newMessages.map(({ content }) => content).join(""), /approved/);
});

test("a run whose connections are cut at random bytes is neither lost nor doubled", async (t) => {
  const url = await gateway(t);
  const ask = async (base, thread) => {
    const agent = new kit.HttpAgent({ url: `${base}/awp`, threadId: thread, reconnect: { retries: 50, minDelayMs: 1, maxDelayMs: 5 }, initialMessages: [{ id: "q", role: "user", content: "think tools state" }] });
    await agent.runAgent({ runId: `${thread}-run` });
    return { text: textOf(agent), state: agent.state, roles: agent.messages.map(({ role }) => role) };
  };
  const whole = await ask(url, "whole");
  let seed = 1;
  let cuts = 0;
  const random = () => (seed = (seed * 48271) % 2147483647);
  const cut = await cutter(t, url, () => ((cuts += 1), 300 + (random() % 3000)));
  for (let round = 0; cuts < 200; round += 1) assert.deepEqual(await ask(cut, `cut-${round}`), whole, `round ${round}`);
});

test("stop ends the run, and a fresh page finds the conversation", async (t) => {
  const url = await gateway(t);
  const agent = new kit.HttpAgent({ url: `${url}/awp`, initialMessages: [{ id: "q", role: "user", content: "long 100000" }] });
  let outcome;
  await agent.runAgent({}, {
    onBusinessDataContentEvent: async ({ textMessageBuffer }) => void (textMessageBuffer === "" && (await agent.stop())),
    onRunFinishedEvent: (data) => void (outcome = data.outcome),
  });
  assert.equal(outcome?.type, "cancelled");
  const page = new kit.HttpAgent({ url: `${url}/awp`, threadId: agent.threadId });
  await page.reconnect();
  assert.equal(page.messages[0].content, "long 100000");
  const missing = await new kit.HttpAgent({ url: `${url}/awp` }).status().then(() => "", (error) => error.code);
  assert.equal(missing, "NO_RUN");
});
