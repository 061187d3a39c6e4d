// Real clients of three protocols, CopilotKit and EventSource with a token, each by the recipe of docs/security.md.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import path from "node:path";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";

import { HttpAgent } from "@ag-ui/client";
import { AbstractChat, DefaultChatTransport } from "ai";
import { EventSource } from "eventsource";

import { agent, folder, keySets, recipe, root, run, serve, signer, soon, unused } from "./support.mjs";

// The client of CopilotKit connects only where there is a window.
globalThis.window = globalThis;
const { CopilotKitCore } = await import("@copilotkit/core");

const ISSUER = "https://id.example.com/";
const key = signer("k1", "ES256");
const now = () => Math.floor(Date.now() / 1000);
const tokenOf = (user, more = {}) => key.token({ typ: "JWT" }, { iss: ISSUER, aud: "agentwire", sub: user, iat: now(), exp: now() + 600, scope: "agents:*:*", ...more });

// One gateway for all tests of this file.
const cleanup = [];
const t = { after: (work) => cleanup.push(work) };
let upstream;
let url;
before(async () => {
  upstream = await agent(t);
  const keys = await keySets(t, { "/jwks": [key.jwk] });
  const toml = `store = "memory:"
cors = { origins = ["https://app.example.com"], credentials = true }
[[auth.jwt]]
name = "corp"
issuer = "${ISSUER}"
audience = ["agentwire"]
jwks = { url = "${keys}/jwks" }
cookie = "__Host-agentwire"
claims = { user = "/sub", scopes = "/scope" }
[agents.support]
upstream = { kind = "ag-ui", url = "${upstream.url}" }
`;
  ({ url } = await serve(t, toml));
});
after(() => cleanup.reverse().forEach((work) => work()));

const user = (id) => ({ id: `u-${id}`, role: "user", content: "hello" });

/** Starts a run that waits after its first word. */
async function waitingRun(id, token) {
  upstream.holds = true;
  const response = await fetch(url, {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: JSON.stringify({ threadId: id, runId: id, messages: [user(id)], tools: [], context: [], state: {}, forwardedProps: {} }),
  });
  assert.equal(response.status, 200);
  const reader = response.body.getReader();
  let text = "";
  while (!text.includes("first")) text += new TextDecoder().decode((await soon("the first word", reader.read())).value);
  await reader.cancel();
}

test("AG-UI: HttpAgent sends the header of the recipe, and a new one after a new sign-in", async () => {
  let current = tokenOf("ada");
  const client = await run("// AG-UI", { HttpAgent, url, token: () => current }, "agent");
  client.messages = [user("ag-ui")];
  const { newMessages } = await soon("the run", client.runAgent({ runId: "ag-ui" }));
  assert.equal(newMessages.at(-1).content, "first second");
  client.headers = { authorization: "Bearer nonsense" };
  await assert.rejects(soon("the refusal", client.runAgent({ runId: "refused" })), /401/);
});

test("HAI: the client sends the header of the recipe", async () => {
  const sdk = path.join(root, "sdk", "typescript", "hai-client");
  const bundle = path.join(folder(t), "hai.mjs");
  const args = ["src/index.ts", "--bundle", "--format=esm", "--platform=node", `--outfile=${bundle}`, "--log-level=error"];
  execFileSync(path.join(sdk, "node_modules", ".bin", "esbuild"), args, { cwd: sdk });
  const kit = await import(pathToFileURL(bundle));
  const client = await run("// HAI client", { HttpAgent: kit.HttpAgent, url, token: () => tokenOf("ada") }, "agent");
  client.addMessage(user("hai"));
  await soon("the run", client.runAgent({}));
  assert.match(JSON.stringify(client.messages), /first.*second/);
  const stranger = new kit.HttpAgent({ url: `${url}/awp`, reconnect: false });
  stranger.addMessage(user("hai-2"));
  await assert.rejects(soon("the refusal", stranger.runAgent({})), (error) => error.status === 401);
});

class State {
  status = "ready";
  error = undefined;
  messages = [];
  pushMessage = (message) => (this.messages = this.messages.concat(structuredClone(message)));
  popMessage = () => (this.messages = this.messages.slice(0, -1));
  replaceMessage = (index, message) => (this.messages = this.messages.with(index, structuredClone(message)));
  snapshot = (thing) => structuredClone(thing);
}
class Chat extends AbstractChat {
  constructor(init) {
    super({ ...init, state: new State() });
  }
}
const textOf = (message) => message.parts.filter((part) => part.type === "text").map((part) => part.text).join("");

test("useChat: the function of the recipe is asked for every request, reconnects included", async () => {
  let asked = 0;
  const token = () => ((asked += 1), tokenOf("ada", { jti: String(asked) }));
  const transport = await run("// useChat", { DefaultChatTransport, url, token }, "transport");
  const first = new Chat({ id: "chat", transport });
  upstream.holds = true;
  const sending = first.sendMessage({ text: "hello" });
  await soon("the first word", (async () => { while (!textOf(first.messages.at(-1) ?? { parts: [] }).includes("first")) await new Promise((wake) => setTimeout(wake, 20)); })());
  const before = asked;
  const second = new Chat({ id: "chat", transport });
  const resuming = second.resumeStream();
  await soon("the resumed message", (async () => { while (!second.messages.length) await new Promise((wake) => setTimeout(wake, 20)); })());
  upstream.release();
  await soon("both ends", Promise.all([sending, resuming]));
  assert.ok(asked > before, "a reconnect asks again");
  for (const chat of [first, second]) assert.equal(textOf(chat.messages.at(-1)), "first second", String(chat.error));
  const stranger = new Chat({ id: "chat", transport: new DefaultChatTransport({ api: `${url}/api/chat`, headers: { authorization: `Bearer ${tokenOf("eve")}` } }) });
  await soon("nothing to resume", stranger.resumeStream());
  assert.equal(stranger.messages.length, 0, "another user has no such chat");
});

test("CopilotKit: the headers of the recipe reach the gateway, also new ones", async () => {
  let current = tokenOf("ada");
  const kit = await run("// CopilotKit", { CopilotKitCore, url, token: () => current }, "kit");
  const errors = [];
  kit.subscribe({ onError: ({ error }) => void errors.push(String(error)) });
  await soon("the connection", (async () => { while (kit.runtimeConnectionStatus !== "connected") await new Promise((wake) => setTimeout(wake, 20)); })());
  const client = kit.getAgent("support");
  client.addMessage(user("copilotkit"));
  await soon("the run", kit.runAgent({ agent: client }));
  assert.match(JSON.stringify(client.messages), /first second/);
  kit.setHeaders({ authorization: "Bearer nonsense" });
  client.addMessage({ ...user("copilotkit-2") });
  await soon("the refusal", kit.runAgent({ agent: client }).catch((error) => errors.push(String(error))));
  assert.match(errors.join(), /401/);
});

/** The texts of a stream up to its end. */
const follow = (stream) =>
  soon(
    "the end of the stream",
    new Promise((resolve, reject) => {
      let text = "";
      stream.onmessage = ({ data }) => {
        const event = JSON.parse(data);
        if (event.type === "TEXT_MESSAGE_CONTENT") text += event.delta;
        if (text.includes("first")) upstream.release();
        if (event.type === "RUN_FINISHED") resolve(text);
      };
      stream.onerror = (error) => reject(new Error(`${error.code} ${error.message}`));
    }),
  ).finally(() => stream.close());

test("EventSource: a ticket opens the stream of its run, and no other", async () => {
  await waitingRun("ticket", tokenOf("ada"));
  const names = { EventSource, fetch, url, run: "ticket", token: () => tokenOf("ada") };
  const stream = await run("// EventSource, which has no headers", names, "stream");
  assert.equal(await follow(stream), "first second");
  const { ticket } = Object.fromEntries(new URL(stream.url).searchParams);
  for (const path of ["/runs/other/stream", "/runs/ticket", "/threads"]) {
    assert.equal((await fetch(`${url}${path}?ticket=${ticket}`)).status, 401, path);
  }
});

test("EventSource: the cookie of an entry opens a stream; it changes nothing from a foreign page", async () => {
  await waitingRun("cookie", tokenOf("ada"));
  const cookie = `__Host-agentwire=${tokenOf("ada")}`;
  // A browser adds the cookie by itself; here the fetch of the client does.
  class Browser extends EventSource {
    constructor(address, options) {
      assert.equal(options.withCredentials, true);
      super(address, { fetch: (input, init) => fetch(input, { ...init, headers: { ...init.headers, cookie } }) });
    }
  }
  const stream = await run("// EventSource with the cookie", { EventSource: Browser, url, run: "cookie" }, "stream");
  assert.equal(await follow(stream), "first second");
  const stop = (headers) => fetch(`${url}/runs/cookie/stop`, { method: "POST", headers: { cookie, ...headers } }).then(({ status }) => status);
  assert.equal(await stop({}), 403, "no origin");
  assert.equal(await stop({ origin: "https://evil.example" }), 403);
  assert.equal(await stop({ origin: "null" }), 403);
  assert.equal(await stop({ "sec-fetch-site": "cross-site", origin: "https://evil.example" }), 403);
  assert.equal(await stop({ origin: "https://app.example.com" }), 200, "a listed origin");
  assert.equal(await stop({ "sec-fetch-site": "same-origin" }), 200);
});

test("every recipe in JavaScript was run", () => {
  const left = unused().filter((line) => line.startsWith("//"));
  assert.deepEqual(left, []);
  assert.ok(recipe("nginx", "location /") && recipe("caddyfile", "agents.example.com"), "proxies.test.mjs runs them");
});
