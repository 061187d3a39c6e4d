// Events that the code of a graph sends by hand, and the conventions of CopilotKit apps, on every path from a graph to a
// client: a LangGraph server, `ag-ui-langgraph`, CopilotKit's agent, an HTTP server with native events, a program, `convert`.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { convert, officialClient, python, run, serve, start, startApp } from "./server.mjs";

let server;
let app;
before(async () => {
  [server, app] = await Promise.all([start(), startApp()]);
});
after(() => Promise.all([server?.stop(), app?.stop()]));

const program = (graph) => [python, app.program, "--write", graph];

/** The flags of `serve` for each path. */
const SERVED = {
  langgraph: (graph) => ["--langgraph", server.url, "--graph", graph],
  "ag-ui": (graph) => ["--ag-ui", `${app.url}/ag-ui/${graph}`],
  copilotkit: (graph) => ["--ag-ui", `${app.url}/copilotkit/${graph}`],
  events: (graph) => ["--events", `${app.url}/events/${graph}`, "--format", "langgraph"],
  exec: (graph) => ["--exec", ["env", `AGENTWIRE_SDK=${app.env.AGENTWIRE_SDK}`, ...program(graph)].join(" "), "--format", "langgraph"],
};

async function served(path, graph) {
  const gateway = await serve(...SERVED[path](graph));
  try {
    const body = { threadId: "t", runId: "r", messages: [{ id: "h", role: "user", content: "go" }], tools: [], context: [], state: {}, forwardedProps: {} };
    const answer = await gateway.post(body);
    return await officialClient(answer);
  } finally {
    await gateway.stop();
  }
}

/** Each path as a function from a graph to the events that the official client receives. */
const PATHS = Object.fromEntries([
  ...Object.keys(SERVED).map((path) => [`serve ${path}`, async (graph) => served(path, graph)]),
  ["convert", async (graph) => officialClient(await convert(await run(python, program(graph).slice(1), "", app.env)))],
]);

/** The CUSTOM events of the graph, not those that carry a canonical event. */
const customsOf = (events) => of(events, "CUSTOM").filter(({ name }) => !name.startsWith("agentwire."));
const of = (events, type) => events.filter((event) => event.type === type);
const count = (list) => list.reduce((counts, name) => ({ ...counts, [name]: (counts[name] ?? 0) + 1 }), {});
const spoken = (events) => of(events, "TEXT_MESSAGE_CONTENT").map(({ delta }) => delta).join("");

for (const [path, open] of Object.entries(PATHS)) {
  test(`${path}: everything that a graph sends by hand arrives once`, async () => {
    const { events } = await open("emitting");
    assert.equal(events.at(-1).type, "RUN_FINISHED", JSON.stringify(events.at(-1)));
    const customs = customsOf(events).filter(({ name }) => name !== "progress");
    assert.deepEqual(count(customs.map(({ name }) => name)), { display_chart: 1, callback: 1, from_nested: 1, from_tool: 1, Exit: 1 });
    const value = (wanted) => customs.find(({ name }) => name === wanted).value;
    assert.deepEqual(value("display_chart"), { points: [1, 5, 3] });
    assert.deepEqual(value("from_tool"), { points: [2] });
    assert.equal(value("from_nested"), null);
    const texts = of(events, "TEXT_MESSAGE_CONTENT").map(({ delta }) => delta);
    for (const text of ["By hand.", "By CopilotKit."]) assert.equal(texts.filter((delta) => delta === text).length, 1, text);
    assert.deepEqual(count(of(events, "TOOL_CALL_START").map(({ toolCallId }) => toolCallId)), { "mc-1": 1, "mc-2": 1, call_d1: 1 });
    const states = of(events, "STATE_SNAPSHOT").map(({ snapshot }) => snapshot?.stage);
    for (const stage of ["by hand", "by CopilotKit"]) assert.ok(states.includes(stage), `${stage} in ${states}`);
    assert.equal(events.some(({ name }) => name?.includes("manually_emit") || name === "agent_custom_event"), false);
  });

  test(`${path}: hidden output stays hidden, and predictions are announced`, async () => {
    const { events } = await open("conventions");
    assert.equal(events.at(-1).type, "RUN_FINISHED", JSON.stringify(events.at(-1)));
    const text = spoken(events);
    assert.ok(!text.includes("Secret text."), text);
    if (path !== "serve ag-ui") assert.ok(!text.includes("Secret by CopilotKit."), text);
    for (const shown of ["Spoken.", "Planning.", "Done."]) assert.ok(text.includes(shown), `${shown} in ${text}`);
    assert.equal(of(events, "REASONING_MESSAGE_CONTENT").map(({ delta }) => delta).join(""), "A thought.", "reasoning is shown, as by ag-ui-langgraph");
    const calls = of(events, "TOOL_CALL_START").map(({ toolCallId }) => toolCallId);
    assert.ok(calls.includes("call_q3") && !calls.includes("call_q1"), String(calls));
    if (path !== "serve ag-ui") assert.ok(!calls.includes("call_q2"), String(calls));
    const predicted = of(events, "CUSTOM").filter(({ name }) => name === "PredictState");
    // The plain agent of `ag-ui-langgraph` does not know CopilotKit's names.
    assert.equal(predicted.length, path === "serve ag-ui" ? 1 : 2);
    assert.deepEqual(predicted[0].value, [{ state_key: "stage", tool: "plan", tool_argument: "stage" }]);
    const at = (wanted) => events.findIndex(wanted);
    assert.ok(events.indexOf(predicted.at(-1)) < at(({ type, toolCallId }) => type === "TOOL_CALL_START" && toolCallId === "call_q3"));
  });
}

test("convert: the run has the name of the graph", async () => {
  const { events } = await PATHS.convert("emitting");
  assert.equal(events[0].metadata.name, "Emitter");
});

test("the stream modes can be chosen", async () => {
  const config = `[agents.lean]\nupstream = { kind = "langgraph", url = "${server.url}", graph = "emitting", stream_modes = ["messages-tuple", "updates", "values", "custom", "tasks"] }\n`;
  const gateway = await serve("--config", { config });
  try {
    const body = { threadId: "t", runId: "r", messages: [{ id: "h", role: "user", content: "go" }], tools: [], context: [], state: {}, forwardedProps: {} };
    const { events } = await officialClient(await gateway.post(body));
    assert.deepEqual(customsOf(events).map(({ name }) => name), ["progress"], "callbacks are in `events` only");
    assert.ok(spoken(events).includes("Drawn."));
  } finally {
    await gateway.stop();
  }
});

test("a model that is not streamed is shown when its node returns the message", async () => {
  const gateway = await serve("--langgraph", server.url, "--graph", "unstreamed");
  try {
    const body = { threadId: "t", runId: "r", messages: [{ id: "h", role: "user", content: "go" }], tools: [], context: [], state: {}, forwardedProps: {} };
    const { events } = await officialClient(await gateway.post(body));
    assert.deepEqual(of(events, "TEXT_MESSAGE_CONTENT").map(({ delta }) => delta), ["Said at once."]);
  } finally {
    await gateway.stop();
  }
});
