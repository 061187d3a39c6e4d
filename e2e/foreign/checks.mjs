// The checks of one AG-UI server behind `agentwire serve --ag-ui`, seen from every client. Each conversation also takes
// place with the server alone, through the official client, and the two results must be equal.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { AgUi, Gateway, accepted, clients, follow, fresh, of, readFrames, said, startAndLeave, until } from "../upstreams/gateway.mjs";
import { offered } from "./conversations.mjs";
import { Direct, start, told } from "./servers.mjs";

async function converse(person, turns) {
  const failures = [];
  for (const [text, { tools, answer } = {}] of turns) {
    await person.say(text, { tools });
    if (answer) await person.answer(answer, { tools });
    failures.push(person.failed() !== null);
  }
  return failures;
}

/** Declares the checks of a server. */
export function checks(definition) {
  describe(definition.name, () => {
    let server;
    let gateway;
    before(async () => {
      server = await start(definition);
      gateway = await Gateway.start("--ag-ui", server.url);
    });
    after(async () => {
      await gateway?.stop();
      await server?.stop();
    });

    const shown = (texts) => (definition.trims ? texts.map((text) => text.trimEnd()) : texts);
    const snapshot = async (thread) => (await gateway.get(`/message_snapshot/${thread}`)).messages;

    for (const [name, turns] of offered(definition)) {
      test(`${name}, same as the server alone`, async () => {
        const direct = new Direct(server);
        const failures = await converse(direct, turns);
        const differs = (definition.differs ?? []).some((feature) => name.startsWith(feature));
        for (const [client, open] of clients.filter(([client]) => !(differs && client.startsWith("ai")))) {
          const person = await open(gateway);
          assert.deepEqual(await converse(person, turns), failures, client);
          assert.equal(shown(person.texts()).join("|"), shown(direct.texts()).join("|"), client);
          assert.deepEqual(person.calls().map(([, ...call]) => call), direct.calls().map(([, ...call]) => call), client);
          assert.deepEqual(told(await snapshot(person.thread)), told(direct.agent.messages, true), client);
          assert.deepEqual(await gateway.open(person.thread), [], client);
          assert.deepEqual((await gateway.get(`/state_snapshot/${person.thread}`)).snapshot.theme, direct.state()?.theme, client);
        }
      });
    }

    test("a client may send only its last message", async () => {
      const thread = fresh("thread");
      for (const [text, enough] of [["one"], ["two"], ["now recall"]]) {
        const { frames } = await startAndLeave(gateway, undefined, { thread, text, enough });
        if (text === "now recall") assert.equal(said(frames.map(({ event }) => event)), "I heard: one | two | now recall");
      }
      assert.deepEqual((await snapshot(thread)).map((message) => message.role), ["user", "assistant", "user", "assistant", "user", "assistant"]);
    });

    test("a client may send a message and no other member", async () => {
      const body = JSON.stringify({ messages: [{ role: "user", content: "hello" }] });
      const response = await fetch(`${gateway.url}/awp`, { method: "POST", headers: { "content-type": "application/json" }, body });
      const { frames } = await readFrames(response);
      assert.equal(frames.at(-1).event.type, "RUN_FINISHED", JSON.stringify(frames.at(-1)));
      assert.match((await snapshot(response.headers.get("x-thread-id"))).at(-1).content, /^You said: hello/);
    });

    test("an image reaches the server from every client", async () => {
      const [data, mimeType] = ["iVBORw0KGgo=", "image/png"];
      const content = [{ type: "image", source: { type: "data", value: data, mimeType } }, { type: "text", text: "a picture" }];
      const direct = new Direct(server);
      await direct.say(content);
      const [expected] = direct.texts();
      // Mastra has an opinion of its own about the type.
      assert.match(expected, /^I see image\/\w+ of 8 bytes\.$/);
      for (const [name, person] of [["ag-ui", new AgUi(gateway)], ["hai", await clients[1][1](gateway)]]) {
        await person.say(content);
        assert.deepEqual([person.failed(), person.texts()], [null, [expected]], name);
      }
      const page = await clients[2][1](gateway);
      await page.chat.sendMessage({ text: "a picture", files: [{ type: "file", mediaType: mimeType, url: `data:${mimeType};base64,${data}` }] });
      assert.deepEqual([page.failed(), page.texts()], [null, [expected]], "ai 7");
    });

    const begun = (frames) => of(frames.map(({ event }) => event), "TEXT_MESSAGE_CONTENT").length >= 5;

    for (const [name, open] of clients) {
      test(`${name}: a busy thread is locked, and unlocked afterwards`, async () => {
        const gate = gateway.gate();
        const { thread, runId } = await startAndLeave(gateway, undefined, { text: `${gate.words} slowly`, enough: begun });
        // A run that nobody reads would be cancelled by the next message.
        const reader = await fetch(`${gateway.url}/runs/${runId}/stream`);
        const other = await open(gateway, undefined, thread);
        await other.say("hello");
        assert.equal(other.failed(), "THREAD_IS_LOCKED");
        gate.open();
        await readFrames(reader);
        const later = await open(gateway, undefined, thread);
        await later.say("hello");
        assert.equal(later.failed(), null);
        const held = await snapshot(thread);
        assert.deepEqual(held.map((message) => message.role), ["user", "assistant", "user", "assistant"], "the rejected request left no trace");
      });
    }

    test("a reader reconnects with its cursor and misses nothing", async () => {
      const direct = new Direct(server);
      await direct.say("slowly");
      const gate = gateway.gate();
      const { thread, runId, frames } = await startAndLeave(gateway, undefined, { text: `${gate.words} slowly`, enough: begun });
      gate.open();
      const headers = { "last-event-id": frames.at(-1).id };
      const { frames: rest } = await readFrames(await fetch(`${gateway.url}/runs/${runId}/stream`, { headers }));
      const events = [...frames, ...rest].map(({ event }) => event);
      assert.equal(said(events), direct.texts()[0]);
      assert.equal(events.at(-1).type, "RUN_FINISHED");
      const agent = await accepted(events, thread);
      // Some servers repeat the question in a snapshot.
      assert.deepEqual(told(await snapshot(thread)).slice(1), told(agent.messages).filter(({ role }) => role !== "user"));
      const again = await follow(gateway, undefined, runId);
      assert.deepEqual(again.frames.map(({ event }) => event), events);
    });

    for (const [name, open] of clients.filter(([name]) => name.startsWith("ai"))) {
      test(`${name}: a reloaded page resumes the stream`, async () => {
        const page = await open(gateway);
        const gate = gateway.gate();
        const sent = page.say(`${gate.words} slowly`);
        await until(() => page.texts()[0]?.length > 10, "some text");
        const reloaded = await open(gateway, undefined, page.thread);
        await reloaded.load(page.chat.messages.slice(0, 1));
        reloaded.onAnswer = gate.open;
        await reloaded.chat.resumeStream();
        await sent;
        assert.match(reloaded.texts().join(""), /^0 1 2 .* 59 end\.$/);
        assert.deepEqual(reloaded.texts(), page.texts());
      });
    }

    const endsCancelled = !(definition.lacks ?? []).includes("cancel");
    if (endsCancelled) test("a cancelled run also ends at the server, and the thread continues", async () => {
      const person = new AgUi(gateway);
      const runId = fresh("run");
      const events = await person.say("endlessly", {
        runId,
        onEvent: (event, events) => {
          if (event.type === "TEXT_MESSAGE_CONTENT" && of(events, event.type).length === 3) gateway.post(`/runs/${runId}/stop`);
        },
      });
      assert.deepEqual(events.at(-1).outcome, { type: "cancelled" });
      await until(() => server.output().includes("the model was not heard out"), "the server to stop");
      await person.say("hello");
      assert.equal(person.failed(), null);
    });

    test("after a crash of the gateway the run gets an end and the thread continues", async () => {
      const gate = gateway.gate();
      const { thread, runId, frames } = await startAndLeave(gateway, undefined, { text: `${gate.words} slowly`, enough: begun });
      await gateway.crash();
      gate.open();
      const rest = await follow(gateway, undefined, runId, frames.at(-1).id);
      const events = [...frames, ...rest.frames].map(({ event }) => event);
      assert.deepEqual([events.at(-1).type, events.at(-1).code], ["RUN_ERROR", "GATEWAY_LOST"]);
      await accepted(events, thread);
      const person = new AgUi(gateway, undefined, thread);
      await person.say("hello");
      assert.equal(person.failed(), null);
      assert.match((await snapshot(thread)).at(-1).content, /^You said: hello/);
    });

    test("an error of the agent keeps its message in every protocol", async () => {
      const direct = new Direct(server);
      await direct.say("raise");
      const { frames } = await startAndLeave(gateway, undefined, { text: "raise" });
      assert.deepEqual([frames.at(-1).event.message, frames.at(-1).event.code], [direct.last.message, direct.last.code]);
      for (const [name, open] of clients) {
        const person = await open(gateway);
        await person.say("raise");
        const shown = person.chat ? person.chat.error.message : person.last.message;
        assert.ok(shown.includes(direct.last.message), `${name}: ${shown}`);
      }
    });
  });
}
