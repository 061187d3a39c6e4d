// Every released family of `@ag-ui/client` with `agentwire serve` and the demo agent: clients before 1.0 declare no
// version, validate each event and stop at the first one that they do not know.

import assert from "node:assert/strict";
import { test } from "node:test";

import { serve, upstream } from "../gateway/support.mjs";
import { FAMILY, OLD, clientOf } from "./peers.mjs";

const KEYWORDS = [
  "hello", "think", "tools", "tool error", "state", "steps", "subagent", "plan", "media", "confirm", "approve",
  "long 200", "fail", "think tools state steps subagent plan media",
];
const VERSIONS = [OLD, ...FAMILY, "1.0.0"];
const TOOLS = [{ name: "confirmAction", description: "Asks.", parameters: { type: "object" } }];

/** The address for a client: only the oldest one has to name its profile. */
const addressOf = (url, version) => (version === OLD ? `${url}/?profile=0` : `${url}/`);

/** One run of a client; returns its events and its failure. */
async function run(agent, parameters) {
  const events = [];
  let failure = null;
  const watch = { onEvent: ({ event }) => void events.push(event), onRunFailed: ({ error }) => void (failure = error) };
  await agent.runAgent(parameters, watch).catch((error) => (failure = error));
  return { events, failure };
}

function open(url, version, threadId, text) {
  const agent = new (clientOf(version))({ url: addressOf(url, version), threadId });
  agent.messages = [{ id: `${threadId}-u`, role: "user", content: text }];
  return agent;
}

const textOf = (events) => events.filter(({ type }) => type === "TEXT_MESSAGE_CONTENT").map(({ delta }) => delta).join("");
const pendingOf = async (url, thread) => (await fetch(`${url}/threads/${thread}/pending`)).json();

for (const version of VERSIONS) {
  test(`client ${version} shows every word of the demo agent`, async (t) => {
    const { url } = await serve(t, ["--store", "memory:"]);
    for (const [index, text] of KEYWORDS.entries()) {
      const agent = open(url, version, `t${index}`, text);
      const { events, failure } = await run(agent, { runId: `r${index}` });
      assert.equal(events.at(0)?.type, "RUN_STARTED", text);
      const last = events.at(-1)?.type;
      assert.equal(last, text === "fail" ? "RUN_ERROR" : "RUN_FINISHED", `${text}: ${failure}`);
      if (text !== "fail") assert.equal(failure, null, `${text}: ${failure}`);
      const kept = (await (await fetch(`${url}/message_snapshot/t${index}`)).json()).messages;
      const known = ({ role }) => version !== OLD || (role !== "activity" && role !== "reasoning");
      // Clients before 0.0.55 append a tool result instead of placing it behind its call.
      const told = (messages) => messages.filter(known).map(({ id, role, content }) => JSON.stringify({ id, role, content })).sort();
      assert.deepEqual(told(agent.messages), told(kept), text);
      if (version !== OLD && text.includes("think")) assert.ok(events.some(({ type }) => type === "REASONING_MESSAGE_CONTENT"), text);
      if (version !== OLD && text.includes("plan")) assert.ok(events.some(({ type }) => type === "ACTIVITY_SNAPSHOT"), text);
    }
  });

  test(`client ${version} answers a question and a front-end tool`, async (t) => {
    const { url } = await serve(t, ["--store", "memory:"]);
    const asking = open(url, version, "asks", "approve");
    const asked = await run(asking, { runId: "one" });
    assert.equal(asked.failure, null);
    const [item] = await pendingOf(url, "asks");
    const knowsOutcome = version !== OLD && version !== "0.0.52";
    const payload = { approved: true };
    if (knowsOutcome) {
      assert.deepEqual(asking.pendingInterrupts.map(({ id, message }) => [id, message]), [[item.id, "Pay 40 EUR?"]]);
    } else {
      // The form that front ends of that time answer.
      const question = asked.events.find(({ name }) => name === "on_interrupt");
      const value = typeof question.value === "string" ? JSON.parse(question.value) : question.value;
      assert.equal(value.message, "Pay 40 EUR?");
    }
    const answer = knowsOutcome
      ? { resume: [{ interruptId: item.id, status: "resolved", payload }] }
      : { forwardedProps: { command: { resume: payload } } };
    const answered = await run(asking, { runId: "two", ...answer });
    assert.equal(answered.failure, null);
    assert.match(textOf(answered.events), /approved/);
    assert.deepEqual(await pendingOf(url, "asks"), []);

    const tool = open(url, version, "tool", "confirm");
    const called = await run(tool, { runId: "three", tools: TOOLS });
    assert.equal(called.failure, null);
    const call = tool.messages.flatMap(({ toolCalls = [] }) => toolCalls).at(-1);
    assert.equal(call.function.name, "confirmAction");
    tool.messages = [...tool.messages, { id: "result", role: "tool", toolCallId: call.id, content: "yes" }];
    const finished = await run(tool, { runId: "four", tools: TOOLS });
    assert.equal(finished.failure, null);
    assert.match(textOf(finished.events), /Your front end answered yes/);
  });
}

/** An agent whose tool result has an image, that uses subagents, repeats both in a snapshot, and leaves a call open. */
async function modernAgent(t) {
  const content = [
    { type: "text", text: "drawn" },
    { type: "image", source: { type: "url", value: "https://h/a.png" } },
  ];
  const handle = { type: "image", source: { type: "file", value: "file-1", provider: "acme" } };
  return upstream(t, (response, { threadId, runId, messages }) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    const call = (id, name) => ({ id, type: "function", function: { name, arguments: "{}" } });
    const events = [
      { type: "RUN_STARTED", threadId, runId, protocolVersion: "1.0" },
      { type: "SUBAGENT_STARTED", subagentRunId: "s", name: "artist" },
      { type: "STEP_STARTED", stepName: "work" },
      { type: "STEP_STARTED", stepName: "work", subagentRunId: "s" },
      { type: "TOOL_CALL_START", toolCallId: `${runId}-c`, toolCallName: "draw", parentMessageId: `${runId}-m` },
      { type: "TOOL_CALL_END", toolCallId: `${runId}-c` },
      { type: "TOOL_CALL_RESULT", toolCallId: `${runId}-c`, messageId: `${runId}-r`, content },
      { type: "STEP_FINISHED", stepName: "work", subagentRunId: "s" },
      { type: "STEP_FINISHED", stepName: "work" },
      { type: "SUBAGENT_FINISHED", subagentRunId: "s" },
      { type: "TOOL_CALL_START", toolCallId: `${runId}-f`, toolCallName: "confirmAction", parentMessageId: `${runId}-m` },
      { type: "TOOL_CALL_END", toolCallId: `${runId}-f` },
      {
        type: "MESSAGES_SNAPSHOT",
        messages: [
          ...messages,
          { id: "seen", role: "user", content: [{ type: "text", text: "this" }, handle] },
          { id: `${runId}-m`, role: "assistant", toolCalls: [call(`${runId}-c`, "draw"), call(`${runId}-f`, "confirmAction")] },
          { id: `${runId}-r`, role: "tool", toolCallId: `${runId}-c`, content },
        ],
      },
      { type: "RUN_FINISHED", threadId, runId, outcome: { type: "success", pendingToolCallIds: [`${runId}-f`] } },
    ];
    response.end(events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join(""));
  });
}

for (const version of VERSIONS) {
  test(`client ${version} takes media in tool results, files, subagents and open calls`, async (t) => {
    const agent = await modernAgent(t);
    const { url } = await serve(t, ["--store", "memory:", "--ag-ui", agent.url]);
    const client = open(url, version, "t", "draw");
    const { events, failure } = await run(client, { runId: "r", tools: TOOLS });
    assert.equal(failure, null, String(failure));
    assert.equal(events.at(-1).type, "RUN_FINISHED");
    const result = client.messages.find(({ role }) => role === "tool");
    if (version === "1.0.0") assert.equal(result.content[1].source.value, "https://h/a.png");
    else assert.match(result.content, /^drawn\n.*"https:\/\/h\/a\.png"/);
    assert.equal((await pendingOf(url, "t"))[0].id, "r-f");

    // A reconnect has no body that would tell the version: the client gets the rest in the form in which it began.
    const posted = await fetch(addressOf(url, version), {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ ...inputOf("again", "r2"), ...(version === "1.0.0" ? { protocolVersion: "1.0" } : {}) }),
    });
    const whole = framesOf(await posted.text());
    for (const route of ["/runs/r2/stream", "/threads/again/stream"]) {
      const cursor = whole[0].id;
      const resumed = await fetch(url + route, { headers: { "last-event-id": cursor } });
      assert.deepEqual(framesOf(await resumed.text()), whole.slice(1), route);
    }
  });
}

const inputOf = (threadId, runId) => ({
  threadId, runId, state: {}, messages: [{ id: "u2", role: "user", content: "draw" }], tools: TOOLS, context: [], forwardedProps: {},
});

/** The frames of an SSE body. */
const framesOf = (text) => text.split("\n\n").filter((block) => /^data: /m.test(block)).map((block) => ({
  id: block.match(/^id: (.*)$/m)?.[1],
  event: JSON.parse(block.match(/^data: (.*)$/m)[1]),
}));

test("an unknown profile is refused with the list", async (t) => {
  const { url } = await serve(t, ["--store", "memory:"]);
  for (const [path, init] of [
    ["/?profile=0.0.7", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(inputOf("t", "r")) }],
    ["/runs/r/stream?profile=0.0.7", {}],
  ]) {
    const response = await fetch(url + path, init);
    assert.equal(response.status, 400, path);
    const text = await response.text();
    for (const name of ["auto", "1", "0.0.5x", "0", "chunks", "copilotkit", "draft"]) assert.ok(text.includes(`\`${name}\``), `${path}: ${text}`);
  }
});

test("an interrupt survives a conversion to every old form and back", async () => {
  const { agentwire } = await import("./peers.mjs");
  const interrupts = [{ id: "i1", reason: "langgraph:interrupt", message: "Pay?", metadata: { langgraph: { raw: { question: "Pay?", options: [1, 2] } } } }];
  const events = [
    { type: "RUN_STARTED", threadId: "t", runId: "r" },
    { type: "RUN_FINISHED", threadId: "t", runId: "r", outcome: { type: "interrupt", interrupts } },
  ];
  for (const profile of ["0", "0.0.5x", "copilotkit", "draft"]) {
    const old = await agentwire(["convert", "--from", "ag-ui", "--to", `ag-ui@${profile}`, "-"], events.map((event) => JSON.stringify(event)).join("\n"));
    const back = await agentwire(["convert", "--from", "ag-ui", "--to", "ag-ui", "--lines", "-"], old.stdout);
    const last = JSON.parse(back.stdout.toString().trim().split("\n").at(-1));
    assert.equal(last.outcome?.type, "interrupt", profile);
    assert.equal(last.outcome.interrupts[0].id, "i1", profile);
    if (profile !== "draft") assert.deepEqual(last.outcome.interrupts, interrupts, profile);
    else assert.deepEqual(last.outcome.interrupts[0].metadata.payload.options, [1, 2]);
  }
});

test("CopilotKit's hooks find the value of an interrupt, answer it, and it is pending meanwhile", async (t) => {
  const raw = { question: "Which one?", options: ["a", "b"] };
  const agent = await upstream(t, (response, { threadId, runId, resume }) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    const interrupts = [{ id: "i1", reason: "langgraph:interrupt", message: raw.question, metadata: { langgraph: { raw } } }];
    const events = [
      { type: "RUN_STARTED", threadId, runId },
      ...(resume ? [{ type: "TEXT_MESSAGE_CHUNK", messageId: runId, delta: `You chose ${resume[0].payload}.` }] : []),
      { type: "RUN_FINISHED", threadId, runId, ...(resume ? {} : { outcome: { type: "interrupt", interrupts } }) },
    ];
    response.end(events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join(""));
  });
  const { url } = await serve(t, ["--store", "memory:", "--ag-ui", agent.url]);
  const client = open(url, "0.0.59", "t", "ask");
  client.url = `${url}/?profile=copilotkit`;
  // As in `useInterrupt` of @copilotkit/react-core 1.74: interrupts of the outcome win over the last `on_interrupt`.
  let legacy = null;
  let standard = null;
  const watch = {
    onCustomEvent: ({ event }) => void (event.name === "on_interrupt" && (legacy = event)),
    onRunFinishedEvent: ({ outcome, interrupts }) => void (outcome === "interrupt" && (standard = interrupts)),
  };
  await client.runAgent({ runId: "r1" }, watch);
  const event = standard ? { value: standard[0] } : legacy;
  assert.deepEqual(event.value.options, ["a", "b"]);
  assert.deepEqual((await pendingOf(url, "t")).map(({ id, message }) => [id, message]), [["i1", "Which one?"]]);
  const { events, failure } = await run(client, { runId: "r2", forwardedProps: { command: { resume: "b", interruptEvent: event.value } } });
  assert.equal(failure, null);
  assert.equal(textOf(events), "You chose b.");
  assert.deepEqual(await pendingOf(url, "t"), []);
});
