// A real `langgraph dev` behind the real gateway, seen from every client, and compared with the thread on the server.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { post, start, threadState } from "../langgraph/server.mjs";
import { AgUi, Gateway, accepted, clients, follow, fresh, of, said, startAndLeave, until } from "./gateway.mjs";

const GRAPHS = ["plain", "slow", "think", "tools", "hitl", "pay", "pay_one", "nested", "guarded", "faulty", "fan", "sub", "boom", "slow_think", "slow_args"];

/** Slow graphs, and the events that they emit meanwhile. */
const SLOW = [["slow", "TEXT_MESSAGE_CONTENT"], ["slow_args", "TOOL_CALL_ARGS"], ["slow_think", "REASONING_MESSAGE_CONTENT"]];

/** A run takes the server about a second, most of it waiting. */
const AT_ONCE = 4;

let server;
let gateway;
before(async () => {
  server = await start();
  const agents = GRAPHS.map((graph) => [graph, `{ kind = "langgraph", url = "${server.url}", graph = "${graph}" }`]);
  gateway = await Gateway.configured(Object.fromEntries([...agents, ["gone", `{ kind = "langgraph", url = "${server.url}", graph = "no_such_graph" }`]]));
});
after(async () => {
  await gateway?.stop();
  await server?.stop();
});

/** The server's own thread for a gateway thread. */
async function remote(thread) {
  const found = await (await post(`${server.url}/threads/search`, { metadata: { agentwire_thread: thread } })).json();
  assert.equal(found.length, 1, `the server has one thread for ${thread}`);
  return found[0].thread_id;
}

const textOf = (content) => (typeof content === "string" ? content : content.map((block) => (block.type === "text" ? block.text : "")).join(""));

/** The client must show the server's content: texts and calls of the assistant, and (where displayed) the state. */
async function agrees(person) {
  const { values } = await threadState(server, await remote(person.thread));
  const assistant = values.messages.filter((message) => message.type === "ai");
  assert.deepEqual(person.texts(), assistant.map((message) => textOf(message.content)).filter(Boolean));
  const calls = assistant.flatMap((message) => (message.tool_calls ?? []).map(({ id, name, args }) => [id, name, args]));
  assert.deepEqual(person.calls(), calls);
  const { messages: _, ...state } = values;
  assert.deepEqual(person.state(), state);
  return values;
}

const contents = (type, least) => (frames) => frames.filter(({ event }) => event.type === type).length >= least;
const status = async (run) => (await gateway.get(`/runs/${run}`)).status;
const remoteRuns = async (thread) => (await fetch(`${server.url}/threads/${await remote(thread)}/runs`)).json();

describe("concurrent", { concurrency: AT_ONCE }, () => {
  for (const [name, open] of clients) {
    test(`${name}: two turns of a conversation`, async () => {
      const person = await open(gateway, "plain");
      await person.say("hello");
      assert.deepEqual(person.texts(), ["Hello from the server."]);
      const { messages } = await agrees(person);
      assert.deepEqual(messages.map((message) => message.type), ["human", "ai"]);
      await person.say("again");
      const later = await threadState(server, await remote(person.thread));
      assert.equal(later.values.messages.filter((message) => message.type === "human").length, 2, "only new messages are sent");
    });

    for (const [graph, title] of [["tools", "parallel tools"], ["sub", "a subgraph"], ["faulty", "tools that fail"], ["fan", "parallel branches"], ["think", "reasoning"]]) {
      test(`${name}: ${title}`, async () => {
        const person = await open(gateway, graph);
        await person.say("go");
        assert.equal(person.failed(), null);
        const { values } = await threadState(server, await remote(person.thread));
        const assistant = values.messages.filter((message) => message.type === "ai");
        // Parallel branches have no order.
        assert.deepEqual(person.texts().sort(), assistant.map((message) => textOf(message.content)).filter(Boolean).sort());
        const calls = assistant.flatMap((message) => (message.tool_calls ?? []).map(({ id, name, args }) => [id, name, args]));
        assert.deepEqual(person.calls(), calls);
        const { messages: _, ...state } = values;
        assert.deepEqual(person.state(), state);
      });
    }

    test(`${name}: a graph that fails`, async () => {
      const person = await open(gateway, "boom");
      await person.say("go");
      assert.ok(person.failed(), "the person is told");
      assert.equal((await threadState(server, await remote(person.thread))).tasks[0].error.includes("node failed"), true);
    });

    test(`${name}: an unknown graph`, async () => {
      const person = await open(gateway, "gone");
      await person.say("go");
      assert.match(String(person.failed()), /UPSTREAM_STATUS|an unknown graph/);
    });

    test(`${name}: one question, answered`, async () => {
      const person = await open(gateway, "hitl");
      await person.say("delete");
      const [item] = await gateway.open(person.thread);
      assert.equal(item.kind, "interrupt");
      await person.answer(() => "yes");
      assert.equal(person.failed(), null);
      const values = await agrees(person);
      assert.deepEqual(values.notes, ["answer=yes"]);
      assert.deepEqual(await gateway.open(person.thread), []);
    });

    test(`${name}: a question from a tool`, async () => {
      const person = await open(gateway, "pay_one");
      await person.say("pay");
      await person.answer(() => ({ approved: true }));
      const values = await agrees(person);
      assert.deepEqual(values.messages.filter((message) => message.type === "tool").map((message) => message.content), ["sent 3 to Cleo"]);
    });

    test(`${name}: a question from a tool, answered with other arguments`, async () => {
      const person = await open(gateway, "pay_one");
      await person.say("pay");
      await person.answer(() => ({ approved: true, editedArgs: { amount: 2, to: "Dora" } }));
      assert.equal(person.failed(), null);
      const values = await agrees(person);
      assert.deepEqual(values.messages.filter((message) => message.type === "tool").map((message) => message.content), ["sent 2 to Dora"]);
    });

    test(`${name}: a question from a subgraph`, async () => {
      const person = await open(gateway, "nested");
      await person.say("paint");
      assert.equal((await gateway.open(person.thread)).length, 1);
      await person.answer(() => "red");
      const { values } = await threadState(server, await remote(person.thread));
      assert.deepEqual(values.notes, ["colour=red"]);
      // When it continues, the server discards the subgraph's messages with its state and emits them again; a page of `ai`
      // keeps the messages that it has shown.
      assert.deepEqual([...new Set(person.texts())], ["I paint.", "Painted: colour=red"]);
      if (!name.startsWith("ai")) await agrees(person);
    });
  }

  for (const [name, open] of clients) {
    for (const approved of [true, false]) {
      test(`${name}: a breakpoint is ${approved ? "approved" : "rejected"}`, async () => {
        const person = await open(gateway, "guarded");
        await person.say("publish");
        const [item] = await gateway.open(person.thread);
        assert.equal(item.id, "breakpoint:publish");
        await person.answer(() => ({ approved }));
        assert.equal(person.failed(), null);
        assert.deepEqual(person.texts(), approved ? ["A draft.", "Published."] : ["A draft."]);
        const { values } = await threadState(server, await remote(person.thread));
        assert.equal(values.messages.at(-1).content, approved ? "Published." : "A draft.");
        assert.deepEqual(await gateway.open(person.thread), []);
      });
    }
  }

  test("a message sent along with an answer reaches the graph", async () => {
    const person = new AgUi(gateway, "nested");
    await person.say("paint");
    const [item] = await gateway.open(person.thread);
    await person.say("quickly", { resume: [{ interruptId: item.id, status: "resolved", payload: "red" }] });
    assert.equal(person.failed(), null);
    const { values } = await threadState(server, await remote(person.thread));
    assert.deepEqual(values.notes, ["colour=red"]);
    assert.deepEqual(values.messages.filter((message) => message.type === "human").map((message) => message.content), ["paint", "quickly"]);
  });

  test("a reader reconnects with its cursor and misses nothing", async () => {
    const gate = gateway.gate();
    const { thread, runId, frames } = await startAndLeave(gateway, "slow", { text: `go ${gate.words}`, enough: contents("TEXT_MESSAGE_CONTENT", 5) });
    gate.open();
    const rest = await follow(gateway, "slow", runId, frames.at(-1).id);
    assert.ok(rest.whole);
    const events = [...frames, ...rest.frames].map(({ event }) => event);
    const { values } = await threadState(server, await remote(thread));
    assert.equal(said(events), values.messages.at(-1).content);
    assert.equal((await accepted(events, thread)).messages.at(-1).content, values.messages.at(-1).content);
    const again = await follow(gateway, "slow", runId);
    assert.deepEqual(again.frames, [...frames, ...rest.frames], "the replay is the same");
  });

  for (const [graph, type] of SLOW) {
    test(`${graph}: cancelled in the middle, the server's run is cancelled and the stream is valid`, async () => {
      const person = new AgUi(gateway, graph);
      let stopping;
      const runId = fresh("run");
      const events = await person.say(`go ${gateway.gate().words}`, {
        runId,
        onEvent: (event, events) => {
          if (event.type === type && of(events, type).length === 3) stopping = gateway.post(`/runs/${runId}/stop`);
        },
      });
      assert.deepEqual(events.at(-1).outcome, { type: "cancelled" });
      assert.equal((await stopping).status, 200);
      assert.equal((await gateway.post(`/runs/${runId}/stop`)).status, 200, "twice is as good as once");
      assert.equal(await status(runId), "stopped");
      await until(async () => (await remoteRuns(person.thread)).every((run) => run.status === "interrupted"), "the server to stop");
      assert.equal((await gateway.post(`/runs/${runId}/pause`)).status, 409);
    });

    test(`${graph}: paused in the middle and resumed`, async () => {
      const person = new AgUi(gateway, graph);
      const runId = fresh("run");
      const held = [];
      const gate = gateway.gate();
      const events = await person.say(`go ${gate.words}`, {
        runId,
        onEvent: (event, events) => {
          if (event.type !== type || of(events, type).length !== 3) return;
          held.push(
            (async () => {
              const pause = await gateway.post(`/runs/${runId}/pause`);
              const before = await gateway.get(`/runs/${runId}`);
              const again = await gateway.post(`/runs/${runId}/pause`);
              const resume = await gateway.post(`/runs/${runId}/resume`);
              gate.open();
              return { pause, before, again, resume };
            })(),
          );
        },
      });
      const { pause, before, again, resume } = await held[0];
      assert.deepEqual([pause.status, pause.body.mode, before.status, again.status, resume.status], [200, "soft", "paused", 200, 200]);
      assert.deepEqual(of(events, "CUSTOM").filter((event) => event.name === "hai.run_status").map((event) => event.value.status), ["paused", "running"]);
      assert.equal(events.at(-1).type, "RUN_FINISHED");
      await agrees(person);
    });
  }

  for (const [name, open] of clients.filter(([name]) => name.startsWith("ai"))) {
    test(`${name}: cancelled by its own route`, async () => {
      const page = await open(gateway, "slow");
      const sent = page.say(`go ${gateway.gate().words}`);
      await until(() => page.texts()[0]?.length > 20, "some text");
      const { status: code } = await gateway.post(`/agents/slow/api/chat/${page.thread}/stop`);
      assert.equal(code, 200);
      await sent;
      assert.equal(page.chat.status, "ready");
      await until(async () => (await remoteRuns(page.thread)).every((run) => run.status === "interrupted"), "the server to stop");
    });
  }
});

for (const [name, open] of clients) {
  test(`${name}: two concurrent questions, each from a tool, answered across a crash of the gateway`, async () => {
    const person = await open(gateway, "pay");
    await person.say("pay");
    assert.equal((await gateway.open(person.thread)).length, 2);
    await gateway.crash();
    assert.equal((await gateway.open(person.thread)).length, 2);
    await person.answer((item) => ({ approved: JSON.stringify(item).includes("Ana") }));
    assert.equal(person.failed(), null);
    const values = await agrees(person);
    const results = values.messages.filter((message) => message.type === "tool").map((message) => message.content);
    assert.deepEqual(results.sort(), ["refused", "sent 1 to Ana"]);
  });
}

for (const [graph, type] of SLOW) {
  test(`${graph}: after a crash of the gateway the run is resumed at its position`, async () => {
    const gate = gateway.gate();
    const { thread, runId, frames } = await startAndLeave(gateway, graph, { text: `go ${gate.words}`, enough: contents(type, 5) });
    await gateway.crash();
    gate.open();
    const rest = await follow(gateway, graph, runId, frames.at(-1).id);
    const events = [...frames, ...rest.frames].map(({ event }) => event);
    assert.equal(events.at(-1).type, "RUN_FINISHED", JSON.stringify(events.at(-1)));
    assert.equal(of(events, "RUN_STARTED").length, 1);
    const agent = await accepted(events, thread);
    const { values } = await threadState(server, await remote(thread));
    const assistant = values.messages.filter((message) => message.type === "ai");
    const shown = agent.messages.filter((message) => message.role === "assistant");
    assert.deepEqual(shown.map((message) => message.content).filter(Boolean), assistant.map((message) => textOf(message.content)).filter(Boolean));
    assert.deepEqual(
      shown.flatMap((message) => message.toolCalls ?? []).map((call) => JSON.parse(call.function.arguments)),
      assistant.flatMap((message) => message.tool_calls ?? []).map((call) => call.args),
    );
    assert.equal((await remoteRuns(thread)).length, 1, "the agent was asked once");
    assert.equal(await status(runId), "finished");
    const again = await follow(gateway, graph, runId);
    assert.deepEqual(again.frames.map(({ event }) => event), events);
  });
}

test("a paused run with a state changed by a user keeps both across a crash of the gateway", async () => {
  const gate = gateway.gate();
  const { thread, runId, frames } = await startAndLeave(gateway, "slow", { text: `go ${gate.words}`, enough: contents("TEXT_MESSAGE_CONTENT", 5) });
  assert.equal((await gateway.post(`/runs/${runId}/pause`)).status, 200);
  const patch = [{ op: "add", path: "/note", value: "mine" }];
  const patched = await fetch(`${gateway.url}/state/${thread}`, { method: "PATCH", headers: { "content-type": "application/json" }, body: JSON.stringify(patch) });
  assert.equal(patched.status, 200, await patched.text());
  await gateway.crash();
  assert.equal(await status(runId), "paused");
  assert.equal((await gateway.post(`/runs/${runId}/resume`)).status, 200);
  gate.open();
  const rest = await follow(gateway, "slow", runId, frames.at(-1).id);
  const events = [...frames, ...rest.frames].map(({ event }) => event);
  assert.equal(events.at(-1).type, "RUN_FINISHED", JSON.stringify(events.at(-1)));
  assert.deepEqual(of(events, "CUSTOM").filter((event) => event.name === "hai.run_status").map((event) => event.value.status), ["paused", "running"]);
  const agent = await accepted(events, thread);
  const { values } = await threadState(server, await remote(thread));
  assert.equal(agent.messages.at(-1).content, values.messages.at(-1).content);
});

for (const [name, open] of clients.filter(([name]) => name.startsWith("ai"))) {
  test(`${name}: a reloaded page resumes the stream, even after a crash`, async () => {
    const page = await open(gateway, "slow");
    const gate = gateway.gate();
    const sent = page.say(`go ${gate.words}`);
    await until(() => page.texts()[0]?.length > 20, "some text");
    const messages = page.chat.messages.slice(0, 1);
    await gateway.crash();
    await sent;
    await page.load(messages);
    page.onAnswer = gate.open;
    await page.chat.resumeStream();
    assert.equal(page.chat.status, "ready", page.chat.error?.message);
    await agrees(page);
  });
}

// The reason why pausing a LangGraph run is soft: it can only be stopped at the server by a cancellation, and when it
// continues, its node restarts. All output and side effects of the node are repeated.
test("a run that is cancelled at the server and continues restarts its node", async () => {
  const { thread_id: thread } = await (await post(`${server.url}/threads`, {})).json();
  const url = `${server.url}/threads/${thread}`;
  const read = async (body, enough) => {
    const answer = await post(`${url}/runs/stream`, { assistant_id: "slow", stream_mode: ["messages-tuple"], ...body });
    const run = answer.headers.get("content-location").split("/").at(-1);
    let [raw, text] = ["", ""];
    for await (const bytes of answer.body.pipeThrough(new TextDecoderStream())) {
      raw += bytes;
      const frames = raw.split("\r\n\r\n").slice(0, -1);
      const said = frames.map((frame) => JSON.parse(frame.match(/^data: (.*)$/m)?.[1] ?? "null")).filter((event) => event?.[0]?.type === "AIMessageChunk");
      text = said.map(([chunk]) => chunk.content).join("");
      if (enough?.(text)) break;
    }
    return { run, text };
  };
  const gate = gateway.gate();
  const first = await read({ input: { messages: [{ role: "user", content: `go ${gate.words}` }] }, on_disconnect: "continue" }, (text) => text.length > 40);
  const cancelled = await fetch(`${url}/runs/${first.run}/cancel?wait=true&action=interrupt`, { method: "POST" });
  assert.ok(cancelled.ok, `${cancelled.status} ${await cancelled.text()}`);
  const held = await threadState(server, thread);
  assert.deepEqual(held.next, ["chatbot"], "the node is to be run");
  assert.deepEqual(held.values.messages.map((message) => message.type), ["human"], "none of its messages is kept");
  gate.open();
  const second = await read({ input: null });
  assert.ok(second.text.startsWith(first.text), "it repeats its text");
});

test("a thread that was started elsewhere is shown whole", async (t) => {
  const other = await Gateway.start("--langgraph", server.url, "--graph", "tools");
  t.after(() => other.stop());
  const first = new AgUi(gateway, "tools");
  await first.say("hello");
  const roles = { human: "user", ai: "assistant", tool: "tool" };
  const shown = (messages) => messages.map((message) => [message.role, message.content ?? ""]);
  const held = async () => {
    const { values } = await threadState(server, await remote(first.thread));
    return { values, roles: values.messages.map((message) => [roles[message.type], textOf(message.content)]) };
  };
  const snapshot = async () => shown((await other.get(`/message_snapshot/${first.thread}`)).messages);
  // Before the first run through the gateway.
  const before = await held();
  assert.deepEqual(await snapshot(), before.roles);
  const { messages: _, ...state } = before.values;
  assert.deepEqual((await other.get(`/state_snapshot/${first.thread}`)).snapshot, state);
  const second = new AgUi(other, undefined, first.thread);
  await second.say("again");
  assert.equal(second.failed(), null);
  const after = await held();
  assert.ok(after.roles.length > before.roles.length);
  // The scripted model repeats its ids: the server replaces the first answer by the second, the gateway keeps both.
  const kept = await snapshot();
  assert.deepEqual(kept.slice(0, after.roles.length), after.roles, "in the server's own order");
  assert.ok(kept.length > after.roles.length, "the second turn has messages of its own");
  assert.deepEqual(shown(second.agent.messages), kept, "at the client as well");
});

test("a thread of the server's own API is shown, continues, and is deleted with all its data", async (t) => {
  const other = await Gateway.start("--langgraph", server.url, "--graph", "plain");
  t.after(() => other.stop());
  const { thread_id: thread } = await (await post(`${server.url}/threads`, {})).json();
  const input = { messages: [{ role: "user", content: "from elsewhere" }] };
  await (await post(`${server.url}/threads/${thread}/runs/wait`, { assistant_id: "plain", input })).json();
  const texts = async () => (await other.get(`/message_snapshot/${thread}`)).messages.map((message) => message.content);
  assert.deepEqual(await texts(), ["from elsewhere", "Hello from the server."]);
  const person = new AgUi(other, undefined, thread);
  await person.say("from here");
  const { values } = await threadState(server, thread);
  const there = values.messages.map((message) => textOf(message.content));
  assert.ok(there.includes("from here"));
  // The scripted model repeats its ids: the server has one answer for both turns, the gateway has two.
  const both = [...there, "Hello from the server."];
  assert.deepEqual(person.agent.messages.map((message) => message.content), both);
  assert.deepEqual(await texts(), both);
  const gone = await fetch(`${other.url}/thread/${thread}`, { method: "DELETE" });
  assert.equal(gone.status, 200);
  assert.equal((await fetch(`${server.url}/threads/${thread}`)).status, 404);
  assert.equal((await fetch(`${other.url}/message_snapshot/${thread}`)).status, 404);
});

test("configured by flags only", async (t) => {
  const flags = await Gateway.start("--langgraph", server.url, "--graph", "plain");
  t.after(() => flags.stop());
  const person = new AgUi(flags);
  await person.say("hello");
  assert.deepEqual(person.texts(), ["Hello from the server."]);
});
