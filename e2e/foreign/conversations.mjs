// The conversations with every server. The last word of a question selects the reply of the scripted model.

const PICK = [{ name: "pick_colour", description: "Picks.", parameters: { type: "object", properties: { of: { type: "array", items: { type: "string" } } } } }];

/** Each conversation: the user messages, the front-end tools, and the answers to pending items. */
export const CONVERSATIONS = {
  "a chat": [["hello there"], ["and again"], ["what do you recall"]],
  "a tool of the server": [["the weather"], ["and silently"], ["recall"]],
  "two tools at once": [["both"], ["thanks"]],
  "a tool that fails": [["break"], ["go on"]],
  "thoughts": [["think"], ["thanks"]],
  "state": [["make it dark"], ["thanks"]],
  "a tool of the page": [["a colour", { tools: PICK, answer: () => "blue" }], ["thanks", { tools: PICK }]],
  "two tools of the page": [["two colours", { tools: PICK, answer: () => ({ chosen: "it" }) }]],
  "a tool of either side": [["mixed", { tools: PICK, answer: () => "green" }], ["recall"]],
  "a failure in the middle": [["fail"], ["go on"]],
  "a failure before anything": [["raise"], ["go on"]],
};

/** Both approval mechanisms: most servers interrupt; Agno leaves the call open and reads a JSON answer. */
for (const yes of [true, false]) {
  const answer = (item) => (item.kind === "frontend-tool" ? { accepted: yes } : { approved: yes });
  CONVERSATIONS[`approval: a tool that needs a yes gets a ${yes ? "yes" : "no"}`] = [["delete", { answer }], ["thanks"]];
}

/** The conversations for which the framework of a server has the feature, with the name of the feature first. */
export const offered = ({ lacks = [] }) => Object.entries(CONVERSATIONS).filter(([name]) => !lacks.some((feature) => name.startsWith(feature)));
