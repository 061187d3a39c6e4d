// A real `adk api_server`, agentwire's requests to it, the conversion of its responses, and the official client.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { Conversation, ask, convert, custom, of, said, send, startServer, suite } from "./peers.mjs";

/** 1.x names no class in its error frames, and raises where 2.x reports the error to the model. */
const first = suite === "adk-1";

let server;
before(async () => {
  server = await startServer();
});
after(() => server?.close());

const talk = (name) => new Conversation(server, name);
const last = (events) => events.at(-1);

/** The content of a message without the fields that only one side has: id and author. */
const content = (messages) =>
  messages.map(({ role, content, toolCalls, toolCallId }) => ({
    role,
    content: content || undefined,
    calls: toolCalls?.map((call) => [call.id, call.function.name, JSON.parse(call.function.arguments)]),
    toolCallId,
  }));

async function agrees(conversation) {
  const { messages } = await conversation.stored();
  const shown = conversation.agent.messages.filter((message) => message.role !== "activity");
  assert.deepEqual(content(shown), content(messages), "the client has the messages that ADK has stored");
}

test("streamed text appears once", async () => {
  const conversation = talk("text");
  const events = await conversation.run("hello there");
  assert.equal(said(events), "You said : hello there");
  assert.ok(of(events, "TEXT_MESSAGE_CONTENT").length > 3);
  assert.equal(last(events).type, "RUN_FINISHED");
  assert.equal(last(events).usage[0].totalTokens, 20);
  await agrees(conversation);
});

test("a long response arrives whole", async () => {
  const events = await talk("long").run("long 500");
  assert.equal(of(events, "TEXT_MESSAGE_CONTENT").length, 500);
  assert.ok(said(events).endsWith("word0498 end."));
});

test("tools run once, sequentially and in parallel", async () => {
  const conversation = talk("tools");
  let events = await conversation.run("weather");
  assert.deepEqual(of(events, "TOOL_CALL_START").map((event) => event.toolCallName), ["get_weather"]);
  assert.equal(of(events, "TOOL_CALL_RESULT")[0].content, '{"city":"Paris","tempC":21.5}');
  events = await conversation.run("both");
  assert.deepEqual(of(events, "TOOL_CALL_START").map((event) => event.toolCallName), ["get_weather", "slow_add"]);
  assert.equal(of(events, "TOOL_CALL_RESULT").length, 2);
  await agrees(conversation);
});

test("a long-running tool is pending while the model continues, and the answer resumes it", async () => {
  const conversation = talk("approval");
  const events = await conversation.run("please approve");
  assert.match(said(events), /^I need approval\. ask_for_approval said .*pending/);
  assert.equal(custom(events, "adk.provisional_result").length, 1);
  assert.equal(last(events).outcome.type, "interrupt");
  const [interrupt] = last(events).outcome.interrupts;
  assert.equal(interrupt.metadata.name, "ask_for_approval");
  assert.deepEqual(interrupt.metadata.arguments, { purpose: "books" });
  const resume = [{ interruptId: interrupt.id, status: "resolved", payload: { status: "approved" } }];
  const resumed = await conversation.run(undefined, { resume });
  assert.match(said(resumed), /ask_for_approval said .*approved/);
  assert.equal(last(resumed).outcome, undefined);
  assert.equal((await conversation.stored()).waiting.length, 0);
});

test("several pending questions are answered in one run", async () => {
  const conversation = talk("twice");
  const events = await conversation.run("twice");
  const { interrupts } = last(events).outcome;
  assert.deepEqual(interrupts.map((interrupt) => interrupt.metadata.name), ["ask_silently", "ask_for_approval"]);
  const resume = interrupts.map(({ id }, index) => ({ interruptId: id, status: "resolved", payload: `answer ${index}` }));
  const resumed = await conversation.run(undefined, { resume });
  // ADK reorders them.
  assert.match(said(resumed), /ask_silently said .*answer 0/);
  assert.match(said(resumed), /ask_for_approval said .*answer 1/);
});

for (const approved of [true, false]) {
  test(`a confirmation is ${approved ? "approved" : "rejected"}`, async () => {
    const conversation = talk(`confirm-${approved}`);
    const events = await conversation.run("confirm it");
    const [interrupt] = last(events).outcome.interrupts;
    assert.equal(interrupt.reason, "confirmation");
    const [guarded] = of(events, "TOOL_CALL_START");
    assert.equal(interrupt.toolCallId, guarded.toolCallId);
    assert.match(interrupt.message, /delete_all/);
    assert.equal(of(events, "TOOL_CALL_RESULT").length, 0, "the tool has not run");
    const resume = [{ interruptId: interrupt.id, status: "resolved", payload: { approved } }];
    const resumed = await conversation.run(undefined, { resume });
    const results = of(resumed, "TOOL_CALL_RESULT").filter((event) => event.toolCallId === guarded.toolCallId);
    assert.equal(results.length, 1);
    if (approved) assert.equal(results[0].content, '{"deleted":"tmp"}');
    else assert.match(results[0].content, /rejected/);
    const answers = conversation.agent.messages.filter((message) => message.toolCallId === guarded.toolCallId);
    assert.equal(answers.length, 1, "the later answer is the only one");
  });
}

test("an abandoned confirmation counts as rejected", async () => {
  const conversation = talk("confirm-cancelled");
  const [interrupt] = last(await conversation.run("confirm it")).outcome.interrupts;
  const resumed = await conversation.run(undefined, { resume: [{ interruptId: interrupt.id, status: "cancelled" }] });
  assert.match(of(resumed, "TOOL_CALL_RESULT")[0].content, /rejected/);
});

test("a front-end tool is called, gets a result, and is removed with its run", async () => {
  const conversation = talk("frontend");
  const pick = { name: "pick_colour", description: "Picks.", parameters: { type: "object", properties: { of: { type: "array" } } } };
  const context = [{ description: "page", value: "/cart" }];
  let events = await conversation.run("tools?", { tools: [pick], context });
  assert.match(said(events), /pick_colour/);
  assert.match(said(events), /page: \/cart/);
  events = await conversation.run("pick one", { tools: [pick] });
  const [call] = of(events, "TOOL_CALL_START");
  assert.equal(call.toolCallName, "pick_colour");
  assert.equal(of(events, "TOOL_CALL_RESULT").length, 0);
  assert.deepEqual((await conversation.stored()).waiting, [
    { id: call.toolCallId, name: "pick_colour", arguments: { of: ["red", "blue"] } },
  ]);
  // `convert` does not know the request, so the call appears as an interrupt; the answer may be a tool message.
  conversation.agent.messages.push({ id: "t1", role: "tool", toolCallId: call.toolCallId, content: "blue" });
  const resume = [{ interruptId: call.toolCallId, status: "resolved", payload: "blue" }];
  conversation.agent.pendingInterrupts = [];
  events = await conversation.run(undefined, { tools: [pick], resume });
  assert.match(said(events), /pick_colour said .*blue/);
  events = await conversation.run("tools?");
  assert.doesNotMatch(said(events), /pick_colour/);
  assert.equal(conversation.agent.state["agentwire:tools"], undefined, "no client sees our keys");
});

test("state is sent in both directions", async () => {
  const conversation = talk("state");
  conversation.agent.state = { mine: 1, "user:shared": 2 };
  const events = await conversation.run("state please");
  const paths = of(events, "STATE_DELTA").flatMap((event) => event.delta.map((operation) => operation.path));
  assert.deepEqual(paths, ["/theme", "/a~1b~0c", "/last_answer"]);
  assert.equal(conversation.agent.state.theme, "dark");
  const { state } = await conversation.stored();
  assert.equal(state.mine, 1);
  assert.equal(state["user:shared"], undefined, "a client cannot write beyond its session");
  assert.deepEqual(state["a/b~c"], ["dark"]);
  conversation.agent.state = { ...conversation.agent.state, mine: 2 };
  await conversation.run("hi");
  assert.deepEqual(conversation.request.body.stateDelta, { mine: 2 });
  assert.equal((await conversation.stored()).state.mine, 2);
  const patched = await send(server, await ask({ call: "patch_state", input: conversation.input(), state: { mine: 3 } }));
  assert.equal((await ask({ call: "session", body: await patched.text() })).state.mine, 3);
});

test("artifacts are announced once and can be downloaded", async () => {
  const conversation = talk("artifact");
  const events = await conversation.run("artifact please");
  assert.deepEqual(custom(events, "adk.artifact"), [{ filename: "report.txt", version: 0 }]);
  assert.equal(of(events, "TOOL_CALL_RESULT").length, 1);
  const list = await send(server, await ask({ call: "list_artifacts", input: conversation.input() }));
  assert.deepEqual(await list.json(), ["report.txt"]);
  const one = await send(server, await ask({ call: "get_artifact", input: conversation.input(), filename: "report.txt" }));
  assert.equal(Buffer.from((await one.json()).inlineData.data, "base64url").toString(), "hello");
});

test("thoughts become reasoning with their signature, never text", async () => {
  const conversation = talk("think");
  const events = await conversation.run("think");
  assert.equal(said(events), "Hello!");
  assert.equal(of(events, "REASONING_MESSAGE_CONTENT").map((event) => event.delta).join(""), "Hmm, hi.");
  const [signature] = of(events, "REASONING_ENCRYPTED_VALUE");
  assert.deepEqual([...Buffer.from(signature.encryptedValue, "base64url")], [0xfb, 0xff]);
});

test("media is converted in both directions, each in its own base64 alphabet", async () => {
  const conversation = talk("media");
  const bytes = Buffer.from([0xfb, 0xef, 0xbe]);
  const source = { type: "data", value: bytes.toString("base64"), mimeType: "image/png" };
  const events = await conversation.run([{ type: "text", text: "look" }, { type: "image", source }]);
  assert.equal(said(events), "Got image/png of 3 bytes .");
  const drawn = of(await conversation.run("draw"), "ACTIVITY_SNAPSHOT");
  assert.equal(drawn.length, 1);
  assert.equal(drawn[0].content.source.value, "++++");
});

test("a text rewritten by a guardrail is corrected, not duplicated", async () => {
  const conversation = talk("rewrite");
  await conversation.run("hello");
  const events = await conversation.run("rewrite");
  assert.equal(said(events), "the secret is 42");
  assert.equal(of(events, "MESSAGES_SNAPSHOT").length, 1);
  const texts = conversation.agent.messages.map((message) => message.content).filter((text) => /secret|say/.test(text));
  assert.deepEqual(texts, ["I will not say."]);
});

for (const [keyword, code, text] of [
  ["fail", first ? "UPSTREAM_ERROR" : "RuntimeError", "Half an answ"],
  ["raise", first ? "UPSTREAM_ERROR" : "FileNotFoundError", ""],
  ["block", "SAFETY", "I was "],
]) {
  test(`a run that ends with ${code} (${keyword}) fails once and keeps its partial text`, async () => {
    const events = await talk(`error-${keyword}`).run(keyword);
    assert.equal(said(events), text);
    assert.equal(of(events, "RUN_ERROR").length, 1);
    assert.equal(last(events).code, code);
    assert.equal(of(events, "RUN_FINISHED").length, 0);
  });
}

test("an unknown tool is reported to the model, or ends the run", async () => {
  const events = await talk("unknown-tool").run("unknown");
  assert.equal(last(events).type, first ? "RUN_ERROR" : "RUN_FINISHED");
  assert.equal(of(events, "TOOL_CALL_RESULT").length, first ? 0 : 1);
});

test("an error response of the server becomes one clear error", async () => {
  const input = { threadId: "nobody", runId: "r", messages: [{ id: "u", role: "user", content: "hi" }], tools: [], context: [] };
  const refused = await send(server, await ask({ call: "run", input }));
  assert.equal(refused.status, 404);
  const made = await convert(Buffer.from(await refused.arrayBuffer()));
  assert.match(made.stdout.toString(), /"type":"RUN_ERROR","message":"Session not found: nobody","code":"UPSTREAM_REFUSED"/);
  if (first) return; // 1.x responds to an unknown app with a plain 500, which never becomes a stream.
  const wrong = await send(server, await ask({ app: "nope", call: "run", input }));
  assert.match((await convert(Buffer.from(await wrong.arrayBuffer()))).stdout.toString(), /RUN_ERROR/);
});

test("an answer without a pending item never reaches the server", async () => {
  const conversation = talk("nothing");
  await conversation.run("hi");
  conversation.agent.messages.push({ id: "t", role: "tool", toolCallId: "c-unknown", content: "x" });
  await assert.rejects(conversation.run(undefined), /UNKNOWN_TOOL_CALL/);
});

test("sessions are listed and deleted", async () => {
  const conversation = talk("to delete?");
  await conversation.run("hi");
  const list = async () => {
    const response = await send(server, await ask({ call: "list_sessions" }));
    return ask({ call: "sessions", body: await response.text() });
  };
  assert.ok((await list()).includes("to delete?"));
  assert.equal((await send(server, await ask({ call: "delete_session", input: conversation.input() }))).status, 200);
  assert.ok(!(await list()).includes("to delete?"));
});

test("a response that is not streamed reads the same", async () => {
  const conversation = talk("whole");
  await conversation.session({ ...conversation.input() });
  const { body } = await ask({ call: "run", input: { ...conversation.input(), messages: [{ id: "u", role: "user", content: "weather" }] } });
  const answer = await send(server, { method: "POST", path: "/run", body: { ...body, streaming: false } });
  const made = await convert(Buffer.from(await answer.arrayBuffer()), "--lines");
  const events = made.stdout.toString().trim().split("\n").map((line) => JSON.parse(line));
  assert.equal(of(events, "TOOL_CALL_RESULT").length, 1);
  assert.match(said(events), /^Let me check\. get_weather said/);
});
