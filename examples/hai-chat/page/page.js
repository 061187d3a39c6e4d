// A chat page with the client kit of HAI.

import { HttpAgent, parseContents } from "hai-client";

import { drawDocuments, element, register } from "./blocks.js";
import { tools } from "./tools.js";

/* global GATEWAY -- start.mjs inserts the gateway's URL here */

const $ = (id) => document.getElementById(id);

// The gateway stores the conversation, so the page needs only the thread id.
const threadId = (location.hash ||= `#${crypto.randomUUID()}`).slice(1);
const agent = new HttpAgent({ url: `${GATEWAY}/awp`, threadId });

// An output of the agent's own.
register("weather", ({ data }) => element("b", {}, `${data.degrees}°`));

/** The side pages of the shown tools, by the id of the tool. */
const sidePages = new Map();

function openSidePage(id) {
  const page = sidePages.get(id);
  if (!page) return false;
  $("side").replaceChildren(element("h3", {}, page.title), page.description ?? "", drawDocuments(page.data ?? [], actions));
  return true;
}

const actions = { say, openSidePage };

function showMessage({ role, content, toolCalls = [] }, results) {
  if (role === "tool" || role === "developer") return [];
  const documents = role === "assistant" ? parseContents(content) : [];
  for (const { output } of documents) for (const tool of output.data?.tools ?? []) if (tool.data) sidePages.set(tool.id, tool.data);
  const body = role === "assistant" ? drawDocuments(documents, actions) : element("div", { className: role }, content ?? "");
  const calls = toolCalls.map(({ id, function: { name, arguments: args } }) =>
    element("div", { className: "call" }, `${name}(${args})${results.has(id) ? ` → ${results.get(id)}` : ""}`),
  );
  return [body, ...calls];
}

function show() {
  const results = new Map(agent.messages.filter(({ role }) => role === "tool").map(({ toolCallId, content }) => [toolCallId, content]));
  $("messages").replaceChildren(...agent.messages.flatMap((message) => showMessage(message, results)));
}

/** One drawing per frame, however many events arrive. */
let frame = null;
function draw() {
  frame ??= requestAnimationFrame(() => ((frame = null), show()));
}

/** Draws the pending frame at once: an error or the end of a run is shown after everything before it. */
function drawNow() {
  if (frame === null) return;
  cancelAnimationFrame(frame);
  frame = null;
  show();
}

const status = (text) => void ($("status").textContent = text);

agent.subscribe({
  onMessagesChanged: draw,
  onStateChanged: ({ state }) => {
    const items = (state.workflowItems ?? []).map(({ agent, name, status }) => element("li", {}, `${agent}: ${name}, ${status}`));
    $("workflow").replaceChildren(...items);
  },
  onStepStartedEvent: ({ event }) => status(`running: ${event.stepName}`),
  onRunStartedEvent: () => status("running"),
  onPaused: () => status("paused"),
  onResumed: () => status("running"),
  onReconnecting: ({ attempt }) => status(`reconnecting, attempt ${attempt}`),
  onRunFinishedEvent: ({ outcome }) => status(outcome?.type === "cancelled" ? "stopped" : "ready"),
  onRunErrorEvent: () => status("failed"),
});

/** Runs the agent, and its front-end tools until it asks no more. */
async function run(start = () => agent.runAgent({ tools })) {
  delete document.body.dataset.ready;
  $("error").textContent = "";
  try {
    await start();
    for (let open = openCalls(); open.length > 0; open = openCalls()) {
      for (const { id, tool, args } of open) agent.addToolResult(id, await tool.run(args, actions));
      await agent.runAgent({ tools });
    }
  } catch (error) {
    drawNow();
    $("error").textContent = `${error.code}: ${error.message}`;
  }
  drawNow();
  document.body.dataset.ready = "yes";
}

/** The calls of this page's tools that have no result. */
function openCalls() {
  const done = new Set(agent.messages.map(({ toolCallId }) => toolCallId));
  return agent.messages
    .flatMap(({ toolCalls = [] }) => toolCalls)
    .filter(({ id }) => !done.has(id))
    .map(({ id, function: { name, arguments: args } }) => ({ id, tool: tools.find((tool) => tool.name === name), args: JSON.parse(args || "{}") }))
    .filter(({ tool }) => tool);
}

function say(content) {
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content });
  return run();
}

$("sender").addEventListener("submit", (event) => {
  event.preventDefault();
  const content = $("question").value.trim();
  $("question").value = "";
  if (content && !agent.isRunning) say(content);
});
const explain = (error) => void ($("error").textContent = error.message);
for (const action of ["pause", "resume", "stop"]) $(action).onclick = () => agent[action]().catch(explain);
for (const rating of ["up", "down"]) {
  $(rating).onclick = () => agent.feedback({ rating }).then(() => status(`rated: ${rating}`), explain);
}

// The stored messages, the live run, and the questions from before the page was loaded. A new thread has none.
await run(() => agent.reconnect().catch((error) => (error.status === 404 || error.code === "THREAD_NOT_FOUND" ? null : Promise.reject(error))));
