// A complete chat page with the official AG-UI client.

import { HttpAgent } from "@ag-ui/client";

/* global GATEWAY -- start.mjs inserts the gateway's URL here */

const $ = (id) => document.getElementById(id);

// The gateway stores the conversation, so the page needs only the thread id.
const threadId = (location.hash ||= `#${crypto.randomUUID()}`).slice(1);
const agent = new HttpAgent({ url: GATEWAY, threadId });

function line(role, text) {
  const item = document.createElement("li");
  item.className = role;
  item.textContent = text;
  return item;
}

function show(messages) {
  const lines = messages.flatMap(({ role, content, toolCalls = [] }) => [
    ...(content ? [line(role, role === "tool" ? `→ ${content}` : content)] : []),
    ...toolCalls.map((call) => line("tool", `${call.function.name}(${call.function.arguments})`)),
  ]);
  $("messages").replaceChildren(...lines);
}

agent.subscribe({
  onMessagesChanged: ({ messages }) => show(messages),
  onRunErrorEvent: ({ event }) => void ($("error").textContent = event.message),
});

// The messages from before the page was loaded.
const answer = await fetch(`${GATEWAY}/message_snapshot/${threadId}`);
if (answer.ok) agent.setMessages((await answer.json()).messages);

document.forms[0].addEventListener("submit", async (event) => {
  event.preventDefault();
  const content = $("question").value.trim() || $("question").placeholder;
  $("question").value = "";
  $("error").textContent = "";
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content });
  delete document.body.dataset.ready;
  await agent.runAgent().catch((error) => void ($("error").textContent ||= error.message));
  document.body.dataset.ready = "yes";
});
document.body.dataset.ready = "yes";
