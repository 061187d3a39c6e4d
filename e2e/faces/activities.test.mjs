// Activities of A2UI and MCP Apps, in the shapes of AG-UI's middlewares, pass through the gateway untouched: over every
// AG-UI route and profile, from the log, after a reload, and in the next turn.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import path from "node:path";
import test from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { agent as agUiAgent, serve } from "../console/support.mjs";

process.env.SUPPRESS_TRANSFORMATION_WARNINGS = "1";
const here = path.dirname(fileURLToPath(import.meta.url));
const load = (suite) => import(pathToFileURL(createRequire(path.join(here, "..", suite, "package.json")).resolve("@ag-ui/client")));
/** The official clients: of version 1.0, and of the version that CopilotKit uses. */
const CLIENTS = { "@ag-ui/client 1.0": await load("gateway"), "@ag-ui/client 0.0.59": await load("faces") };

/** Contents as text, with numbers, keys and escapes that a careless parser changes. */
const CONTENTS = {
  "a2ui-surface": [
    '{"a2ui_operations":[{"version":"v0.9","createSurface":{"surfaceId":"s","catalogId":"https://a2ui.org/specification/v0_9/basic_catalog.json"}},',
    '{"version":"v0.9","updateComponents":{"surfaceId":"s","components":[{"id":"root","component":"Column","children":["t"]},{"id":"t","component":"Text","text":{"path":"/title"}}]}},',
    '{"version":"v0.9","updateDataModel":{"surfaceId":"s","path":"/","value":{"title":"Grüße ☃ \\u2028","price":1.0,"big":12345678901234567890,"tiny":1e-7,"z":null,"a":[],"__proto__":{"x":1},"":{"/~":"~1"}}}}]}',
  ].join(""),
  "mcp-apps": '{"result":{"content":[{"type":"text","text":"done <b>"}],"structuredContent":{"rows":[[1,2.50],[-0.0,3e2]]},"isError":false,"_meta":{"ui":{}}},"resourceUri":"ui://server/app.html","serverHash":"5d41402abc4b2a76b9719d911017c592","serverId":"one","toolInput":{"city":"Oslo"}}',
};
const PATCHES = {
  "a2ui-surface": '[{"op":"add","path":"/a2ui_operations/-","value":{"version":"v0.9","updateDataModel":{"surfaceId":"s","path":"/title","value":"Bye"}}}]',
  "mcp-apps": '[{"op":"replace","path":"/result/isError","value":true},{"op":"remove","path":"/toolInput/city"}]',
};

/** The text of a member of an event, as it is on the wire: from the member to its balanced end. */
function memberText(line, name) {
  const from = line.indexOf(`"${name}":`) + name.length + 3;
  assert.ok(from >= name.length + 3, `\`${name}\` in ${line}`);
  let depth = 0;
  for (let at = from, quoted = false; at < line.length; at += 1) {
    if (quoted) {
      if (line[at] === "\\") at += 1;
      else if (line[at] === '"') quoted = false;
    } else if (line[at] === '"') quoted = true;
    else if ("{[".includes(line[at])) depth += 1;
    else if ("}]".includes(line[at]) && --depth === 0) return line.slice(from, at + 1);
  }
  throw new Error(`\`${name}\` has no end in ${line}`);
}

/** An agent that sends the activities byte by byte as above. */
async function activityAgent(t) {
  const inputs = [];
  const url = await agUiAgent(t, (send, input, response) => {
    const { threadId, runId } = input;
    inputs.push(input);
    send({ type: "RUN_STARTED", threadId, runId });
    if (inputs.length === 1) {
      for (const [kind, content] of Object.entries(CONTENTS)) {
        const id = `${kind}-call_1`;
        response.write(`data: {"type":"ACTIVITY_SNAPSHOT","messageId":"${id}","activityType":"${kind}","content":${content},"replace":true}\n\n`);
        response.write(`data: {"type":"ACTIVITY_DELTA","messageId":"${id}","activityType":"${kind}","patch":${PATCHES[kind]}}\n\n`);
      }
    }
    send({ type: "TEXT_MESSAGE_START", messageId: `m-${inputs.length}`, role: "assistant" });
    send({ type: "TEXT_MESSAGE_CONTENT", messageId: `m-${inputs.length}`, delta: "There." });
    send({ type: "TEXT_MESSAGE_END", messageId: `m-${inputs.length}` });
    send({ type: "RUN_FINISHED", threadId, runId });
    response.end();
  });
  return { url, inputs };
}

/** The activities of a conversation. A client copies contents through JSON, which has no -0. */
const activities = (messages) =>
  messages.filter(({ role }) => role === "activity").map(({ id, activityType, content }) => ({ id, activityType, content: JSON.parse(JSON.stringify(content)) }));

const input = (more = {}) => ({ threadId: "t", runId: "r", state: {}, messages: [{ id: "u", role: "user", content: "go" }], tools: [], context: [], forwardedProps: {}, ...more });
const post = async (url, body) => {
  const response = await fetch(url, { method: "POST", headers: { "content-type": "application/json", accept: "text/event-stream" }, body: JSON.stringify(body) });
  assert.equal(response.status, 200, url);
  return response.text();
};

/** The activities of a stream: contents and patches, as text. */
function activitiesOf(stream) {
  const lines = stream.split("\n").filter((line) => line.includes('"ACTIVITY_'));
  return lines.map((line) => memberText(line, line.includes("ACTIVITY_DELTA") ? "patch" : "content"));
}

const SENT = Object.keys(CONTENTS).flatMap((kind) => [CONTENTS[kind], PATCHES[kind]]);

for (const [name, route] of [
  ["AG-UI 1.0", "/"],
  ["AG-UI 0.0.5x", "/?profile=0.0.5x"],
  ["CopilotKit", "/copilotkit/agent/default/run"],
]) {
  test(`${name}: A2UI and MCP-Apps activities arrive byte by byte, also from the log`, async (t) => {
    const upstream = await activityAgent(t);
    const { url } = await serve(t, ["--ag-ui", upstream.url]);
    const stream = await post(url + route, input());
    assert.deepEqual(activitiesOf(stream), SENT);
    const replayed = await (await fetch(`${url}/runs/r/stream`)).text();
    assert.deepEqual(activitiesOf(replayed), SENT);
  });
}

for (const [version, { HttpAgent }] of Object.entries(CLIENTS)) {
  test(`${version}: A2UI and MCP-Apps activities are the same through the gateway, after a reload and in the next turn`, async (t) => {
    const talk = async (url) => {
      const agent = new HttpAgent({ url, threadId: "t" });
      for (const content of ["go", "go on"]) {
        agent.addMessage({ id: `u-${content}`, role: "user", content });
        await agent.runAgent({});
      }
      return agent.messages;
    };
    const alone = await activityAgent(t);
    const behind = await activityAgent(t);
    const { url } = await serve(t, ["--ag-ui", behind.url]);
    const expected = await talk(alone.url);
    assert.equal(activities(expected).length, 2);
    const messages = await talk(`${url}/`);
    assert.deepEqual(activities(messages), activities(expected));
    assert.deepEqual(messages.map(({ role }) => role), expected.map(({ role }) => role));
    // The agent gets in the second turn what it gets from the client alone: no activities.
    assert.deepEqual(behind.inputs[1].messages.map(({ role }) => role), alone.inputs[1].messages.map(({ role }) => role));
    const { messages: kept } = await (await fetch(`${url}/message_snapshot/t`)).json();
    assert.deepEqual(activities(kept), activities(expected));
    const reloaded = new HttpAgent({ url: `${url}/`, threadId: "t" });
    await reloaded.runAgent({});
    assert.deepEqual(activities(reloaded.messages), activities(expected));
  });
}

test("CopilotKit: A2UI and MCP-Apps activities are there after a reload", async (t) => {
  const upstream = await activityAgent(t);
  const { url } = await serve(t, ["--ag-ui", upstream.url]);
  const run = await post(`${url}/copilotkit/agent/default/run`, input());
  const { HttpAgent } = CLIENTS["@ag-ui/client 0.0.59"];
  const folded = async (stream) => {
    const agent = new HttpAgent({ url: "http://127.0.0.1:9/", threadId: "t" });
    agent.fetch = async () => new Response(stream, { headers: { "content-type": "text/event-stream" } });
    await agent.runAgent({});
    return activities(agent.messages);
  };
  const connected = await post(`${url}/copilotkit/agent/default/connect`, input({ runId: "c", messages: [] }));
  const [live, again] = [await folded(run), await folded(connected)];
  assert.equal(live.length, 2);
  assert.deepEqual(again, live);
});

test("an app of MCP asks its server through a run of its own", async (t) => {
  const inputs = [];
  const upstream = await agUiAgent(t, (send, { threadId, runId, ...rest }, response) => {
    inputs.push(rest);
    send({ type: "RUN_STARTED", threadId, runId });
    const request = rest.forwardedProps?.__proxiedMCPRequest;
    if (request) send({ type: "RUN_FINISHED", threadId, runId, result: { contents: [{ uri: request.params.uri, mimeType: "text/html;profile=mcp-app", text: "<p>Hi</p>" }] } });
    else {
      send({ type: "ACTIVITY_SNAPSHOT", messageId: "mcp-1", activityType: "mcp-apps", content: JSON.parse(CONTENTS["mcp-apps"]), replace: true });
      send({ type: "RUN_FINISHED", threadId, runId });
    }
    response.end();
  });
  const { url } = await serve(t, ["--ag-ui", upstream]);
  const { HttpAgent } = CLIENTS["@ag-ui/client 0.0.59"];
  const agent = new HttpAgent({ url: `${url}/copilotkit/agent/default/run`, threadId: "t" });
  agent.addMessage({ id: "u", role: "user", content: "go" });
  await agent.runAgent({});
  const before = agent.messages;
  const request = { serverHash: "5d41402abc4b2a76b9719d911017c592", method: "resources/read", params: { uri: "ui://server/app.html" } };
  const { result } = await agent.runAgent({ forwardedProps: { __proxiedMCPRequest: request } });
  assert.deepEqual(result, { contents: [{ uri: "ui://server/app.html", mimeType: "text/html;profile=mcp-app", text: "<p>Hi</p>" }] });
  assert.deepEqual(inputs[1].forwardedProps, { __proxiedMCPRequest: request });
  assert.deepEqual(agent.messages, before, "the conversation is as it was");
});
