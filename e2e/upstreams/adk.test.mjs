// A real `adk api_server` behind the real gateway, seen from every client, and compared with the session on the server.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { startServer } from "../adk/peers.mjs";
import { AgUi, Gateway, accepted, automaticPages, clients, follow, fresh, of, said, startAndLeave, until } from "./gateway.mjs";

let server;
let gateway;
before(async () => {
  server = await startServer();
  const upstream = (app, more = "") => `{ kind = "adk", url = "${server.url}", app = "${app}"${more} }`;
  const agents = ["demo", "team", "flow", "nobody"].map((app) => [app, upstream(app)]);
  const options = `, long_running = "return", streaming = false, custom_metadata = { ticket = "{{thread}}" }, service_tier = "flex"`;
  gateway = await Gateway.configured({ ...Object.fromEntries(agents), returning: upstream("demo", options) });
});
after(async () => {
  await gateway?.stop();
  await server?.close();
});

/** The server's own session for one of our threads. */
async function session(thread, app = "demo") {
  const answer = await fetch(`${server.url}/apps/${app}/users/default-user/sessions/${thread}`);
  assert.equal(answer.status, 200);
  return answer.json();
}

const INTERNAL = ["adk_request_confirmation", "adk_request_credential", "adk_request_input", "transfer_to_agent"];

/** The texts and calls of the model in a session, without thoughts and ADK's internal calls, which are not displayed. */
function held({ events }) {
  const parts = events.filter((event) => event.author !== "user").flatMap((event) => event.content?.parts ?? []);
  return {
    texts: parts.filter((part) => part.text && !part.thought).map((part) => part.text),
    calls: parts.map((part) => part.functionCall).filter(Boolean).map((call) => [call.id, call.name, call.args ?? {}]),
    results: events.flatMap((event) => event.content?.parts ?? []).map((part) => part.functionResponse).filter(Boolean),
  };
}

const ownCalls = (calls) => calls.filter(([, name]) => !INTERNAL.includes(name));

async function agrees(person, app) {
  const stored = await session(person.thread, app);
  const { texts, calls, results } = held(stored);
  // The boundaries of messages depend on the protocol.
  assert.equal(person.texts().join(""), texts.join(""));
  assert.deepEqual(ownCalls(person.calls()), ownCalls(calls));
  return { stored, results };
}

for (const [name, open] of clients) {
  test(`${name}: two turns of a conversation`, async () => {
    const person = await open(gateway, "demo");
    await person.say("hello there");
    await person.say("and again");
    assert.equal(person.failed(), null);
    assert.deepEqual(person.texts(), ["You said : hello there", "You said : and again"]);
    await agrees(person);
  });

  test(`${name}: one tool call, and two in parallel`, async () => {
    const person = await open(gateway, "demo");
    await person.say("weather");
    await person.say("both");
    const { results } = await agrees(person);
    assert.deepEqual(results.map((result) => result.name), ["get_weather", "get_weather", "slow_add"]);
  });

  test(`${name}: an agent that transfers to another`, async () => {
    const person = await open(gateway, "team");
    await person.say("write");
    assert.equal(person.failed(), null);
    assert.match(person.texts().at(-1), /The writer counted 3 words\./);
    await agrees(person, "team");
  });

  test(`${name}: state`, async () => {
    const person = await open(gateway, "demo");
    await person.say("state please");
    const { stored } = await agrees(person);
    assert.equal(stored.state.theme, "dark");
    assert.equal(person.state().theme, "dark");
    assert.deepEqual(person.state()["a/b~c"], ["dark"]);
  });

  for (const [keyword, before] of [["fail", "Half an answ"], ["raise", ""], ["block", "I was "]]) {
    test(`${name}: a run that fails (${keyword})`, async () => {
      const person = await open(gateway, "demo");
      await person.say(keyword);
      assert.ok(person.failed());
      assert.equal(person.texts().join(""), before);
      await person.say("hello");
      assert.equal(person.failed(), null, "the thread goes on");
    });
  }

  test(`${name}: an unknown app`, async () => {
    const person = await open(gateway, "nobody");
    await person.say("hello");
    assert.ok(person.failed());
  });

  test(`${name}: a long-running tool, answered across a crash of the gateway`, async () => {
    const person = await open(gateway, "demo");
    await person.say("please approve");
    const [item] = await gateway.open(person.thread);
    assert.deepEqual([item.kind, item.name, item.arguments], ["long-running-tool", "ask_for_approval", { purpose: "books" }]);
    await gateway.crash();
    await person.answer(() => ({ status: "approved" }));
    assert.equal(person.failed(), null);
    assert.match(person.texts().at(-1), /ask_for_approval said .*approved/);
    const { results } = await agrees(person);
    assert.deepEqual(results.at(-1).response, { status: "approved" });
    assert.deepEqual(await gateway.open(person.thread), []);
  });

  test(`${name}: two long-running tools, answered together`, async () => {
    const person = await open(gateway, "demo");
    await person.say("twice");
    assert.equal((await gateway.open(person.thread)).length, 2);
    await person.answer((item) => ({ to: item.name }));
    assert.equal(person.failed(), null);
    const { results } = await agrees(person);
    assert.deepEqual(results.slice(-2).map(({ name, response }) => [name, response]).sort(), [
      ["ask_for_approval", { to: "ask_for_approval" }],
      ["ask_silently", { to: "ask_silently" }],
    ]);
  });

  for (const approved of [true, false]) {
    test(`${name}: a confirmation is ${approved ? "approved" : "rejected"}`, async () => {
      const person = await open(gateway, "demo");
      await person.say("confirm it");
      const [item] = await gateway.open(person.thread);
      assert.deepEqual([item.kind, item.name, item.arguments], ["approval", "delete_all", { scope: "tmp" }]);
      await person.answer(() => ({ approved }));
      assert.equal(person.failed(), null);
      const { results } = await agrees(person);
      const done = results.filter((result) => result.name === "delete_all").at(-1);
      if (approved) assert.deepEqual(done.response, { deleted: "tmp" });
      else assert.match(JSON.stringify(done.response), /rejected/);
    });
  }

  test(`${name}: a confirmation with a payload`, async () => {
    const person = await open(gateway, "demo");
    await person.say("book");
    await person.answer(() => ({ approved: true, payload: { seat: "12A" } }));
    assert.equal(person.failed(), null);
    const { results } = await agrees(person);
    assert.deepEqual(results.filter((result) => result.name === "book").at(-1).response, { booked: 4, seat: "12A" });
  });

  test(`${name}: a credential requested by ADK, provided across a crash of the gateway`, async () => {
    const person = await open(gateway, "demo");
    await person.say("calendar");
    const [item] = await gateway.open(person.thread);
    assert.deepEqual([item.kind, item.name, item.arguments], ["credential", "private_calendar", { day: "Mon" }]);
    await gateway.crash();
    const { authConfig } = item.metadata.arguments;
    await person.answer(() => ({ ...authConfig, exchangedAuthCredential: { authType: "apiKey", apiKey: "k-1" } }));
    assert.equal(person.failed(), null);
    const { results } = await agrees(person);
    assert.deepEqual(results.filter((result) => result.name === "private_calendar").at(-1).response, { day: "Mon", key: "k-1" });
    assert.deepEqual(await gateway.open(person.thread), []);
  });

  test(`${name}: a login by redirect`, async () => {
    const person = await open(gateway, "demo");
    await person.say("mailbox");
    const [item] = await gateway.open(person.thread);
    assert.equal(item.kind, "credential");
    assert.match(item.metadata.arguments.authConfig.exchangedAuthCredential.oauth2.authUri, /^https:\/\/auth\.invalid\/authorize\?/);
    const back = "https://page.invalid/back?code=c&state=s";
    await person.answer(() => ({ authResponseUri: back }));
    assert.equal(person.failed(), null);
    const { results } = await agrees(person);
    assert.deepEqual(results.filter((result) => result.name === "private_mailbox").at(-1).response, { box: "in", back });
  });

  test(`${name}: input for a workflow that violates its schema`, async () => {
    const person = await open(gateway, "flow");
    await person.say("paint");
    const [item] = await gateway.open(person.thread);
    assert.deepEqual([item.kind, item.message, item.metadata.payload], ["input", "Which colour?", { options: ["red", "blue"] }]);
    await gateway.crash();
    await person.answer(() => ({ shade: "red" }));
    assert.equal(person.failed(), "SCHEMA_MISMATCH");
    assert.equal((await gateway.open(person.thread)).length, 1);
  });

  test(`${name}: input for a workflow that matches its schema`, async () => {
    const person = await open(gateway, "flow");
    await person.say("paint");
    await gateway.crash();
    await person.answer(() => ({ colour: "red" }));
    assert.equal(person.failed(), null);
    assert.match(person.texts().at(-1), /Painted red\./);
    assert.deepEqual(await gateway.open(person.thread), []);
  });

  test(`${name}: a front-end tool`, async () => {
    const person = await open(gateway, "demo");
    const tools = [{ name: "pick_colour", description: "Picks.", parameters: { type: "object", properties: { of: { type: "array", items: { type: "string" } } } } }];
    await person.say("pick one", { tools });
    const [item] = await gateway.open(person.thread);
    assert.deepEqual([item.kind, item.name, item.arguments], ["frontend-tool", "pick_colour", { of: ["red", "blue"] }]);
    await person.answer(() => "blue", { tools });
    assert.equal(person.failed(), null);
    assert.match(person.texts().at(-1), /pick_colour said .*blue/);
    await agrees(person);
  });
}

test("a run without any event is finished and empty, and the next one works", async () => {
  const person = new AgUi(gateway, "demo");
  const events = await person.say("say nothing");
  assert.equal(person.failed(), null);
  assert.deepEqual(of(events, "TEXT_MESSAGE_START"), []);
  await person.say("hello there");
  assert.equal(person.texts().at(-1), "You said : hello there");
  const users = (await session(person.thread)).events.filter((event) => event.author === "user").map((event) => event.content.parts[0].text);
  assert.deepEqual(users, ["say nothing", "hello there"], "nothing is sent twice");
});

test("a long-running tool can end the run at its call, with options of the server", async () => {
  const person = new AgUi(gateway, "returning");
  const events = await person.say("please approve");
  assert.equal(events.at(-1).outcome.type, "interrupt");
  assert.equal(said(events), "I need approval. ", "the model does not go on");
  assert.deepEqual(of(events, "CUSTOM").filter((event) => event.name === "adk.metadata").map((event) => event.value.ticket), [person.thread]);
  await person.answer(() => ({ status: "approved" }));
  assert.equal(person.failed(), null);
  assert.match(person.texts().at(-1), /ask_for_approval said .*approved/);
  assert.deepEqual(await gateway.open(person.thread), []);
});

test("a key that ADK cannot remove stays, and the request says so", async () => {
  const person = new AgUi(gateway, "demo");
  await person.say("state please");
  const patch = async (operations) => {
    const response = await fetch(`${gateway.base("demo")}/state/${person.thread}`, { method: "PATCH", headers: { "content-type": "application/json" }, body: JSON.stringify(operations) });
    return [response.status, (await response.json()).error?.code];
  };
  const state = async () => (await gateway.get(`/agents/demo/state_snapshot/${person.thread}`)).snapshot;
  const before = await state();
  assert.deepEqual(await patch([{ op: "add", path: "/mine", value: 1 }, { op: "remove", path: "/theme" }]), [409, "STATE_KEY_NOT_REMOVABLE"]);
  assert.deepEqual(await patch([{ op: "replace", path: "", value: {} }]), [409, "STATE_KEY_NOT_REMOVABLE"]);
  assert.deepEqual(await state(), before);
  assert.deepEqual(await patch([{ op: "add", path: "/mine", value: { a: 1, b: 2 } }]), [200, undefined]);
  assert.deepEqual(await patch([{ op: "remove", path: "/mine" }]), [200, undefined], "ADK has not got it yet");
  assert.deepEqual(await patch([{ op: "replace", path: "/theme", value: null }]), [200, undefined]);
});

test("a session that the server has lost is reported and restored", async () => {
  const person = new AgUi(gateway, "demo");
  await person.say("state please");
  await person.say("weather");
  const before = held(await session(person.thread));
  const gone = await fetch(`${server.url}/apps/demo/users/default-user/sessions/${person.thread}`, { method: "DELETE" });
  assert.equal(gone.status, 200);
  const events = await person.say("hello there");
  assert.equal(person.failed(), null);
  const warnings = of(events, "CUSTOM").filter((event) => event.name === "adk.warning");
  assert.deepEqual(warnings.map((event) => event.value.code), ["SESSION_LOST"]);
  assert.match(gateway.log, /had lost the session/);
  const stored = await session(person.thread);
  assert.deepEqual(held(stored).calls, before.calls);
  assert.deepEqual(held(stored).texts, [...before.texts, "You said : hello there"]);
  assert.equal(stored.state.theme, "dark");
  const again = await person.say("and again");
  assert.deepEqual(of(again, "CUSTOM").filter((event) => event.name === "adk.warning"), []);
});

const isRequest = (name) => name.startsWith("adk_request_");

for (const [name, open] of automaticPages) {
  for (const approved of [true, false]) {
    test(`${name}: a page that sends by itself sends the ${approved ? "approval" : "denial"} of a confirmation once`, async () => {
      const page = await open(gateway, "demo");
      await page.say("confirm it");
      assert.deepEqual(page.calls().map(([, tool]) => tool), ["delete_all"]);
      const [question] = page.parts().filter((part) => part.state === "approval-requested");
      let requests = 0;
      page.onAnswer = () => (requests += 1);
      await page.chat.addToolApprovalResponse({ id: question.approval.id, approved });
      await until(async () => (await gateway.open(page.thread)).length === 0, "the answer to arrive");
      await until(() => page.chat.status === "ready" && page.texts().length > 0, "the response to the answer");
      assert.equal(page.failed(), null);
      assert.equal(requests, 1);
      const [call] = page.parts().filter((part) => part.toolCallId);
      assert.equal(call.state === "output-available", approved);
      const { results } = await agrees(page);
      const done = results.filter((result) => result.name === "delete_all").at(-1);
      if (approved) assert.deepEqual(done.response, { deleted: "tmp" });
      else assert.match(JSON.stringify(done.response), /rejected/);
    });
  }
}

for (const [name, open] of clients) {
  for (const [app, keyword, guarded] of [["demo", "confirm it", "delete_all"], ["demo", "calendar", "private_calendar"], ["flow", "paint", null]]) {
    test(`${name}: the request behind "${keyword}" is no call, in the stream and after a reload`, async () => {
      const person = await open(gateway, app);
      await person.say(keyword);
      const [item] = await gateway.open(person.thread);
      assert.ok(isRequest(item.metadata.name), "it is a request of ADK's own");
      if (guarded) assert.equal(item.name, guarded);
      if (name !== "hai") assert.deepEqual(person.calls().filter(([id, tool]) => isRequest(tool) || id === item.id), []);
      const { messages } = await gateway.get(`/agents/${app}/message_snapshot/${person.thread}`);
      const calls = messages.flatMap((message) => message.toolCalls ?? []);
      assert.deepEqual(calls.map((call) => call.function.name), guarded ? [guarded] : []);
    });
  }
}

const contents = (type, least) => (frames) => frames.filter(({ event }) => event.type === type).length >= least;

for (const keyword of ["confirm", "approve", "twice"]) {
  test(`${keyword}: answers and a message in one request`, async () => {
    const person = new AgUi(gateway, "demo");
    await person.say(keyword);
    const resume = (await gateway.open(person.thread)).map((item) => ({ interruptId: item.id, status: "resolved", payload: { confirmed: true } }));
    await person.say("hello there", { resume });
    assert.equal(person.failed(), null);
    assert.equal(person.texts().at(-1), "You said : hello there");
    assert.deepEqual(await gateway.open(person.thread), []);
    await agrees(person);
  });
}

test("a reader reconnects with its cursor and misses nothing", async () => {
  const gate = gateway.gate();
  const { thread, runId, frames } = await startAndLeave(gateway, "demo", { text: `slowly ${gate.words}`, enough: contents("TEXT_MESSAGE_CONTENT", 5) });
  gate.open();
  const rest = await follow(gateway, "demo", runId, frames.at(-1).id);
  const events = [...frames, ...rest.frames].map(({ event }) => event);
  assert.equal(said(events), held(await session(thread)).texts.join(""));
  assert.equal(events.at(-1).type, "RUN_FINISHED");
  await accepted(events, thread);
});

for (const [keyword, type] of [["slowly", "TEXT_MESSAGE_CONTENT"], ["ponder", "REASONING_MESSAGE_CONTENT"]]) {
  test(`${keyword}: after a crash of the gateway the run gets an end and the thread continues`, async () => {
    const gate = gateway.gate();
    const { thread, runId, frames } = await startAndLeave(gateway, "demo", { text: `${keyword} ${gate.words}`, enough: contents(type, 5) });
    await gateway.crash();
    gate.open();
    const rest = await follow(gateway, "demo", runId, frames.at(-1).id);
    const events = [...frames, ...rest.frames].map(({ event }) => event);
    assert.deepEqual([events.at(-1).type, events.at(-1).code], ["RUN_ERROR", "GATEWAY_LOST"]);
    await accepted(events, thread);
    assert.equal((await gateway.get(`/runs/${runId}`)).status, "failed");
    const person = new AgUi(gateway, "demo", thread);
    await person.say("weather");
    assert.equal(person.failed(), null);
    assert.equal(person.calls().at(-1)[1], "get_weather");
  });

  test(`${keyword}: cancelled in the middle, the server stops too`, async () => {
    const person = new AgUi(gateway, "demo");
    const runId = fresh("run");
    const question = `${keyword} endlessly ${runId}`;
    const events = await person.say(question, {
      runId,
      onEvent: (event, events) => {
        if (event.type === type && of(events, type).length === 3) gateway.post(`/runs/${runId}/stop`);
      },
    });
    assert.deepEqual(events.at(-1).outcome, { type: "cancelled" });
    await until(() => server.output().includes(`not heard out: ${question}`), "the server to stop");
    await person.say("weather");
    assert.equal(person.failed(), null);
    assert.equal(person.calls().at(-1)[1], "get_weather");
  });

  test(`${keyword}: paused in the middle and resumed`, async () => {
    const person = new AgUi(gateway, "demo");
    const runId = fresh("run");
    let held;
    const gate = gateway.gate();
    const events = await person.say(`${keyword} ${gate.words}`, {
      runId,
      onEvent: (event, events) => {
        if (event.type !== type || of(events, type).length !== 3) return;
        held = (async () => {
          const pause = await gateway.post(`/runs/${runId}/pause`);
          const { status } = await gateway.get(`/runs/${runId}`);
          const resume = await gateway.post(`/runs/${runId}/resume`);
          gate.open();
          return [pause.status, status, resume.status];
        })();
      },
    });
    assert.deepEqual(await held, [200, "paused", 200]);
    assert.equal(events.at(-1).type, "RUN_FINISHED");
    await agrees(person);
  });
}

test("ai 7: cancelled by its own route", async () => {
  const [, open] = clients.find(([name]) => name === "ai 7");
  const page = await open(gateway, "demo");
  const sent = page.say("slowly endlessly");
  await until(() => page.texts()[0]?.length > 20, "some text");
  assert.equal((await gateway.post(`/agents/demo/api/chat/${page.thread}/stop`)).status, 200);
  await sent;
  assert.equal(page.chat.status, "ready");
});

test("configured by flags only", async (t) => {
  const flags = await Gateway.start("--adk", server.url, "--app", "demo");
  t.after(() => flags.stop());
  const person = new AgUi(flags);
  await person.say("hello there");
  assert.deepEqual(person.texts(), ["You said : hello there"]);
});

test("a session that was started elsewhere is shown whole", async (t) => {
  const other = await Gateway.start("--adk", server.url, "--app", "demo");
  t.after(() => other.stop());
  for (const [name, open] of clients.filter(([name]) => !name.startsWith("ai"))) {
    const first = new AgUi(gateway, "demo");
    await first.say("state please");
    const roles = async () => (await other.get(`/message_snapshot/${first.thread}`)).messages.map((message) => message.role);
    assert.deepEqual(await roles(), ["user", "assistant", "tool", "assistant"], name);
    assert.equal((await other.get(`/state_snapshot/${first.thread}`)).snapshot.theme, "dark", name);
    const second = await open(other, undefined, first.thread);
    await second.say("hello");
    assert.equal(second.failed(), null, name);
    const { texts } = held(await session(first.thread));
    assert.deepEqual(second.texts(), texts, name);
    assert.equal(second.state().theme, "dark", name);
    const whole = ["user", "assistant", "tool", "assistant", "user", "assistant"];
    assert.deepEqual(await roles(), whole, name);
    if (second instanceof AgUi) assert.deepEqual(second.agent.messages.map((message) => message.role), whole);
    assert.equal((await fetch(`${other.url}/thread/${first.thread}`, { method: "DELETE" })).status, 200);
    assert.equal((await fetch(`${server.url}/apps/demo/users/default-user/sessions/${first.thread}`)).status, 404);
  }
});
