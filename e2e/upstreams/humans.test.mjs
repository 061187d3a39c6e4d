// Human answers: in every client, repeated, concurrent, wrong, late; and runs that a user cancels and pauses.
// The agent is the built-in one; questions with a deadline or a schema come from a command.

import assert from "node:assert/strict";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";

import { AgUi, Gateway, Hai, clients, command, everyone, fresh, of, readFrames, said, startAndLeave, until } from "./gateway.mjs";

/** An agent that asks the requested questions, and repeats the answers. */
const ASKER = `
import json, sys
given = json.loads(sys.stdin.readline())
say = lambda **event: print(json.dumps(event), flush=True)
run, thread = given["runId"], given["threadId"]
say(type="RUN_STARTED", threadId=thread, runId=run)
outcome = {"type": "success"}
if given.get("resume"):
    say(type="TEXT_MESSAGE_CHUNK", messageId=run + "-m", delta=json.dumps([[e["interruptId"], e["status"], e.get("payload")] for e in given["resume"]]))
else:
    asked = json.loads([m for m in given["messages"] if m["role"] == "user"][-1]["content"])
    outcome = {"type": "interrupt", "interrupts": asked}
say(type="RUN_FINISHED", threadId=thread, runId=run, outcome=outcome)
`;

/** An agent that reports its process id, and continues in the middle when the given file exists. */
const TALKER = `
import json, os, sys, time
given = json.loads(sys.stdin.readline())
say = lambda **event: print(json.dumps(event), flush=True)
say(type="RUN_STARTED", threadId=given["threadId"], runId=given["runId"])
say(type="CUSTOM", name="pid", value=os.getpid())
file, parent = given["messages"][-1]["content"].removeprefix("wait-for:"), os.getppid()
for number in range(80):
    say(type="TEXT_MESSAGE_CHUNK", messageId=given["runId"] + "-m", delta=f"word{number:02d} ")
    while number == 20 and not os.path.exists(file) and os.getppid() == parent:
        time.sleep(0.02)
say(type="RUN_FINISHED", threadId=given["threadId"], runId=given["runId"])
`;

let gateway;
let folder;
let record;
before(async () => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), "agentwire-asker-"));
  record = path.join(folder, "audit.jsonl");
  for (const [name, text] of [["asker.py", ASKER], ["talker.py", TALKER]]) fs.writeFileSync(path.join(folder, name), text);
  const python = (name) => `{ kind = "exec", command = ["python3", "${path.join(folder, name)}"], format = "ag-ui" }`;
  gateway = await Gateway.configured(
    {
      demo: `{ kind = "demo" }`,
      gated: `{ kind = "demo" }\napprove = ["confirm*"]`,
      asker: python("asker.py"),
      talker: python("talker.py"),
    },
    `audit = "${record}"\nidentity = { user_header = "x-user" }`,
  );
});
after(async () => {
  await gateway?.stop();
  fs.rmSync(folder, { recursive: true, force: true });
});

const confirmAction = { name: "confirmAction", description: "Asks the person.", parameters: { type: "object", properties: { action: { type: "string" }, importance: { type: "string" } } } };

for (const [name, open] of everyone) {
  test(`${name}: a front-end tool, its result sent across a crash of the gateway`, async () => {
    const person = await open(gateway, "demo");
    await person.say("confirm", { tools: [confirmAction] });
    const [item] = await gateway.open(person.thread);
    assert.deepEqual([item.kind, item.name, item.arguments], ["frontend-tool", "confirmAction", { action: "Show a demo", importance: "low" }]);
    await gateway.crash();
    await person.answer(() => "yes please", { tools: [confirmAction] });
    assert.equal(person.failed(), null);
    assert.match(person.texts().at(-1), /^Your front end answered "?yes please"?\.$/);
    assert.deepEqual(await gateway.open(person.thread), []);
    await person.say("plan");
    assert.equal(person.failed(), null, "an old answer is no answer");
    assert.doesNotMatch(person.texts().at(-1), /Your front end/);
  });

  for (const approved of [true, false]) {
    test(`${name}: a payment is ${approved ? "approved" : "rejected"}`, async () => {
      const person = await open(gateway, "demo");
      await person.say("approve");
      const [item] = await gateway.open(person.thread);
      assert.deepEqual([item.kind, item.name, item.arguments], ["approval", "pay", { amount: 40, currency: "EUR" }]);
      await person.answer(() => ({ approved }));
      assert.equal(person.failed(), null);
      assert.match(person.texts().at(-1), new RegExp(`^Your answer was .*${approved}`));
      await person.say("plan");
      assert.equal(person.failed(), null);
      assert.doesNotMatch(person.texts().at(-1), /Your answer/);
    });
  }
}

for (const [name, open] of everyone) {
  test(`${name}: a call is approved with other arguments`, async () => {
    const person = await open(gateway, "gated");
    await person.say("confirm", { tools: [confirmAction] });
    const [question] = await gateway.open(person.thread);
    assert.deepEqual([question.kind, question.name, question.arguments], ["approval", "confirmAction", { action: "Show a demo", importance: "low" }]);
    const before = person.texts();
    const editedArgs = { action: "Show less", importance: "high" };
    await person.answer(() => ({ approved: true, editedArgs: "nonsense" }), { tools: [confirmAction] });
    assert.equal(person.failed(), "SCHEMA_MISMATCH");
    assert.deepEqual(await gateway.open(person.thread), [question]);
    const again = await open(gateway, "gated");
    await again.say("confirm", { tools: [confirmAction] });
    await again.answer(() => ({ approved: true, editedArgs }), { tools: [confirmAction] });
    assert.equal(again.failed(), null);
    assert.deepEqual(again.texts(), before, "nothing is said twice");
    const [item] = await gateway.open(again.thread);
    assert.deepEqual([item.kind, item.arguments], ["frontend-tool", editedArgs]);
    // A HAI client has the calls as they were streamed; the snapshot has the new arguments. A page of `ai` shows the call
    // a second time, in its new step.
    const calls = again.calls().filter(([, tool]) => tool === "confirmAction");
    assert.equal(new Set(calls.map(([id]) => id)).size, 1);
    if (name !== "hai") assert.deepEqual(calls.at(-1)[2], editedArgs);
    const { messages } = await gateway.get(`/message_snapshot/${again.thread}`);
    assert.deepEqual(messages.flatMap((message) => message.toolCalls ?? []).map((call) => JSON.parse(call.function.arguments)), [editedArgs]);
    await again.answer(() => "done", { tools: [confirmAction] });
    assert.equal(again.failed(), null);
    assert.match(again.texts().at(-1), /^Your front end answered "?done"?\.$/);
  });
}

for (const [name, open] of everyone.filter(([name]) => name.startsWith("ai"))) {
  test(`${name}: an answer and the next message in one request`, async () => {
    const person = await open(gateway, "demo");
    await person.say("approve");
    const [item] = await gateway.open(person.thread);
    const add = person.chat.addToolOutput ?? person.chat.addToolResult;
    if (person.parts().some((part) => part.approval?.id === item.id)) await person.chat.addToolApprovalResponse({ id: item.id, approved: true });
    else await add({ tool: "interrupt", toolCallId: `interrupt:${item.id}`, output: { approved: true } });
    await person.say("and then?");
    assert.equal(person.failed(), null);
    assert.equal(person.texts().at(-1), 'Your answer was {"approved":true}.');
    await person.say("confirm", { tools: [confirmAction] });
    const [call] = await gateway.open(person.thread);
    await add({ tool: "confirmAction", toolCallId: call.id, output: "yes" });
    await person.say("plan", { tools: [confirmAction] });
    assert.equal(person.failed(), null);
    assert.deepEqual(await gateway.open(person.thread), []);
    assert.doesNotMatch(person.texts().at(-1), /Your answer/);
  });
}

test("hai: a plain `true`, and a whole conversation sent along afterwards", async () => {
  const person = new Hai(gateway, "demo");
  await person.say("approve");
  await person.answer(() => "true");
  assert.equal(person.texts().at(-1), "Your answer was true.");
  const [{ id }] = [...person.questions].map((id) => ({ id }));
  const messages = [
    { id: "u1", role: "user", content: "approve" },
    { id: "t1", role: "tool", toolCallId: id, content: "true" },
    { id: "a1", role: "assistant", content: "Thanks." },
    { id: "u2", role: "user", content: "plan" },
  ];
  await person.run({ messages });
  assert.equal(person.last.type, "RUN_FINISHED");
  assert.equal(person.last.runId, person.runId, "a new question is a new run");
  assert.doesNotMatch(person.texts().at(-1), /Your answer/);
});

/** Sends a request without a client; returns the events. */
async function raw(agent, body) {
  const whole = { threadId: fresh("thread"), runId: fresh("run"), messages: [], tools: [], context: [], state: {}, forwardedProps: {}, ...body };
  const answer = await fetch(gateway.base(agent), { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(whole) });
  assert.equal(answer.status, 200);
  return (await readFrames(answer)).frames.map(({ event }) => event);
}

const user = (content) => ({ id: fresh("user"), role: "user", content });
const resolved = (interruptId, payload) => ({ interruptId, status: "resolved", payload });

/** A thread in which the demo agent has requested an approval. */
async function asked() {
  const thread = fresh("thread");
  await raw("demo", { threadId: thread, messages: [user("approve")] });
  const [item] = await gateway.open(thread);
  return { thread, item };
}

const ending = (events) => events.at(-1).code ?? events.at(-1).outcome?.type ?? "success";

test("a repeated answer returns the run of the first one", async () => {
  const { thread, item } = await asked();
  const resume = [resolved(item.id, { approved: true })];
  const first = await raw("demo", { threadId: thread, resume });
  const second = await raw("demo", { threadId: thread, resume });
  assert.equal(first.at(-1).type, "RUN_FINISHED");
  assert.deepEqual(second, first);
});

test("identical concurrent answers are one run", async () => {
  const { thread, item } = await asked();
  const resume = [resolved(item.id, { approved: true })];
  const all = await Promise.all(Array.from({ length: 8 }, () => raw("demo", { threadId: thread, resume })));
  assert.equal(new Set(all.map((events) => events[0].runId)).size, 1);
  for (const events of all) assert.deepEqual(events, all[0]);
});

test("of different concurrent answers one wins, and the others get an error", async () => {
  const { thread, item } = await asked();
  const all = await Promise.all(Array.from({ length: 8 }, (_, number) => raw("demo", { threadId: thread, resume: [resolved(item.id, { approved: true, number })] })));
  const won = all.filter((events) => events.at(-1).type === "RUN_FINISHED");
  assert.equal(won.length, 1, JSON.stringify(all.map(ending)));
  for (const events of all.filter((events) => events !== won[0])) assert.equal(ending(events), "ALREADY_ANSWERED");
});

test("a different answer afterwards gets an error too, in every protocol", async () => {
  const { thread, item } = await asked();
  await raw("demo", { threadId: thread, resume: [resolved(item.id, { approved: true })] });
  assert.equal(ending(await raw("demo", { threadId: thread, resume: [resolved(item.id, { approved: false })] })), "ALREADY_ANSWERED");
  const person = new Hai(gateway, "demo", thread);
  await person.run({ messages: [{ id: fresh("tool"), role: "tool", toolCallId: item.id, content: "false" }] });
  assert.equal(person.failed(), "ALREADY_ANSWERED");
});

const SCHEMA = { type: "object", properties: { seat: { type: "string" } }, required: ["seat"] };
const seat = { id: "seat", reason: "input_required", message: "Which seat?", responseSchema: SCHEMA };
const date = { id: "date", reason: "input_required", message: "Which day?" };
const past = { id: "past", reason: "input_required", expiresAt: "2020-01-01T00:00:00Z" };
const result = (toolCallId) => ({ id: fresh("tool"), role: "tool", toolCallId, content: "x" });

const WRONG = [
  ["an unknown interrupt", [date], { resume: [resolved("nothing", 1)] }, "UNKNOWN_INTERRUPT"],
  ["an unknown interrupt without pending items", [], { resume: [resolved("nothing", 1)] }, "UNKNOWN_INTERRUPT"],
  ["a result without a pending call", [date], { messages: [result("nothing")] }, "UNKNOWN_TOOL_CALL"],
  ["one answer of two", [date, seat], { resume: [resolved("date", "today")] }, "INTERRUPT_UNANSWERED"],
  ["a message instead", [date], { messages: [user("never mind")] }, "INTERRUPT_UNANSWERED"],
  ["an expired interrupt", [past], { resume: [resolved("past", 1)] }, "INTERRUPT_EXPIRED"],
  ["a wrong type", [seat], { resume: [resolved("seat", { seat: 12 })] }, "SCHEMA_MISMATCH"],
  ["a missing member", [seat], { resume: [resolved("seat", {})] }, "SCHEMA_MISMATCH"],
  ["no payload", [seat], { resume: [{ interruptId: "seat", status: "resolved" }] }, "SCHEMA_MISMATCH"],
  ["one right and one wrong", [date, seat], { resume: [resolved("date", "today"), resolved("seat", [])] }, "SCHEMA_MISMATCH"],
];

for (const [title, questions, answer, code] of WRONG) {
  test(`a wrong answer: ${title}: ${code}, and nothing changes`, async () => {
    // The agent chooses the ids; each thread has its own.
    const thread = fresh("thread");
    await raw("asker", { threadId: thread, messages: [user(JSON.stringify(questions))] });
    const before = await gateway.open(thread);
    assert.equal(before.length, questions.filter((question) => question !== past).length);
    const runId = fresh("run");
    const events = await raw("asker", { threadId: thread, runId, ...answer });
    assert.deepEqual(events.map((event) => event.type), ["RUN_STARTED", "RUN_ERROR"]);
    assert.equal(events[1].code, code);
    assert.deepEqual(await gateway.open(thread), before, "the questions stay open");
    assert.equal((await fetch(`${gateway.url}/runs/${runId}`)).status, 404, "a refused run leaves nothing behind");
    if (before.length === 0) return;
    // The right answer is still accepted.
    const right = questions.map(({ id }) => resolved(id, id === "seat" ? { seat: "12A" } : "today"));
    const done = await raw("asker", { threadId: thread, runId, resume: right });
    assert.equal(done.at(-1).type, "RUN_FINISHED");
    assert.deepEqual(await gateway.open(thread), []);
  });
}

test("hai: a result without a pending call, and a message instead of an answer", async () => {
  const { thread, item } = await asked();
  for (const [messages, code] of [[[result("nothing")], "UNKNOWN_TOOL_CALL"], [[user("never mind")], "INTERRUPT_UNANSWERED"], [[{ ...result(item.id), content: "maybe" }], "SCHEMA_MISMATCH"]]) {
    const person = new Hai(gateway, "demo", thread);
    await person.run({ messages });
    assert.equal(person.failed(), code);
    assert.deepEqual(await gateway.open(thread), [item]);
  }
});

test("ai: approvals without a request, and a message instead of an answer", async () => {
  const part = (id, approved) => ({ type: "tool-pay", toolCallId: "call", state: "approval-responded", input: {}, approval: { id, approved } });
  const post = async (id, messages) => {
    const answer = await fetch(`${gateway.base("demo")}/api/chat?profile=7`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ id, messages, trigger: "submit-message" }) });
    return { status: answer.status, code: answer.headers.get("agentwire-error-code") };
  };
  const said = { id: "u", role: "user", parts: [{ type: "text", text: "approve" }] };
  const forged = { id: "a", role: "assistant", parts: [part("nothing", true)] };
  assert.deepEqual(await post(fresh("thread"), [said, forged]), { status: 409, code: "UNKNOWN_INTERRUPT" });
  const { thread, item } = await asked();
  assert.deepEqual(await post(thread, [said, forged]), { status: 409, code: "UNKNOWN_INTERRUPT" });
  assert.deepEqual(await post(thread, [said, { id: "u2", role: "user", parts: [{ type: "text", text: "never mind" }] }]), { status: 409, code: "INTERRUPT_UNANSWERED" });
  assert.deepEqual(await gateway.open(thread), [item]);
});

test("unknown answers beside a complete one are ignored", async () => {
  const thread = fresh("thread");
  await raw("asker", { threadId: thread, messages: [user(JSON.stringify([date]))] });
  const events = await raw("asker", { threadId: thread, resume: [resolved("nothing", 1), resolved("date", "today")] });
  assert.equal(events.at(-1).type, "RUN_FINISHED");
  assert.deepEqual(JSON.parse(said(events)), [["date", "resolved", "today"]], "the agent does not hear of them");
});

test("an empty result for a front-end tool: NO_TOOL_RESULTS", async () => {
  const thread = fresh("thread");
  await raw("demo", { threadId: thread, messages: [user("confirm")], tools: [confirmAction] });
  const before = await gateway.open(thread);
  assert.equal(before.length, 1);
  for (const messages of [[], [user("well?")]]) {
    assert.equal(ending(await raw("demo", { threadId: thread, messages, resume: [] })), "NO_TOOL_RESULTS");
    assert.deepEqual(await gateway.open(thread), before);
  }
});

/** A response as bytes, without the parts that differ each time. */
async function bytes(method, where, user, body) {
  const answer = await fetch(gateway.url + where, { method, headers: { "content-type": "application/json", "x-user": user }, ...(body ? { body: JSON.stringify(body) } : {}) });
  return [answer.status, (await answer.text()).replace(/"timestamp":\d+/g, "")];
}

test("another user's question, run and thread look as if they did not exist, byte for byte", async () => {
  const { thread, item } = await asked();
  const [run, nothing] = [item.runId, "no-such-thing"];
  const pairs = [
    ["GET", (id) => `/threads/${id}/pending`, thread],
    ["GET", (id) => `/threads/${id}/feedback`, thread],
    ["GET", (id) => `/runs/${id}`, run],
    ...["stop", "pause", "resume"].map((action) => ["POST", (id) => `/runs/${id}/${action}`, run]),
    ["DELETE", (id) => `/thread/${id}`, thread],
    ["POST", () => "/feedback", thread, (threadId) => ({ threadId, rating: "up" })],
  ];
  for (const [method, where, id, body] of pairs) {
    const [theirs, none] = [await bytes(method, where(id), "eve", body?.(id)), await bytes(method, where(nothing), "eve", body?.(nothing))];
    assert.deepEqual(theirs, none, where(id));
    assert.equal(theirs[0], 404);
  }
  const resume = [resolved(item.id, { approved: true })];
  const ask = (threadId) => bytes("POST", "/agents/demo", "eve", { threadId, runId: "eves", messages: [], tools: [], context: [], state: {}, forwardedProps: {}, resume });
  const [status, text] = await ask(thread);
  assert.deepEqual([status, text.replaceAll(thread, nothing)], await ask(nothing));
  assert.match(text, /UNKNOWN_INTERRUPT/);
  const tool = (threadId) => bytes("POST", "/agents/demo/awp", "eve", { threadId, runId: "eves", messages: [{ id: "t", role: "tool", toolCallId: item.id, content: "true" }] });
  assert.deepEqual((await tool(thread))[1].replaceAll(thread, nothing), (await tool(nothing))[1]);
  const part = { type: "tool-pay", toolCallId: "call", state: "approval-responded", input: {}, approval: { id: item.id, approved: true } };
  const chat = (id) => bytes("POST", "/agents/demo/api/chat?profile=7", "eve", { id, trigger: "submit-message", messages: [{ id: "u", role: "user", parts: [{ type: "text", text: "x" }] }, { id: "a", role: "assistant", parts: [part] }] });
  assert.deepEqual(await chat(thread), await chat(nothing));
  assert.deepEqual(await gateway.open(thread), [item]);
});

/** The same question answered in HAI or AI SDK requests, without a client. */
const byHand = {
  hai: async (thread, item, approved) => {
    const answer = await fetch(`${gateway.base("demo")}/awp`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ threadId: thread, runId: fresh("run"), messages: [{ id: fresh("tool"), role: "tool", toolCallId: item.id, content: String(approved) }] }) });
    const events = (await readFrames(answer)).frames.map(({ event }) => event);
    return { run: events[0].runId, code: events.at(-1).code };
  },
  "ai 7": async (thread, item, approved) => {
    const part = { type: "tool-pay", toolCallId: item.toolCallId, state: "approval-responded", input: item.arguments, approval: { id: item.id, approved } };
    const messages = [{ id: "u", role: "user", parts: [{ type: "text", text: "approve" }] }, { id: "a", role: "assistant", parts: [part] }];
    const answer = await fetch(`${gateway.base("demo")}/api/chat?profile=7`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ id: thread, messages, trigger: "submit-message" }) });
    if (answer.status !== 200) return { code: answer.headers.get("agentwire-error-code") };
    await answer.text();
    return { run: answer.headers.get("x-run-id") };
  },
};

for (const [name, answer] of Object.entries(byHand)) {
  test(`${name}: identical answers, concurrent and later, are one run; a different one gets an error`, async () => {
    const { thread, item } = await asked();
    const same = await Promise.all(Array.from({ length: 5 }, () => answer(thread, item, true)));
    same.push(await answer(thread, item, true));
    assert.equal(new Set(same.map(({ run }) => run)).size, 1, JSON.stringify(same));
    assert.ok(same.every(({ code }) => !code), JSON.stringify(same));
    assert.equal((await answer(thread, item, false)).code, "ALREADY_ANSWERED");

    const next = await asked();
    const both = await Promise.all([true, false, true, false].map((approved) => answer(next.thread, next.item, approved)));
    const lost = both.filter(({ code }) => code);
    assert.deepEqual(lost.map(({ code }) => code), ["ALREADY_ANSWERED", "ALREADY_ANSWERED"], JSON.stringify(both));
    assert.equal(new Set(both.filter(({ code }) => !code).map(({ run }) => run)).size, 1);
  });
}

test("ai 4: a front-end tool and a question", async () => {
  const post = async (id, messages, more = {}) => {
    const answer = await fetch(`${gateway.base("demo")}/api/chat?profile=4`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ id, messages, ...more }) });
    const text = await answer.text();
    assert.equal(answer.status, 200, text);
    const lines = text.split("\n").filter(Boolean).map((line) => [line.slice(0, line.indexOf(":")), JSON.parse(line.slice(line.indexOf(":") + 1))]);
    return { calls: lines.filter(([code]) => code === "9").map(([, call]) => call), text: lines.filter(([code]) => code === "0").map(([, text]) => text).join("") };
  };
  for (const [text, result, expected] of [["confirm", "yes", /Your front end answered "?yes"?\./], ["approve", { approved: true }, /^Your answer was .*true/]]) {
    const id = fresh("thread");
    const said = [{ id: "u", role: "user", content: text }];
    const first = await post(id, said, { tools: [confirmAction] });
    const [item] = await gateway.open(id);
    const call = first.calls.find((call) => [item.id, `interrupt:${item.id}`].includes(call.toolCallId));
    assert.ok(call, JSON.stringify([first, item]));
    await gateway.crash();
    const toolInvocations = [{ state: "result", step: 0, ...call, result }];
    const second = await post(id, [...said, { id: "a", role: "assistant", content: "", toolInvocations }], { tools: [confirmAction] });
    assert.match(second.text, expected);
    assert.deepEqual(await gateway.open(id), []);
  }
});

for (const [text, type] of [["slow", "TEXT_MESSAGE_CONTENT"], ["think slow", "REASONING_MESSAGE_CONTENT"], ["tools slow", "TOOL_CALL_ARGS"]]) {
  test(`cancelled at the first ${type}; the client accepts the end`, async () => {
    const person = new AgUi(gateway, "demo");
    const runId = fresh("run");
    const events = await person.say(text, { runId, onEvent: (event, events) => event.type === type && of(events, type).length === 1 && gateway.post(`/runs/${runId}/stop`) });
    assert.deepEqual(events.at(-1).outcome, { type: "cancelled" });
    assert.equal((await gateway.get(`/runs/${runId}`)).status, "stopped");
  });
}

/** The run of a user's thread, once it emits text. */
const speaking = (person) =>
  until(async () => {
    const list = await fetch(`${gateway.url}/threads/${person.thread}/stream?format=ag-ui`);
    if (list.status !== 200) return null;
    const wanted = ["TEXT_MESSAGE_CONTENT", "REASONING_MESSAGE_CONTENT", "TOOL_CALL_ARGS"];
    const { frames } = await readFrames(list, (frames) => wanted.includes(frames.at(-1).event.type));
    return frames[0]?.event.runId;
  }, "the run");

const statuses = (events) => of(events, "CUSTOM").filter((event) => event.name === "hai.run_status").map((event) => event.value.status);

// The agent is slow, and no crash happens here.
describe("concurrent", { concurrency: 8 }, () => {
  for (const [name, open] of clients) {
    for (const text of ["slow", "think slow", "tools slow"]) {
      test(`${name}: ${text}: paused and resumed, no event is lost or duplicated`, async () => {
        const [person, other] = [await open(gateway, "demo"), await open(gateway, "demo")];
        const sent = person.say(text);
        const run = await speaking(person);
        for (const [action, status] of [["pause", "paused"], ["pause", "paused"], ["resume", "running"], ["resume", "running"]]) {
          const done = await gateway.post(`/runs/${run}/${action}`);
          assert.deepEqual([done.status, done.body.status, done.body.mode], [200, status, "soft"]);
        }
        await Promise.all([sent, other.say(text)]);
        assert.equal(person.failed(), null);
        assert.deepEqual(person.texts(), other.texts());
        assert.deepEqual(person.calls().map(([, ...call]) => call), other.calls().map(([, ...call]) => call));
        assert.equal((await gateway.get(`/runs/${run}`)).status, "finished");
        assert.equal((await gateway.post(`/runs/${run}/pause`)).status, 409);
        const { frames } = await readFrames(await fetch(`${gateway.url}/runs/${run}/stream`));
        assert.deepEqual(statuses(frames.map(({ event }) => event)), ["paused", "running"]);
      });

      test(`${name}: ${text}: paused and cancelled; the client accepts the end`, async () => {
        const person = await open(gateway, "demo");
        const sent = person.say(text);
        const run = await speaking(person);
        assert.equal((await gateway.post(`/runs/${run}/pause`)).body.status, "paused");
        for (let times = 0; times < 2; times += 1) assert.equal((await gateway.post(`/runs/${run}/stop`)).status, 200);
        await sent;
        assert.equal(person.failed(), null);
        assert.equal((await gateway.get(`/runs/${run}`)).status, "stopped");
        assert.equal((await gateway.post(`/runs/${run}/resume`)).status, 409);
        await person.say("plan");
        assert.equal(person.failed(), null, "the thread goes on");
      });
    }
  }
});

test("a command is paused hard, and a paused command does not survive a crash of its gateway", async () => {
  const person = new AgUi(gateway, "talker");
  const runId = fresh("run");
  const gate = gateway.gate();
  const sent = person.say(gate.words, { runId });
  await speaking(person);
  const held = await gateway.post(`/runs/${runId}/pause`);
  assert.deepEqual([held.status, held.body.status, held.body.mode], [200, "paused", "hard"]);
  assert.equal((await gateway.post(`/runs/${runId}/resume`)).body.mode, "hard");
  gate.open();
  const events = await sent;
  assert.equal(said(events), Array.from({ length: 80 }, (_, number) => `word${String(number).padStart(2, "0")} `).join(""));

  const { runId: next, frames } = await startAndLeave(gateway, "talker", { text: gateway.gate().words, enough: (frames) => frames.at(-1).event.name === "pid" });
  assert.equal((await gateway.post(`/runs/${next}/pause`)).body.mode, "hard");
  const pid = frames.at(-1).event.value;
  process.kill(pid, 0);
  await gateway.crash();
  await until(() => {
    try {
      process.kill(pid, 0);
      return fs.readFileSync(`/proc/${pid}/stat`, "utf8").includes(") Z ");
    } catch {
      return true;
    }
  }, "the command to end");
  assert.equal((await gateway.get(`/runs/${next}`)).status, "failed");
});

test("the audit log: all actions and rejections with their user, and tampering is detected", async () => {
  const { thread, item } = await asked();
  await raw("demo", { threadId: thread, resume: [resolved("nothing", 1)] });
  await raw("demo", { threadId: thread, resume: [resolved(item.id, { approved: true })] });
  await gateway.post("/runs/nothing/stop");
  await fetch(`${gateway.url}/feedback`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ threadId: thread, score: 0.9, comment: "well done" }) });
  // The file beside it, which contains the head, is written last.
  const lines = await until(() => {
    const text = fs.readFileSync(record, "utf8");
    const found = text.slice(0, text.lastIndexOf("\n") + 1).split("\n").filter(Boolean).map((line) => JSON.parse(line));
    const isWhole = fs.readFileSync(`${record}.head`, "utf8").includes(found.at(-1)?.hash);
    return isWhole && found.some((line) => line.feedback?.comment === "well done") && found;
  }, "the record");
  const mine = lines.filter((line) => line.thread === thread && line.action !== "read");
  assert.deepEqual(mine.map(({ action, outcome }) => [action, outcome]), [["start", "ok"], ["answer", "UNKNOWN_INTERRUPT"], ["answer", "ok"], ["feedback", "ok"]]);
  assert.deepEqual(mine[2].decisions.map(({ item, decision }) => [item, decision]), [[item.id, "approved"]]);
  assert.match(mine[2].decisions[0].payload, /^[0-9a-f]{64}$/);
  assert.equal(mine[3].feedback.score, 0.9);
  assert.ok(lines.some((line) => line.action === "stop" && line.run === "nothing" && line.outcome === "UNKNOWN_RUN"));

  const copy = path.join(folder, "copy.jsonl");
  const write = (lines) => {
    fs.writeFileSync(copy, lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
    fs.copyFileSync(`${record}.head`, `${copy}.head`);
    return command("audit", "export", copy);
  };
  // The gateway is still writing; the existing lines are intact up to the head.
  const { code, stdout } = write(fs.readFileSync(record, "utf8").split("\n").filter(Boolean).map((line) => JSON.parse(line)));
  assert.equal(code, 0);
  assert.ok(stdout.includes("well done"));
  assert.equal(write(lines.toSpliced(3, 1)).code, 1, "a line was removed");
  assert.equal(write(lines.slice(0, -1)).code, 1, "the last one was removed");
  assert.equal(write(lines.with(4, { ...lines[4], user: "eve" })).code, 1, "a line was changed");
  assert.match(write(lines.toSpliced(3, 1)).stderr, /line 4: does not follow/);
});

test("control of an unknown run", async () => {
  for (const action of ["pause", "resume", "stop"]) assert.equal((await gateway.post(`/runs/nothing/${action}`)).status, 404);
});
