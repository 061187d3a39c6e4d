// Live streams of a real `langgraph dev`, converted, and read by the official AG-UI client.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { convert, frame, newThread, officialClient, post, request, start, stream, threadState } from "./server.mjs";

let server;
before(async () => {
  server = await start();
});
after(() => server?.stop());

/** The modes for servers with long conversations, and those that a gateway requests. */
const MODES = {
  modes: ["messages-tuple", "updates", "values", "custom", "tasks"],
  events: ["events", "updates", "values", "custom"],
};

const user = (id, content) => ({ id, role: "user", content });
const ask = (assistant, messages, extra = {}) =>
  request({ ...extra, assistant, input: { threadId: "t", runId: "r", messages, tools: [], context: [], ...extra.input } });

/** A message, reduced to the fields on which the graph and the user interface must agree. */
const reduce = ({ role, text, calls, answers, failed }) => ({ role, text, calls, answers, failed });

const ROLES = { human: "user", ai: "assistant", tool: "tool" };
const textOf = (content) =>
  typeof content === "string"
    ? content
    : content.map((block) => (typeof block === "string" ? block : block.type === "text" ? block.text : "")).join("");

const fromGraph = (message) =>
  reduce({
    role: ROLES[message.type],
    text: textOf(message.content),
    calls: (message.tool_calls ?? []).map(({ id, name, args }) => ({ id, name, args })),
    answers: message.tool_call_id ?? null,
    failed: message.status === "error",
  });

const fromClient = (message) =>
  reduce({
    role: message.role,
    text: message.content ?? "",
    calls: (message.toolCalls ?? []).map(({ id, function: { name, arguments: args } }) => ({ id, name, args: JSON.parse(args || "{}") })),
    answers: message.toolCallId ?? null,
    failed: Boolean(message.error),
  });

/** The client must have the messages and state of the thread, in the same order. */
async function agrees(thread, { messages, state }) {
  const truth = await threadState(server, thread);
  const said = messages.filter(({ role }) => ["user", "assistant", "tool"].includes(role));
  assert.deepEqual(said.map(fromClient), truth.values.messages.map(fromGraph));
  const { messages: _, ...rest } = truth.values;
  assert.deepEqual(state, rest);
  return truth;
}

const types = (events) => events.map(({ type }) => type);
const of = (events, type) => events.filter((event) => event.type === type);
const text = (events, id) => of(events, "TEXT_MESSAGE_CONTENT").filter(({ messageId }) => messageId === id).map(({ delta }) => delta).join("");

/** Runs a graph once and returns the client's result. */
async function once(graph, modes, { thread, messages = [user("h1", "go")], history = [], ...extra } = {}) {
  thread ??= await newThread(server);
  const body = await ask(graph, messages, { modes: MODES[modes], ...extra });
  const bytes = await stream(server, thread, body);
  const client = await officialClient(await convert(bytes), history);
  assert.equal(types(client.events)[0], "RUN_STARTED");
  return { thread, bytes, ...client };
}

for (const modes of Object.keys(MODES)) {
  test(`${modes}: plain text streams word by word`, async () => {
    const run = await once("plain", modes);
    assert.equal(text(run.events, "chatcmpl-S1"), "Hello from the server.");
    assert.equal(of(run.events, "TEXT_MESSAGE_CONTENT").length, 4);
    assert.deepEqual(of(run.events, "STEP_STARTED").map(({ stepName }) => stepName), ["chatbot"]);
    const finished = run.events.at(-1);
    assert.equal(finished.type, "RUN_FINISHED");
    assert.deepEqual(finished.usage.map(({ inputTokens, outputTokens }) => [inputTokens, outputTokens]), [[5, 5]]);
    await agrees(run.thread, run);
  });

  test(`${modes}: parallel calls of one tool have one result each`, async () => {
    const run = await once("tools", modes);
    const results = of(run.events, "TOOL_CALL_RESULT").map(({ toolCallId, content }) => [toolCallId, content]);
    assert.deepEqual(Object.fromEntries(results), { call_s1: "21 C in Paris", call_s2: "21 C in Rome" });
    assert.equal(results.length, 2);
    await agrees(run.thread, run);
  });

  test(`${modes}: two turns on one thread are one conversation`, async () => {
    const first = await once("tools", modes);
    const known = await threadState(server, first.thread);
    const messages = [...first.messages.filter(({ role }) => role !== "activity"), user("h2", "again")];
    const second = await once("tools", modes, { thread: first.thread, messages, history: messages, state: known });
    assert.equal(second.messages.filter(({ role }) => role === "user").length, 2);
    await agrees(first.thread, second);
  });

  test(`${modes}: an interrupt is pending until its answer`, async () => {
    const first = await once("hitl", modes);
    const { outcome } = first.events.at(-1);
    assert.equal(outcome.type, "interrupt");
    assert.equal(outcome.interrupts[0].message, "Delete 3 files?");
    const truth = await agrees(first.thread, first);
    assert.equal(outcome.interrupts[0].id, truth.tasks[0].interrupts[0].id);
    const resume = [{ interruptId: outcome.interrupts[0].id, status: "resolved", payload: "yes" }];
    const second = await once("hitl", modes, {
      thread: first.thread, history: first.messages, messages: first.messages, input: { resume },
    });
    assert.equal(text(second.events, "hf-1"), "Finished: answer=yes");
    assert.equal(second.events.at(-1).outcome, undefined);
    await agrees(first.thread, second);
  });

  test(`${modes}: two tools with questions are two interrupts`, async () => {
    const first = await once("pay", modes);
    const { outcome } = first.events.at(-1);
    assert.equal(outcome.interrupts.length, 2);
    assert.equal(of(first.events, "TOOL_CALL_RESULT").length, 0, "an interrupt is no result");
    assert.deepEqual(outcome.interrupts.map(({ toolCallId }) => toolCallId).sort(), ["call_p1", "call_p2"]);
    const resume = outcome.interrupts.map(({ id, message }) => ({
      interruptId: id, status: "resolved", payload: { approved: message.includes("Ana") },
    }));
    const second = await once("pay", modes, {
      thread: first.thread, history: first.messages, messages: first.messages, input: { resume },
    });
    const results = of(second.events, "TOOL_CALL_RESULT").map(({ toolCallId, content }) => [toolCallId, content]);
    assert.deepEqual(Object.fromEntries(results), { call_p1: "sent 1 to Ana", call_p2: "refused" });
    assert.equal(of(second.events, "TOOL_CALL_START").length, 0, "the calls were made in the first run");
    await agrees(first.thread, second);
  });

  test(`${modes}: failed and unknown tools have error results`, async () => {
    const run = await once("faulty", modes);
    const results = of(run.events, "TOOL_CALL_RESULT");
    assert.deepEqual(results.map(({ toolCallId }) => toolCallId).sort(), ["call_f1", "call_f2"]);
    for (const result of results) assert.equal(result.metadata.status, "error");
    await agrees(run.thread, run);
  });

  test(`${modes}: parallel branches do not mix`, async () => {
    const run = await once("fan", modes);
    for (const n of [1, 2, 3]) assert.equal(text(run.events, `chatcmpl-B${n}`), `branch ${n} has five words`);
    const steps = of(run.events, "STEP_STARTED").map(({ stepName }) => stepName);
    assert.deepEqual(steps.filter((name) => name.startsWith("branch")).sort(), ["branch", "branch#2", "branch#3"]);
    assert.equal(of(run.events, "TEXT_MESSAGE_CONTENT").filter(({ delta }) => delta === "nobody streamed this").length, 1);
    await agrees(run.thread, run);
  });

  test(`${modes}: nested graphs have nested steps`, async () => {
    const run = await once("sub", modes);
    const steps = of(run.events, "STEP_STARTED").map(({ stepName }) => stepName);
    assert.deepEqual(steps, ["research", "research/agent", "research/tools", "research/agent", "writer"]);
    await agrees(run.thread, run);
    const client = await officialClient(await convert(run.bytes, "subagents=on"));
    assert.equal(of(client.events, "SUBAGENT_STARTED").length, 1);
    assert.equal(of(client.events, "SUBAGENT_FINISHED").length, 1);
  });

  test(`${modes}: custom events arrive`, async () => {
    const run = await once("custom", modes);
    const customs = of(run.events, "CUSTOM").map(({ name, value }) => [name, value]);
    const wanted = [["progress", { type: "progress", pct: 50 }], ["custom", "plain text"]];
    // Only native events contain those of callbacks.
    if (modes === "events") wanted.push(["display_chart", { points: [1, 5, 3] }]);
    assert.equal(customs.length, wanted.length, JSON.stringify(customs));
    for (const each of wanted) assert.ok(customs.some((custom) => JSON.stringify(custom) === JSON.stringify(each)), JSON.stringify(customs));
    await agrees(run.thread, run);
  });

  test(`${modes}: a message whose id is only in its first chunk is shown once`, async () => {
    const run = await once("named_once", modes);
    assert.deepEqual(of(run.events, "TOOL_CALL_START").map(({ toolCallId }) => toolCallId), ["call_n1"]);
    assert.deepEqual(of(run.events, "TEXT_MESSAGE_START").map(({ messageId }) => messageId), ["resp_2"]);
    assert.equal(text(run.events, "resp_2"), "It is 21 C.");
    await agrees(run.thread, run);
  });

  test(`${modes}: reasoning is separate from the text`, async () => {
    const run = await once("think", modes);
    const thought = of(run.events, "REASONING_MESSAGE_CONTENT").map(({ delta }) => delta).join("");
    assert.equal(thought, "Two plus two.");
    assert.equal(of(run.events, "REASONING_ENCRYPTED_VALUE").length, 1);
    assert.equal(text(run.events, "msg_th"), "Four.");
    await agrees(run.thread, run);
  });

  test(`${modes}: a node that raises fails the run`, async () => {
    const run = await once("boom", modes);
    const last = run.events.at(-1);
    assert.deepEqual([last.type, last.code, last.message], ["RUN_ERROR", "ValueError", "node failed on purpose"]);
  });
}

test("messages that are repeated in every frame are shown once", async () => {
  for (const modes of [["messages"], ["messages", "updates", "values"], ["messages", "messages-tuple", "values"]]) {
    for (const [graph, id, wanted] of [["plain", "chatcmpl-S1", "Hello from the server."], ["named_once", "resp_2", "It is 21 C."]]) {
      const thread = await newThread(server);
      const body = await ask(graph, [user("h1", "go")], { modes });
      const { events } = await officialClient(await convert(await stream(server, thread, body)));
      assert.deepEqual(of(events, "TEXT_MESSAGE_START").map(({ messageId }) => messageId), [id], modes.join());
      assert.equal(text(events, id), wanted, modes.join());
      assert.equal(events.at(-1).type, "RUN_FINISHED");
    }
  }
});

test("a static breakpoint is an interrupt, and the run continues past it", async () => {
  const first = await once("tools", "modes", { input: { forwardedProps: { interrupt_before: ["tools"] } } });
  const state = await threadState(server, first.thread);
  const { events } = await officialClient(await convert(Buffer.concat([first.bytes, frame("state", state)])));
  const { outcome } = events.at(-1);
  assert.deepEqual(outcome.interrupts.map(({ id, reason }) => [id, reason]), [["breakpoint:tools", "langgraph:breakpoint"]]);
  const resume = [{ interruptId: "breakpoint:tools", status: "resolved" }];
  const second = await once("tools", "modes", {
    thread: first.thread, history: first.messages, messages: first.messages, input: { resume },
  });
  assert.equal(text(second.events, "chatcmpl-S3"), "Both are 21 C.");
  await agrees(first.thread, second);
});

test("a cancelled run has the outcome cancelled", async () => {
  const thread = await newThread(server);
  // The file never exists.
  const body = await ask("slow", [user("h1", "go wait-for:/dev/null/nothing")]);
  const answer = await post(`${server.url}/threads/${thread}/runs/stream`, body);
  const run = answer.headers.get("content-location").split("/").at(-1);
  const parts = [];
  let cancelled = false;
  for await (const part of answer.body) {
    parts.push(part);
    if (!cancelled && Buffer.concat(parts).includes("agents ")) {
      cancelled = true;
      await post(`${server.url}/threads/${thread}/runs/${run}/cancel?wait=true`, {});
    }
  }
  const bytes = Buffer.concat(parts);
  const cut = await officialClient(await convert(bytes));
  assert.equal(cut.events.at(-1).code, "STREAM_TRUNCATED", "the stream alone cannot tell");
  const state = await threadState(server, thread);
  const told = await officialClient(await convert(Buffer.concat([bytes, frame("state", state)])));
  assert.equal(told.events.at(-1).outcome.type, "cancelled");
});

test("a reader that reconnects misses nothing", async () => {
  const thread = await newThread(server);
  const body = await ask("slow", [user("h1", "go")]);
  const answer = await post(`${server.url}/threads/${thread}/runs/stream`, body);
  const run = answer.headers.get("content-location").split("/").at(-1);
  const reader = answer.body.getReader();
  let seen = Buffer.alloc(0);
  while (!seen.includes("events ")) {
    const { value, done } = await reader.read();
    assert.ok(!done, "the stream ended early");
    seen = Buffer.concat([seen, value]);
  }
  await reader.cancel();
  // Whole frames only: the last one may be truncated.
  seen = seen.subarray(0, seen.lastIndexOf("\r\n\r\n") + 4);
  const ids = [...seen.toString().matchAll(/^id: (.*?)\r?$/gm)].map(([, id]) => id);
  const url = `${server.url}/threads/${thread}/runs/${run}/stream`;
  const rest = await fetch(url, { headers: { "last-event-id": ids.at(-1) } });
  const whole = Buffer.concat([seen, Buffer.from(await rest.arrayBuffer())]);
  const client = await officialClient(await convert(whole));
  assert.equal(client.events.at(-1).type, "RUN_FINISHED");
  await agrees(thread, client);
  const replay = await fetch(url, { headers: { "last-event-id": "-1" } });
  const again = await officialClient(await convert(Buffer.from(await replay.arrayBuffer())));
  assert.deepEqual(again.messages, client.messages);
});

test("the front-end tools reach the graph's state if it has a key for them", async () => {
  const tools = [{ name: "pick", description: "picks", parameters: { type: "object", properties: {} } }];
  const body = await ask("plain", [user("h1", "go")], { keys: "tools,ag-ui,copilotkit", input: { tools } });
  assert.deepEqual(body.input.tools, tools);
  // A graph without such keys accepts the request as well.
  const thread = await newThread(server);
  const client = await officialClient(await convert(await stream(server, thread, body)));
  assert.equal(client.events.at(-1).type, "RUN_FINISHED");
});
