// The features of front ends, each with the check that shows it. The table of docs/compatibility.md is made from it.

/** Each front end: its name in the table, and the files with its checks, from the folder of the suites. */
export const FRONT_ENDS = [
  { name: "CopilotKit", files: ["faces/copilotkit-page.test.mjs", "faces/activities.test.mjs"] },
  { name: "assistant-ui", files: ["faces-assistant/assistant.test.mjs"] },
  { name: "`useStream`", files: ["faces-langgraph/page.test.mjs"] },
  { name: "`useChat`", files: ["ai-sdk/server.test.mjs", "ai-sdk/history.test.mjs", "gateway/clients.test.mjs", "foreign/checks.mjs", "foreign/conversations.mjs", "upstreams/langgraph.test.mjs"] },
  { name: "`@ag-ui/client`", files: ["gateway/clients.test.mjs", "gateway/life.test.mjs", "foreign/conversations.mjs", "faces/activities.test.mjs", "dojo/dojo.test.mjs"] },
];

/** Each feature: a part of the title of its check, one per front end; `null` where there is none. */
export const FEATURES = {
  "chat with streaming": ["chat with streaming, and the history after a reload", "chat with streaming, and the history", "chat with streaming, each message once", "a conversation", "accepts every keyword"],
  "history after a reload": ["chat with streaming, and the history after a reload", "chat with streaming, and the history", "the history and the open question are there after a reload", "sends the history back", "after a reload and in the next turn"],
  "tool of the agent": ["a tool of the agent is drawn by the page", "a tool of the agent is drawn by the page", "tool calls are drawn by the page", "a tool of the server", "a tool of the server"],
  "front-end tool": ["a front-end tool runs in the page", "a front-end tool runs in the page", null, "a browser tool returns its result", "a tool of the page"],
  "human in the loop": ["human in the loop: a person answers a tool call", "human in the loop: a person answers a tool call", null, "a payment is", "approval: a tool that needs a yes"],
  "interrupt": ["an interrupt is shown, survives a reload", "an interrupt is shown, survives a reload", "an interrupt is shown and answered", "an interrupt is answered in the interrupt's own tool part", "answers an interrupt"],
  "shared state": ["shared state goes both ways", null, "the state of the agent is in the values", "state", "the page and the graph change one state"],
  "predictive state": ["predictive state: streamed arguments of a tool", null, null, null, "the prediction is announced before the arguments"],
  "activities (A2UI, MCP Apps, own ones)": ["A2UI and MCP-Apps activities are there after a reload", null, null, null, "A2UI and MCP-Apps activities are the same through the gateway"],
  "reload in mid-run": ["a reload in mid-run shows the first half and the rest", "a reload in mid-run shows the first half and the rest", "a reload in mid-run shows the first half and the rest", "a reloaded page resumes the stream", "a page that is reloaded during a run"],
  "list of threads": ["the list of threads: newest first", "the list of threads: switch", "the list of threads", null, null],
  "edit, regenerate": [null, "an edited message starts a branch", "branches: an edited message, a regenerated answer", null, null],
  "stop": ["the stop button ends the run on the gateway", "the stop button ends the run on the gateway", "the stop button ends the run on the gateway", "stop, then resume by replay", "stops, then speaks"],
  "error": ["a failed run is an error of the page", "a failed run is an error of the page", "a failed run is an error of the page", "a bad request is reported", "a failure in the middle"],
};

/** The table. */
export function table() {
  const head = `| feature | ${FRONT_ENDS.map(({ name }) => name).join(" | ")} |\n|${" --- |".repeat(FRONT_ENDS.length + 1)}\n`;
  return head + Object.entries(FEATURES).map(([feature, checks]) => `| ${feature} | ${checks.map((check) => (check ? "yes" : "–")).join(" | ")} |\n`).join("");
}
