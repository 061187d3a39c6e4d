// The features of AG-UI's dojo with real LangGraph graphs: behind the gateway, and behind `ag-ui-langgraph` as the
// reference. The official client must have the same messages and the same state at the end.

import assert from "node:assert/strict";
import path from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { HttpAgent, serve, start, startApp } from "../langgraph/server.mjs";

const here = path.dirname(fileURLToPath(import.meta.url));

let server;
let reference;
let gateway;
before(async () => {
  [server, reference] = await Promise.all([start(path.join(here, "agent")), startApp(path.join(here, "agent", "reference.py"))]);
  const graphs = ["agentic_chat", "human_in_the_loop", "interrupting", "tool_based_generative_ui", "agentic_generative_ui", "shared_state", "predictive_state_updates", "subgraphs"];
  const agents = graphs.map((graph) => `[agents.${graph}]\nupstream = { kind = "langgraph", url = "${server.url}", graph = "${graph}" }\n`);
  gateway = await serve("--config", { config: agents.join("\n") });
});
after(() => Promise.all([gateway?.stop(), server?.stop(), reference?.stop()]));

const PLACES = { gateway: (graph) => `${gateway.url}/agents/${graph}`, reference: (graph) => `${reference.url}/${graph}` };

/** A client of a graph at a place. */
function client(place, graph, state = {}) {
  const agent = new HttpAgent({ url: PLACES[place](graph), threadId: `${graph}-${place}-${crypto.randomUUID()}`, initialState: state });
  const events = [];
  const run = async (more = {}) => {
    await agent.runAgent({ tools: more.tools ?? [], ...more }, { onEvent: ({ event }) => void events.push(event) });
    return agent;
  };
  const say = (content, more) => {
    agent.messages.push({ id: crypto.randomUUID(), role: "user", content });
    return run(more);
  };
  const answer = (call, content, more) => {
    agent.messages.push({ id: crypto.randomUUID(), role: "tool", toolCallId: call, content });
    return run(more);
  };
  return { agent, events, run, say, answer };
}

/** The messages, reduced to the fields on which both must agree. Reasoning and activities are no part of a graph. */
const messages = ({ agent }) =>
  agent.messages.filter(({ role }) => ["user", "assistant", "tool"].includes(role)).map(({ role, content, toolCalls, toolCallId }) => ({
    role,
    content: content ?? "",
    calls: (toolCalls ?? []).map(({ id, function: { name, arguments: args } }) => ({ id, name, args: JSON.parse(args) })),
    answers: toolCallId ?? null,
  }));

/** The state of the graph. The reference also shows what it puts into the graph's input. */
const state = ({ agent }) => {
  const { messages: _, tools: __, "ag-ui": ___, copilotkit: ____, ...rest } = agent.state ?? {};
  return Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== null));
};

/** The reference appends results that it has not streamed, so the order of messages is compared with the graph's only. */
const sorted = (list) => list.map((it) => JSON.stringify(it)).sort();

/** Has the same conversation at both places; the clients must end up equal. */
async function both(graph, talk, first = {}) {
  const clients = {};
  for (const place of Object.keys(PLACES)) {
    clients[place] = client(place, graph, first);
    await talk(clients[place], place);
  }
  assert.deepEqual(sorted(messages(clients.gateway)), sorted(messages(clients.reference)));
  assert.deepEqual(state(clients.gateway), state(clients.reference));
  return clients;
}

const frontEndTool = (name) => ({ name, description: name, parameters: { type: "object", properties: {} } });
const of = ({ events }, type) => events.filter((event) => event.type === type);

for (const [graph, tool, call] of [
  ["agentic_chat", "change_background", "call_bg"],
  ["human_in_the_loop", "generate_task_steps", "call_plan"],
  ["tool_based_generative_ui", "generate_haiku", "call_haiku"],
]) {
  test(`${graph}: a tool of the page is called, drawn and answered`, async () => {
    const tools = [frontEndTool(tool)];
    const clients = await both(graph, async ({ say, answer }) => {
      await say("please", { tools });
      await answer(call, JSON.stringify({ accepted: true }), { tools });
    });
    assert.deepEqual(messages(clients.gateway).map(({ role }) => role), ["user", "assistant", "tool", "assistant"]);
    const pieces = of(clients.gateway, "TOOL_CALL_ARGS").filter(({ toolCallId }) => toolCallId === call);
    assert.ok(pieces.length > 1, "the arguments are streamed");
  });
}

test("interrupting: a question is asked and answered", async () => {
  await both("interrupting", async (user, place) => {
    await user.say("plan");
    if (place === "reference") {
      assert.ok(of(user, "CUSTOM").some(({ name }) => name === "on_interrupt"));
      await user.run({ forwardedProps: { command: { resume: { steps: ["pack"] } } } });
      return;
    }
    const { interrupts } = of(user, "RUN_FINISHED").at(-1).outcome;
    await user.run({ resume: [{ interruptId: interrupts[0].id, status: "resolved", payload: { steps: ["pack"] } }] });
  });
});

test("agentic_generative_ui: the state of a working node arrives while it works", async () => {
  const clients = await both("agentic_generative_ui", ({ say }) => say("work"));
  const shown = of(clients.gateway, "STATE_SNAPSHOT").map(({ snapshot }) => snapshot.steps?.filter(({ status }) => status === "completed").length);
  assert.ok(shown.includes(1) && shown.includes(2), `states with one and two steps: ${shown}`);
  assert.equal(of(clients.gateway, "TEXT_MESSAGE_START").filter(({ messageId }) => messageId === "ag-1").length, 1, "a message by hand is shown once");
});

test("shared_state: the page and the graph change one state", async () => {
  const clients = await both("shared_state", ({ say }) => say("cook"), { recipe: { salt: "much" } });
  assert.deepEqual(state(clients.gateway).recipe, { salt: "much", title: "Soup" });
});

test("predictive_state_updates: the prediction is announced before the arguments, and the state is the graph's at the end", async () => {
  const clients = await both("predictive_state_updates", ({ say }) => say("write"));
  for (const [place, user] of Object.entries(clients)) {
    const at = (wanted) => user.events.findIndex(wanted);
    const predicted = at(({ type, name }) => type === "CUSTOM" && name === "PredictState");
    const started = at(({ type, toolCallId }) => type === "TOOL_CALL_START" && toolCallId === "call_doc");
    assert.ok(predicted >= 0 && predicted < started, `${place}: ${predicted} before ${started}`);
    assert.deepEqual(user.events[predicted].value, [{ state_key: "document", tool: "write_document", tool_argument: "document" }]);
  }
  assert.deepEqual(messages(clients.gateway).map(({ role }) => role), ["user", "assistant", "tool", "assistant"]);
  assert.equal(of(clients.gateway, "TOOL_CALL_ARGS").length, of(clients.reference, "TOOL_CALL_ARGS").length, "as many pieces");
});

test("subgraphs: messages of nested graphs are in order, with steps", async () => {
  const clients = await both("subgraphs", ({ say }) => say("book"));
  assert.deepEqual(messages(clients.gateway).map(({ content }) => content), ["book", "A flight to Oslo.", "A hotel in Oslo.", "All booked."]);
  const steps = of(clients.gateway, "STEP_STARTED").map(({ stepName }) => stepName);
  for (const name of ["flights", "hotels", "report"]) assert.ok(steps.some((step) => step === name || step.startsWith(`${name}/`)), `${name} in ${steps}`);
});
