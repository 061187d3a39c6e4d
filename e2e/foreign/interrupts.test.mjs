// Interrupts of `ag-ui-langgraph`'s default endpoint behind `agentwire serve --ag-ui`, answered by every client.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { Gateway, clients, fresh } from "../upstreams/gateway.mjs";
import { start } from "./servers.mjs";

/** Each question: the user's words, the answer to each message, and the text in which the graph repeats the answers. */
const QUESTIONS = {
  "one question with options": ["ask me", { "Which one?": "b" }, '[["object", "b"]]'],
  "a question that is answered with an object": ["ask me", { "Which one?": { chosen: "a" } }, '[["object", {"chosen": "a"}]]'],
  "a question that is a text": ["ask a text", { "Really?": "yes" }, '[["text", "yes"]]'],
  "two questions at once": ["ask two", { "Which colour?": "red", "Which size?": "L" }, '[["colour", "red"], ["size", "L"]]'],
};

describe("ag-ui-langgraph", () => {
  let server;
  let gateway;
  before(async () => {
    server = await start({ name: "ag-ui-langgraph", program: "langgraph_app.py", endpoint: "/" });
    gateway = await Gateway.start("--ag-ui", server.url);
  });
  after(async () => {
    await gateway?.stop();
    await server?.stop();
  });

  for (const [name, [text, answers, told]] of Object.entries(QUESTIONS)) {
    for (const [client, open] of clients) {
      test(`${name} is asked and answered, ${client}`, async () => {
        const person = await open(gateway);
        await person.say(text);
        const items = await gateway.open(person.thread);
        assert.deepEqual(items.map((item) => item.message).sort(), Object.keys(answers).sort());
        await person.answer((item) => answers[item.message]);
        assert.equal(person.failed(), null, person.last?.message);
        assert.equal(person.texts().at(-1), told);
        assert.deepEqual(await gateway.open(person.thread), []);
      });
    }
  }

  test("a client that knows no outcome answers by the command of its time", async () => {
    const thread = fresh("thread");
    const post = async (body) => {
      const response = await fetch(`${gateway.url}/`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ threadId: thread, runId: fresh("run"), state: {}, messages: [], tools: [], context: [], ...body }),
      });
      const lines = (await response.text()).split("\n").filter((line) => line.startsWith("data: "));
      return lines.map((line) => JSON.parse(line.slice(6)));
    };
    const messages = [{ id: fresh("u"), role: "user", content: "ask me" }];
    const asked = await post({ messages });
    const question = asked.find((event) => event.name === "on_interrupt");
    assert.deepEqual(question.value.options, ["a", "b"]);
    const answered = await post({ messages, forwardedProps: { command: { resume: "a", interruptEvent: question.value } } });
    const last = answered.findLast((event) => event.type === "MESSAGES_SNAPSHOT").messages.at(-1);
    assert.equal(last.content, '[["object", "a"]]');
  });

  test("the run waits, and its question survives a restart of the gateway", async () => {
    const [[, open]] = clients;
    const person = await open(gateway);
    await person.say("ask me");
    await gateway.crash();
    const [item] = await gateway.open(person.thread);
    assert.equal(item.message, "Which one?");
    await person.answer(() => "b");
    assert.equal(person.texts().at(-1), '[["object", "b"]]');
  });
});
