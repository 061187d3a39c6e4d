// `agentwire run` without a terminal: the options of the request, three protocols, continued threads, exit codes.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import path from "node:path";
import { test } from "node:test";

import { all, binary, folder, input, post, serve } from "../gateway/support.mjs";

/** Runs the command to its end. */
function run(args, { cwd, stdin = "" } = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(binary, ["run", ...args], { cwd, stdio: ["pipe", "pipe", "pipe"] });
    let [output, errors] = ["", ""];
    child.stdout.on("data", (bytes) => (output += bytes));
    child.stderr.on("data", (bytes) => (errors += bytes));
    child.on("error", reject);
    child.on("close", (code) => resolve({ code, output, errors }));
    child.stdin.end(stdin);
  });
}

const sse = (...events) => events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("");
const ids = { threadId: "t", runId: "r" };

/** The answer "Hello" in each protocol, by path. */
const answers = {
  "/": ["text/event-stream", sse({ type: "RUN_STARTED", ...ids }, { type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" }, { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "Hello" }, { type: "TEXT_MESSAGE_END", messageId: "m" }, { type: "RUN_FINISHED", ...ids })],
  "/awp": ["text/event-stream", sse({ type: "RUN_STARTED", ...ids, messageId: "m" }, { type: "BUSINESS_DATA_START", messageId: "m" }, { type: "BUSINESS_DATA_CONTENT", messageId: "m", delta: '{"output":{"type":"text","content":"Hello"}}' }, { type: "BUSINESS_DATA_END", messageId: "m" }, { type: "RUN_FINISHED", ...ids, messageId: "m" })],
  "/api/chat": ["text/event-stream", `${sse({ type: "start" }, { type: "text-start", id: "1" }, { type: "text-delta", id: "1", delta: "Hello" }, { type: "text-end", id: "1" }, { type: "finish" })}data: [DONE]\n\n`],
  "/v4": ["text/plain; charset=utf-8", 'f:{"messageId":"m"}\n0:"Hel"\n0:"lo"\ne:{"finishReason":"stop","usage":{"promptTokens":1,"completionTokens":2},"isContinued":false}\nd:{"finishReason":"stop","usage":{"promptTokens":1,"completionTokens":2}}\n'],
};

/** A server that answers by path and keeps the requests. */
async function server(t, respond) {
  const requests = [];
  const listener = http.createServer((request, response) => {
    let body = "";
    request.on("data", (bytes) => (body += bytes));
    request.on("end", () => {
      requests.push({ headers: request.headers, body: body && JSON.parse(body) });
      if (respond) return respond(request, response);
      const { pathname } = new URL(request.url, "http://server");
      const [type, text] = answers[pathname];
      response.writeHead(200, { "content-type": type, ...(pathname === "/v4" ? { "x-vercel-ai-data-stream": "v1" } : {}) });
      response.end(text);
    });
  });
  await new Promise((ready) => listener.listen(0, "127.0.0.1", ready));
  t.after(() => (listener.closeAllConnections(), listener.close()));
  return { url: `http://127.0.0.1:${listener.address().port}`, requests };
}

test("--attach sends files as parts of the message, in three protocols", async (t) => {
  const cwd = folder(t);
  fs.writeFileSync(path.join(cwd, "dot.png"), Buffer.from([0x89, 0x50, 0x4e, 0x47]));
  fs.writeFileSync(path.join(cwd, "list.csv"), "a,b\n");
  const { url, requests } = await server(t);
  for (const route of ["/", "/awp", "/api/chat"]) {
    const { code, output, errors } = await run([`${url}${route}`, "-m", "look", "--attach", "dot.png", "--attach", "list.csv", "--quiet"], { cwd });
    assert.deepEqual([code, output.trim()], [0, "Hello"], `${route}: ${errors}`);
    const text = JSON.stringify(requests.at(-1).body.messages);
    for (const wanted of ["look", "image/png", "iVBORw==", "text/csv", "YSxiCg=="]) assert.ok(text.includes(wanted), `${route}: ${wanted} is not in ${text}`);
  }
  const missing = await run([`${url}/`, "-m", "look", "--attach", "nothing.png"], { cwd });
  assert.equal(missing.code, 2);
  assert.match(missing.errors, /nothing\.png/);
});

test("--tool, --context, --state, --forwarded, ids and headers are in the request", async (t) => {
  const cwd = folder(t);
  fs.writeFileSync(path.join(cwd, "one.json"), JSON.stringify({ name: "ask", description: "Asks", parameters: { type: "object", properties: { q: { type: "string" } } } }));
  fs.writeFileSync(path.join(cwd, "more.json"), JSON.stringify([{ name: "open" }, { name: "shut", inputSchema: { type: "object" } }]));
  fs.writeFileSync(path.join(cwd, "state.json"), '{"n":1}');
  fs.writeFileSync(path.join(cwd, "bad.json"), '[{"description":"no name"}]');
  const { url, requests } = await server(t);
  const options = ["-m", "-", "--tool", "one.json", "--tool", "more.json", "--context", "place=Bern", "--state", "state.json", "--forwarded", '{"model":"x"}', "--thread", "T", "--run", "R", "-H", "x-own: 7", "--quiet"];
  for (const route of ["/", "/awp"]) {
    const { code, errors } = await run([`${url}${route}`, ...options], { cwd, stdin: "from stdin\n" });
    assert.equal(code, 0, errors);
    const { headers, body } = requests.at(-1);
    assert.deepEqual(body.tools.map(({ name }) => name), ["ask", "open", "shut"]);
    assert.deepEqual(body.tools[0].parameters.properties, { q: { type: "string" } });
    assert.deepEqual([body.threadId, body.runId, body.state, body.forwardedProps, headers["x-own"]], ["T", "R", { n: 1 }, { model: "x" }, "7"]);
    assert.match(JSON.stringify([body.context, body.messages]), /place.*Bern.*from stdin/);
  }
  for (const wrong of [["--tool", "bad.json"], ["--tool", "none.json"], ["--forwarded", "{"], ["--context", "noequals"], ["-H", "nocolon"], ["--continue"], ["--reconnect"]]) {
    const { code, errors } = await run([`${url}/`, "-m", "x", ...wrong], { cwd });
    assert.equal(code, 2, `${wrong}: ${errors}`);
  }
});

test("servers of the AI SDK: 4 by its own protocol, later ones by their path", async (t) => {
  const { url, requests } = await server(t);
  for (const [route, protocol] of [["/v4", "ai-sdk@4"], ["/api/chat", "auto"], ["/api/chat", "ai-sdk@5"]]) {
    const { code, output, errors } = await run([`${url}${route}`, "--protocol", protocol, "-m", "hi", "--quiet"]);
    assert.deepEqual([code, output.trim()], [0, "Hello"], errors);
    assert.equal(requests.at(-1).body.messages.at(-1).role, "user");
  }
  const recorded = path.join(folder(t), "v4.txt");
  const { code, errors } = await run([`${url}/v4`, "--protocol", "ai-sdk@4", "-m", "hi", "--record", recorded, "--check", "--quiet"]);
  assert.equal(code, 0, errors);
  assert.match(fs.readFileSync(recorded, "utf8"), /0:"Hel"/);
});

test("--continue knows the conversation, --reconnect follows the active run, in AG-UI and HAI", async (t) => {
  const { url } = await serve(t, ["--store", "memory:"]);
  for (const [number, route] of ["/", "/awp"].entries()) {
    const thread = `thread-${number}`;
    await run([`${url}${route}`, "--thread", thread, "-m", "long 2"]);
    const { code, output, errors } = await run([`${url}${route}`, "--thread", thread, "--continue", "-m", "long 3", "--json"]);
    assert.equal(code, 0, errors);
    const { messages } = JSON.parse(output);
    assert.deepEqual(messages.filter(({ role }) => role === "user").map(({ content }) => content), ["long 2", "long 3"]);
    assert.equal(messages.filter(({ role }) => role === "assistant").length, 2);

    const going = all(await post(`${url}/`, input(`live-${number}`, `live-run-${number}`, "slow")));
    const followed = await run([`${url}${route}`, "--thread", `live-${number}`, "--reconnect", "--quiet"]);
    await going;
    assert.equal(followed.code, 0, followed.errors);
    assert.match(followed.output, /This answer/);
  }
});

test("exit codes: RUN_ERROR 1, a violation 3, an open question 4, no server 5", async (t) => {
  const { url } = await serve(t, ["--store", "memory:"]);
  const waiting = await run([`${url}/awp`, "-m", "approve"]);
  assert.deepEqual([waiting.code, /waits for an answer/.test(waiting.errors)], [4, true], waiting.errors);
  const broken = await server(t, (_, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.end(sse({ type: "RUN_STARTED", ...ids }, { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "x" }, { type: "RUN_FINISHED", ...ids }));
  });
  assert.equal((await run([`${broken.url}/`, "-m", "x", "--check"])).code, 3);
  const failing = await server(t, (_, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.end(sse({ type: "RUN_STARTED", ...ids }, { type: "RUN_ERROR", message: "no", code: "X" }));
  });
  const failed = await run([`${failing.url}/`, "-m", "x"]);
  assert.deepEqual([failed.code, /no \(X\)|no/.test(failed.output + failed.errors)], [1, true]);
  const refusing = await server(t, (_, response) => response.writeHead(500).end("busy"));
  assert.equal((await run([`${refusing.url}/`, "-m", "x"])).code, 5);
});
