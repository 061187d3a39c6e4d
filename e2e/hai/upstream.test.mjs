// `serve --hai` in front of a FastAPI server with the models of the standard's public demo, for a HAI and an AG-UI client.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { freePort } from "../../examples/support/ports.mjs";
import { HaiClient, framesOf } from "./client.mjs";
import { agentwire, binary, root } from "./peers.mjs";

const here = path.dirname(fileURLToPath(import.meta.url));
const target = process.env.AGENTWIRE_TARGET ?? path.resolve(root, process.env.CARGO_TARGET_DIR ?? "target");
const PATIENCE_MS = 180_000;
const CHAT = "/api/v1/hai/ai_dome/chat";
const processes = [];
let server;
let gateway;

async function start(program, args, look) {
  const child = spawn(program, args, { stdio: ["ignore", "inherit", "inherit"] });
  processes.push(child);
  for (const begun = Date.now(); ; await new Promise((wake) => setTimeout(wake, 50))) {
    if (child.exitCode !== null || Date.now() - begun > PATIENCE_MS) throw new Error(`${program} did not start`);
    if (await fetch(look).then((response) => response.ok, () => false)) return;
  }
}

before(async () => {
  const python = path.join(target, "venv", "hai", "bin", "python");
  if (!fs.existsSync(python)) throw new Error(`${python} is missing: run \`e2e/run hai\`, which installs it`);
  const [serverPort, gatewayPort] = [await freePort(), await freePort()];
  server = `http://127.0.0.1:${serverPort}`;
  await start(python, [path.join(here, "server.py"), String(serverPort)], `${server}/status`);
  gateway = `http://127.0.0.1:${gatewayPort}`;
  const args = ["serve", "--hai", server + CHAT, "--listen", `127.0.0.1:${gatewayPort}`, "--store", "memory:", "--log", "error"];
  await start(binary, args, `${gateway}/readyz`);
});

after(() => processes.forEach((child) => child.kill("SIGKILL")));

async function post(route, thread, run, messages) {
  const body = { threadId: thread, runId: run, messages, tools: [{ name: "confirmAction", description: "", parameters: {} }], context: [], state: {}, forwardedProps: {} };
  const response = await fetch(gateway + route, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  assert.equal(response.status, 200);
  return framesOf(await response.text());
}

const user = (id, content) => ({ id, role: "user", content });
const textOf = (frames) => {
  const client = new HaiClient();
  frames.forEach((frame) => client.apply(frame));
  assert.ok(client.finished, JSON.stringify(frames.at(-1)));
  return [...client.texts().values()].map(({ text }) => text).join("");
};

test("a chat of two turns passes the models of the demo", async () => {
  const first = await post("/awp", "chat", "chat-1", [user("u1", "hello")]);
  assert.equal(textOf(first).trim(), "1 messages in chat");
  assert.equal(first[0].messageId, "msgId-001", "the id that the agent gives its run");
  const second = await post("/", "chat", "chat-2", [user("u2", "more")]);
  const text = second.filter((event) => event.type === "TEXT_MESSAGE_CONTENT").map((event) => event.delta).join("");
  assert.equal(text.trim(), "3 messages in chat");
});

for (const [route, protocol] of [["/awp", "HAI"], ["/", "AG-UI"]]) {
  test(`a question is answered by a tool message of a client of ${protocol}`, async () => {
    const thread = `ask-${protocol}`;
    const asked = await post(route, thread, `${thread}-1`, [user("u1", "deploy")]);
    const delta = asked.filter((event) => event.type === "TOOL_CALL_ARGS").map((event) => event.delta).join("");
    assert.deepEqual(JSON.parse(delta), { action: "Deploy to production" });
    const pending = await fetch(`${gateway}/threads/${thread}/pending`).then((response) => response.text());
    assert.match(pending, /tool-123/);
    const result = { id: "result-789", role: "tool", content: "true", toolCallId: "tool-123" };
    const answered = JSON.stringify(await post(route, thread, `${thread}-2`, [user("u1", "deploy"), result]));
    for (const word of ["tool-123 ", "says ", "true "]) assert.ok(answered.includes(word), answered);
  });
}

test("the state of a task is built although its items are missing", async () => {
  const events = await post("/", "task", "task-1", [user("u1", "task")]);
  assert.equal(events.filter((event) => event.type === "STATE_SNAPSHOT").length, 0);
  const { snapshot } = await fetch(`${gateway}/state_snapshot/task`).then((response) => response.json());
  const done = { status: "done" };
  assert.deepEqual(snapshot, { workflowItems: [done, done, done] });
  const shown = await fetch(`${gateway}/runs/task-1/stream?format=hai`).then((response) => response.text());
  const patches = framesOf(shown).filter((frame) => frame.type === "STATE_DELTA");
  assert.equal(patches.length, 6);
  assert.ok(patches.every((frame) => frame.delta.length === 1), "as the agent sent them: the page has the items");
});

test("the server and the gateway pass the check", async () => {
  for (const url of [server + CHAT, `${gateway}/awp`]) {
    const { code, stdout, stderr } = await agentwire(["check", "--from", "hai", url]);
    assert.equal(code, 0, `${stdout}${stderr}`);
  }
});
