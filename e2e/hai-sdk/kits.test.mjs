// Both kits around the gateway, as the first figure of the standard draws it: the client package ⇄ gateway ⇄ a HAI agent
// that is made with `agentwire.hai`.

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { before, test } from "node:test";

import { agent as startAgent, cutter, documents, gateway, loadKit, temporary, textOf, until } from "./peers.mjs";

let kit;
before(async () => void (kit = await loadKit()));

const confirmAction = { name: "confirmAction", description: "Asks the person", parameters: { type: "object", properties: { action: { type: "string" } } } };
const orderForm = { name: "orderForm", description: "Shows a form", parameters: { type: "object" } };

/** A person at a page: a conversation through a gateway in front of a new agent. */
async function conversation(t, content, config = {}) {
  const witness = temporary(t);
  const server = await startAgent(t, witness);
  const url = await gateway(t, ["--hai", `${server.url}/awp`]);
  const agent = new kit.HttpAgent({ url: `${url}/awp`, initialMessages: [{ id: "q", role: "user", content }], ...config });
  const requests = () => fs.readFileSync(path.join(witness, "requests.jsonl"), "utf8").trim().split("\n").map((line) => JSON.parse(line));
  return { agent, url, server, witness, requests };
}

test("text is streamed: the page has the beginning before the agent has made the rest", async (t) => {
  const { agent, witness, requests } = await conversation(t, "text");
  const seen = [];
  await agent.runAgent({ runId: "r" }, {
    onRunStartedEvent: ({ event }) => void seen.push(event.type),
    onMessagesChanged: () => {
      if (textOf(kit, agent) === "你好 ") fs.writeFileSync(path.join(witness, "seen"), "");
    },
  });
  assert.deepEqual(seen, ["RUN_STARTED"]);
  assert.equal(textOf(kit, agent), "你好 a}{b 🙂");
  // The joined documents are those that the page of the standard parses.
  assert.equal(kit.parseJsonString(agent.messages.at(-1).content).map(({ output }) => output.content).join(""), "你好 a}{b 🙂");
  assert.equal(requests()[0].threadId, agent.threadId);
  assert.equal(requests()[0].runId, "r");
});

test("blocks, steps, hand-overs, state and custom events arrive as the agent made them", async (t) => {
  const { agent, server } = await conversation(t, "blocks");
  const direct = new kit.HttpAgent({ url: `${server.url}/awp`, initialMessages: [{ id: "q", role: "user", content: "blocks" }] });
  const runs = [];
  for (const run of [direct, agent]) {
    const seen = { steps: [], tasks: [], custom: [], states: 0 };
    await run.runAgent({}, {
      onStepStartedEvent: ({ event }) => void seen.steps.push(event.stepName),
      onStepFinishedEvent: ({ event }) => void seen.steps.push(event.stepName),
      onAgentCollaborativeMessageStartEvent: ({ event }) => void seen.tasks.push(event.from, event.to),
      onAgentCollaborativeMessageEndEvent: ({ textMessageBuffer }) => void seen.tasks.push(JSON.parse(textMessageBuffer).task),
      onCustomEvent: ({ event }) => void (event.name === "stock.low" && seen.custom.push(event.value)),
      onStateDeltaEvent: () => void (seen.states += 1),
    });
    runs.push({ ...seen, state: run.state, documents: documents(kit, run) });
  }
  const [made, received] = runs;
  assert.equal(made.documents.length, 14);
  assert.deepEqual(received, made);
  assert.deepEqual(received.state, { workflowItems: [{ name: "Plan", status: "done" }] });
  const merged = kit.mergeOutputs(received.documents).map(({ output }) => output);
  assert.deepEqual(merged.map(({ type }) => type), ["thinking", "fold", "toolCallShow", "fold", "table", "echarts", "image", "file", "icon", "button", "weather", "text"]);
  assert.equal(merged[0].data.content, "Counting sheets");
  assert.deepEqual(merged[2].data.tools.map(({ progress, data }) => [progress, data.title]), [[100, "Stock"]]);
});

test("a form and a confirmation: each answer continues the conversation, and reaches the agent as a tool message", async (t) => {
  const { agent, requests } = await conversation(t, "order");
  const tools = [confirmAction, orderForm];
  let asked;
  const ask = async () => {
    asked = [];
    await agent.runAgent({ tools }, { onToolCallEndEvent: ({ event, toolCallName, toolCallArgs }) => void asked.push({ id: event.toolCallId, name: toolCallName, args: toolCallArgs }) });
  };
  await ask();
  assert.deepEqual(asked.map(({ name, args }) => [name, args.title, args.schema.required]), [["orderForm", "Order", ["amount"]]]);
  const pending = await agent.pending();
  assert.equal((pending.pending ?? pending).length, 1);
  assert.equal((await agent.status()).status, "waiting");
  agent.addToolResult(asked[0].id, { amount: 3, paper: "A4" });
  await ask();
  assert.deepEqual(asked.map(({ name, args }) => [name, args]), [["confirmAction", { action: "Order 3 × A4", importance: "high" }]]);
  agent.addToolResult(asked[0].id, true);
  await ask();
  assert.deepEqual(asked, []);
  assert.equal(textOf(kit, agent), "Ordered.");
  const [first, second, third] = requests();
  assert.deepEqual(first.tools.map(({ name }) => name).sort(), ["confirmAction", "orderForm"]);
  assert.deepEqual([second.messages.at(-1).role, third.messages.at(-1).content], ["tool", "true"]);
  assert.equal(third.messages.length, 5);
  assert.equal(new Set(requests().map(({ threadId }) => threadId)).size, 1);
});

test("an answer to no question is refused, and a denial reaches the agent", async (t) => {
  const { agent, requests } = await conversation(t, "order");
  await agent.runAgent({ tools: [orderForm, confirmAction] });
  const stranger = agent.clone();
  stranger.addToolResult("call-of-nobody", "true");
  const error = await stranger.runAgent().then(() => assert.fail("a stranger's answer was taken"), (error) => error);
  assert.equal(error.code === "HTTP_STATUS" ? (error.payload.code ?? error.payload.error.code) : error.code, "UNKNOWN_TOOL_CALL");
  const form = agent.messages.flatMap(({ toolCalls = [] }) => toolCalls)[0];
  agent.addToolResult(form.id, { amount: 1, paper: "A3" });
  let question;
  await agent.runAgent({ tools: [confirmAction] }, { onNewToolCall: ({ toolCall }) => void (question = toolCall) });
  agent.addToolResult(question.id, false);
  await agent.runAgent();
  assert.equal(textOf(kit, agent), "Nothing was ordered.");
  assert.equal(requests().length, 3);
});

test("connections that are cut at random bytes lose and double nothing, and the agent runs once", async (t) => {
  const { url, requests } = await conversation(t, "");
  const ask = async (base, thread) => {
    const agent = new kit.HttpAgent({ url: `${base}/awp`, threadId: thread, reconnect: { retries: 100, minDelayMs: 1, maxDelayMs: 5 }, initialMessages: [{ id: "q", role: "user", content: "some" }] });
    const recoveries = [];
    await agent.runAgent({ runId: `${thread}-run` }, { onReconnected: ({ recovery }) => void recoveries.push(recovery) });
    return { shown: { text: textOf(kit, agent), state: agent.state, roles: agent.messages.map(({ role }) => role) }, recoveries };
  };
  const { shown: whole } = await ask(url, "whole");
  assert.equal(whole.text.split(" ").length, 151);
  let cuts = 0;
  let seed = 7;
  const random = () => (seed = (seed * 48271) % 2147483647);
  const cut = await cutter(t, url, () => ((cuts += 1), 300 + (random() % 4000)));
  let rounds = 0;
  for (; cuts < 60; rounds += 1) assert.deepEqual((await ask(cut, `cut-${rounds}`)).shown, whole, `round ${rounds}`);
  assert.equal(requests().length, rounds + 1);
});

test("a page that is opened while the agent works gets the conversation and follows it", async (t) => {
  const { agent, url, witness } = await conversation(t, "text");
  const first = agent.runAgent();
  await until(() => textOf(kit, agent) !== "");
  const page = new kit.HttpAgent({ url: `${url}/awp`, threadId: agent.threadId });
  await page.reconnect({ onMessagesChanged: () => void (textOf(kit, page) === "你好 " && fs.writeFileSync(path.join(witness, "seen"), "")) });
  await first;
  assert.equal(textOf(kit, page), "你好 a}{b 🙂");
  assert.deepEqual(page.messages.map(({ id, role }) => [id, role]), agent.messages.map(({ id, role }) => [id, role]));
});

test("pause holds the run, resume continues it, stop ends it at the agent too", async (t) => {
  const { agent, witness } = await conversation(t, "count");
  const said = [];
  let outcome;
  const run = agent.runAgent({}, {
    onPaused: () => void said.push("paused"),
    onResumed: () => void said.push("resumed"),
    onRunFinishedEvent: (data) => void (outcome = data.outcome),
  });
  await until(() => textOf(kit, agent) !== "");
  await agent.pause();
  await until(() => said.includes("paused"));
  assert.equal((await agent.status()).status, "paused");
  const held = textOf(kit, agent);
  await agent.resume();
  await until(() => said.includes("resumed") && textOf(kit, agent).length > held.length);
  assert.equal((await agent.status()).status, "running");
  await agent.stop();
  await run;
  assert.deepEqual([said, outcome?.type], [["paused", "resumed"], "cancelled"]);
  assert.equal((await agent.status()).status, "stopped");
  await until(() => fs.existsSync(path.join(witness, "cancelled")));
  // No number is missing: a pause loses nothing.
  const numbers = textOf(kit, agent).trim().split(" ").map(Number);
  assert.deepEqual(numbers, [...numbers.keys()]);
  const late = await agent.pause().then(() => null, (error) => error);
  assert.deepEqual([late?.code, late?.status], ["HTTP_STATUS", 409]);
});

test("errors of the agent are typed, keep the text that was shown, and tell no secret", async (t) => {
  const { agent, url, server } = await conversation(t, "refuse");
  const fail = (agent) => agent.runAgent().then(() => assert.fail("it did not fail"), (error) => error);
  const refused = await fail(agent);
  assert.deepEqual([refused.code, refused.message, refused instanceof kit.HaiError], ["OUT_OF_PAPER", "no paper is left", true]);
  assert.equal(textOf(kit, agent), "Looking");
  assert.equal((await agent.status()).status, "failed");
  const another = (content) => new kit.HttpAgent({ url: `${url}/awp`, initialMessages: [{ id: "q", role: "user", content }] });
  const crashed = await fail(another("crash"));
  assert.equal(crashed.code, "UPSTREAM_FAILED");
  assert.doesNotMatch(`${crashed.message} ${JSON.stringify(crashed.payload)}`, /hunter2/);
  const dead = another("die");
  const died = await fail(dead);
  assert.match(died.code, /^UPSTREAM_/);
  assert.equal(textOf(kit, dead), "Looking");
  await server.ended;
  const gone = await fail(another("text"));
  assert.match(gone.code === "HTTP_STATUS" ? gone.payload.code : gone.code, /^UPSTREAM_/);
});
