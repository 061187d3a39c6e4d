// Artifacts of a real `adk api_server` through the gateway: the same bytes, for their owner only.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after, before, test } from "node:test";

import { startServer } from "../adk/peers.mjs";
import { Gateway, fresh } from "./gateway.mjs";

const IDENTITY = `
[identity]
tenant = { header = "x-tenant", default = "default" }
user = { header = "x-user-id", default = "default-user" }
`;

let server;
let gateway;
before(async () => {
  server = await startServer();
  const agents = { demo: `{ kind = "adk", url = "${server.url}", app = "demo" }`, other: '{ kind = "demo" }' };
  gateway = await Gateway.configured(agents, IDENTITY);
});
after(async () => {
  await gateway?.stop();
  await server?.close();
});

const ADA = { user: "ada@example.com", tenant: "default", there: "ada@example.com" };

/** Sends a message as a user. */
async function say(content, thread, { user, tenant }) {
  const input = { threadId: thread, runId: fresh("run"), messages: [{ id: fresh("user"), role: "user", content }], state: {}, tools: [], context: [], forwardedProps: {} };
  const headers = { "content-type": "application/json", "x-user-id": user, "x-tenant": tenant };
  const answer = await fetch(`${gateway.url}/agents/demo`, { method: "POST", headers, body: JSON.stringify(input) });
  const text = await answer.text();
  assert.match(text, /RUN_FINISHED/);
  return text;
}

const get = (path, { user, tenant } = ADA) => fetch(gateway.url + path, { headers: { "x-user-id": user, "x-tenant": tenant } });
const route = (thread, rest = "") => `/agents/demo/threads/${encodeURIComponent(thread)}/artifacts${rest}`;

/** Stores an artifact as the server's own API does. */
async function store(thread, { there }, filename, artifact) {
  const url = `${server.url}/apps/demo/users/${encodeURIComponent(there)}/sessions/${encodeURIComponent(thread)}/artifacts`;
  const answer = await fetch(url, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ filename, artifact }) });
  assert.equal(answer.status, 200, await answer.text());
}

test("artifacts of the agent are listed and returned byte for byte", async () => {
  const thread = fresh("thread");
  assert.match(await say("artifact", thread, ADA), /"adk.artifact"/);
  const noise = randomBytes(100_000);
  const inline = (mimeType, bytes) => ({ inlineData: { mimeType, data: Buffer.from(bytes).toString("base64url") } });
  await store(thread, ADA, "folder/a page.html", inline("text/html", "<script>alert(1)</script>"));
  await store(thread, ADA, "user:portrait.png", inline("image/png", noise));
  await store(thread, ADA, "note ü", { text: "grün" });
  await store(thread, ADA, "report.txt", inline("text/plain", "second"));
  const list = await get(route(thread));
  assert.equal(list.status, 200);
  assert.deepEqual((await list.json()).sort(), ["folder/a page.html", "note ü", "report.txt", "user:portrait.png"]);
  for (const [name, type, bytes, shown] of [
    ["report.txt", "text/plain", "second", "inline"],
    ["report.txt?version=0", "text/plain", "hello", "inline"],
    ["report.txt?version=1", "text/plain", "second", "inline"],
    ["folder/a%20page.html", "text/html", "<script>alert(1)</script>", "attachment"],
    ["user:portrait.png", "image/png", noise, "inline"],
    [encodeURIComponent("note ü"), "text/plain; charset=utf-8", "grün", "inline"],
  ]) {
    const answer = await get(route(thread, `/${name}`));
    assert.equal(answer.status, 200, name);
    assert.equal(answer.headers.get("content-type"), type, name);
    assert.equal(answer.headers.get("x-content-type-options"), "nosniff", name);
    assert.ok(answer.headers.get("content-disposition").startsWith(shown), name);
    assert.deepEqual(Buffer.from(await answer.arrayBuffer()), Buffer.from(bytes), name);
  }
  for (const name of ["nothing.txt", "report.txt?version=2", "..%2f..%2fx", "folder"]) {
    const answer = await get(route(thread, `/${name}`));
    assert.deepEqual([answer.status, (await answer.json()).error.code], [404, "UNKNOWN_ARTIFACT"], name);
  }
});

test("other users have no access, whatever their user name looks like", async () => {
  const people = [
    { user: "carol", tenant: "default", there: "carol" },
    { user: "bob", tenant: "acme", there: "acme%%bob" },
    { user: "acme/bob", tenant: "default", there: "acme%2Fbob" },
    { user: "..", tenant: "default", there: "%2E%2E" },
  ];
  for (const thread of [fresh("thread"), `${fresh("thread")}/with a slash`]) {
    const unknown = await get(route("nothing"), ADA);
    const unknownText = await unknown.text();
    assert.equal(unknown.status, 404);
    for (const [index, person] of people.entries()) {
      const before = await get(route(thread), person);
      assert.deepEqual([before.status, await before.text()], [404, unknownText], `${person.user} ${thread}`);
      await say("artifact", thread, person);
      const list = await get(route(thread), person);
      assert.deepEqual(await list.json(), ["report.txt"], person.user);
      const mine = await get(route(thread, "/report.txt"), person);
      assert.equal(await mine.text(), "hello");
      for (const other of people.slice(index + 1)) {
        const foreign = await get(route(thread, "/report.txt"), other);
        assert.deepEqual([foreign.status, await foreign.text()], [404, unknownText], `${other.user} reads ${person.user}`);
      }
    }
  }
});

test("an agent of another upstream reports that it has no artifacts", async () => {
  const answer = await get("/agents/other/threads/x/artifacts");
  assert.deepEqual([answer.status, (await answer.json()).error.code], [404, "NO_ARTIFACTS"]);
});
