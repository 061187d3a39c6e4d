// Requests: agentwire reads the requests of the official clients, and its own requests satisfy the official schema.

import assert from "node:assert/strict";
import { test } from "node:test";
import { isDeepStrictEqual } from "node:util";

import { HttpAgent } from "@ag-ui/client";
import { HttpAgent as OldHttpAgent } from "@ag-ui/client-0";

import { fixtureBody, fixtures, serve, sse, tool } from "./peers.mjs";
import { INPUT, randomness, value, variants } from "./schema.mjs";

const plain = (json) => JSON.parse(JSON.stringify(json));
const RUN = sse([{ type: "RUN_STARTED", threadId: "t1", runId: "r1" }, { type: "RUN_FINISHED", threadId: "t1", runId: "r1" }]);

/** The request bodies that a client sends during `work`. */
async function sent(answer, work) {
  const bodies = [];
  const server = await serve(async (_, body) => {
    bodies.push(JSON.parse(body.toString()));
    return { body: typeof answer === "function" ? answer(bodies.length) : answer };
  });
  try {
    await work(server.url);
  } finally {
    await server.close();
  }
  return bodies;
}

/** An unpaired surrogate has no UTF-8 form; it arrives as U+FFFD. */
const wellFormed = (json) =>
  JSON.parse(JSON.stringify(json), (_, one) => (typeof one === "string" ? one.toWellFormed() : one));

/** Each request must be read, and written again unchanged except for the declared version. */
async function survive(bodies) {
  assert.ok(bodies.length > 0, "the client sent nothing");
  const answers = await tool("run_input", bodies);
  answers.forEach((answer, index) => {
    assert.ok(answer.json, `${answer.error}\n${JSON.stringify(bodies[index])}`);
    const parsed = INPUT.safeParse(answer.json);
    assert.ok(parsed.success, `${parsed.error}\n${JSON.stringify(answer.json)}`);
    const wanted = { tools: [], context: [], ...wellFormed(bodies[index]), protocolVersion: "1.0" };
    assert.ok(isDeepStrictEqual(answer.json, wanted), `ours   ${JSON.stringify(answer.json)}\ntheirs ${JSON.stringify(wanted)}`);
  });
}

const TOOLS = [
  { name: "confirm", description: "asks", parameters: { type: "object", properties: { question: { type: "string" } } }, metadata: { ui: true } },
  { name: "bare", description: "" },
];

test("client 1.0.0, first run with all members", async () => {
  const bodies = await sent(RUN, async (url) => {
    const random = randomness(3);
    const messages = Array.from({ length: 60 }, (_, index) => {
      const message = plain(value(INPUT.shape.messages.def.element, random, { fill: 0.6 }));
      return { ...message, id: `id${index}` };
    });
    const agent = new HttpAgent({ url, threadId: "t1", initialMessages: messages, initialState: { deep: [1, { a: null }] } });
    const context = [{ description: "where", value: "Bern" }];
    await agent.runAgent({ runId: "r1", tools: TOOLS, context, forwardedProps: { any: ["thing", null] } });
  });
  assert.equal(bodies[0].messages.some((message) => message.role === "activity"), false);
  await survive(bodies);
});

test("client 1.0.0, the conversation after each of our streams", async () => {
  const streams = fixtures().filter(({ name }) => name.startsWith("ag-ui/") && !name.includes("broken"));
  const bodies = [];
  for (const { file } of streams) {
    bodies.push(...await sent((turn) => (turn === 1 ? fixtureBody(file) : RUN), async (url) => {
      const agent = new HttpAgent({ url, threadId: "t1" });
      await agent.runAgent({ runId: "r1" }).catch(() => {});
      const resume = agent.pendingInterrupts.map(({ id }, index) =>
        index % 2 ? { interruptId: id, status: "cancelled" } : { interruptId: id, status: "resolved", payload: { approved: true } });
      await agent.runAgent({ runId: "r2", ...(resume.length > 0 && { resume }) });
    }));
  }
  assert.ok(bodies.some(({ resume }) => resume?.length === 2), "no request resumes an interrupt");
  await survive(bodies);
});

test("client 0.0.39", async () => {
  await survive(await sent(RUN, async (url) => {
    const initialMessages = [
      { id: "u1", role: "user", content: "hi" },
      { id: "a1", role: "assistant", content: "", toolCalls: [{ id: "c1", type: "function", function: { name: "f", arguments: "{}" } }] },
      { id: "x1", role: "tool", toolCallId: "c1", content: "ok" },
    ];
    const agent = new OldHttpAgent({ url, threadId: "t1", initialMessages });
    await agent.runAgent({ runId: "r1", tools: [TOOLS[0]].map(({ metadata, ...tool }) => tool) });
  }));
});

test("every request that the schema allows", async () => {
  const random = randomness(11);
  const inputs = [...variants(INPUT), ...Array.from({ length: 1500 }, () => value(INPUT, random, { fill: 0.5 }))].map(plain);
  await survive(inputs.filter((input) => input.state !== null));
});

test("a malformed request is rejected with the JSON path", async () => {
  const wrong = [
    [{ runId: "r", messages: [] }, "threadId"],
    [{ threadId: "t", runId: "r" }, "messages"],
    [{ threadId: "t", runId: "r", messages: [{ id: "u", role: "user" }] }, "/messages/0"],
    [{ threadId: "t", runId: "r", messages: [], tools: [{ name: 1, description: "" }] }, "/tools/0/name"],
    [{ threadId: "t", runId: "r", messages: [], resume: [{ interruptId: "i", status: "maybe" }] }, "/resume/0/status"],
    [{ threadId: "t", runId: "r", messages: [], context: [{ description: "d", value: {} }] }, "/context/0/value"],
    [[], ""],
  ];
  const answers = await tool("run_input", wrong.map(([input]) => input));
  answers.forEach(({ error }, index) => assert.ok(error?.includes(wrong[index][1]), `${error} does not name ${wrong[index][1]}`));
});
