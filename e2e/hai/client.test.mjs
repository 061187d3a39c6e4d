// The standard's client, run over agentwire's output for every fixture of every reader, recovers the same text,
// thinking, tasks, calls and state as agentwire's fold.

import assert from "node:assert/strict";
import { before, test } from "node:test";

import { HaiClient, framesOf } from "./client.mjs";
import { agentwire, fixtures, folds, optionsOf } from "./peers.mjs";

const TYPES = new Set(Object.getOwnPropertyNames(HaiClient.prototype).filter((name) => /^[A-Z_]+$/.test(name)));
const COLLABORATION = "hai.agent_collaboration";
const all = fixtures();
const streams = new Map();
let held;

before(async () => {
  for (const { format, file, name } of all) {
    const made = await agentwire(["convert", "--from", format, "--to", "ag-ui", ...optionsOf(file), file]);
    streams.set(name, made.stdout.toString());
  }
  held = await folds([...streams].map(([name, stream]) => ({ name, stream })));
});

/** The HAI message that contains a folded message. */
const host = (message) => message.metadata?.hai?.messageId ?? message.id;

const textOf = (content) =>
  typeof content === "string"
    ? content
    : Array.isArray(content)
      ? content.filter((part) => part.type === "text").map((part) => part.text).join("")
      : "";

test("there are fixtures to compare", () => {
  assert.ok(streams.size > 50, `only ${streams.size} streams`);
});

for (const { format, file, name } of all) {
  test(`the standard's client reads ${name}`, async () => {
    const made = await agentwire(["convert", "--from", format, "--to", "hai", ...optionsOf(file), file]);
    assert.ok(made.code === 0 || made.code === 3, made.stderr);
    const frames = framesOf(made.stdout.toString());
    const client = new HaiClient();
    for (const frame of frames) {
      if (TYPES.has(frame.type)) assert.ok(Number.isInteger(frame.timestamp), `${frame.type} without a time`);
      client.apply(frame);
    }
    assert.ok(client.finished, "the run did not end");

    const fold = held.get(name);
    const events = framesOf(streams.get(name));
    const started = events.filter((event) => event.type === "RUN_STARTED");

    // A snapshot of the messages removes all others.
    const restated = events.some((event) => event.type === "MESSAGES_SNAPSHOT");

    const texts = client.texts();
    const said = new Map();
    for (const message of fold.messages) {
      if (["assistant", "user", "system"].includes(message.role)) {
        said.set(host(message), (said.get(host(message)) ?? "") + textOf(message.content));
      }
    }
    for (const [id, text] of said) {
      // A message that contains only calls is not written: the calls are.
      if (text === "" && !texts.has(id)) continue;
      assert.equal(texts.get(id)?.text, text, `text of ${id}`);
    }

    const thought = events.filter((event) => event.type === "REASONING_MESSAGE_CONTENT").map((event) => event.delta).join("");
    assert.equal(client.thinking, thought, "thinking");
    if (!restated && started.length === 1) {
      const reasoning = fold.messages.filter((message) => message.role === "reasoning").map((message) => message.content);
      const letters = (text) => [...text].sort().join("");
      const echoed = (started[0].input?.messages ?? []).filter((message) => message.role === "reasoning").map((message) => message.content);
      assert.equal(letters(client.thinking + echoed.join("")), letters(reasoning.join("")), "thinking as folded");
    }

    const activities = fold.messages.filter((message) => message.activityType === COLLABORATION);
    const subagents = events.filter((event) => event.type === "SUBAGENT_STARTED");
    const own = new Set([...subagents.map((event) => event.subagentRunId), ...activities.map((activity) => activity.id)]);
    const tasks = client.tasks.map(({ task }) => task).filter((task) => !own.has(task?.id));
    const streamed = events.filter((event) => event.type === "ACTIVITY_DELTA" && event.activityType === COLLABORATION);
    const wanted = streamed.flatMap((event) => event.patch.filter((operation) => operation.path === "/tasks/-")).map((operation) => operation.value);
    assert.deepEqual(tasks, wanted, "tasks");
    const folded = activities.flatMap((activity) => activity.content.tasks ?? []);
    if (!restated) assert.deepEqual(new Set(tasks.map((task) => JSON.stringify(task))), new Set(folded.map((task) => JSON.stringify(task))), "tasks as folded");
    for (const event of subagents) {
      const shown = client.tasks.find(({ task }) => task?.id === event.subagentRunId);
      assert.deepEqual(shown?.to, event.name, "a subagent is a hand-over");
    }

    const args = new Map();
    for (const event of events) {
      if (event.type === "TOOL_CALL_START") assert.ok(client.calls.get(event.toolCallId)?.ready, `call ${event.toolCallId}`);
      if (event.type === "TOOL_CALL_ARGS") args.set(event.toolCallId, (args.get(event.toolCallId) ?? "") + event.delta);
      for (const interrupt of event.outcome?.interrupts ?? []) {
        assert.ok(client.calls.get(interrupt.id)?.ready, `interrupt ${interrupt.id} is a call that can be answered`);
      }
    }

    for (const [id, text] of args) assert.equal(client.calls.get(id).args, text, `arguments of ${id}`);
    // A snapshot may restate arguments in another spelling.
    for (const call of restated ? [] : fold.messages.flatMap((message) => message.toolCalls ?? [])) {
      const shown = client.calls.get(call.id);
      if (shown) assert.equal(shown.args, call.function.arguments, `arguments of ${call.id} as folded`);
    }

    assert.deepEqual(client.state, fold.state, "state");
  });
}
