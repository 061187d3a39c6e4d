// Secrets of the configuration and of requests appear in no output: a canary in each place that takes one, many routes and
// failures, and a search in everything that the gateway says or writes besides its store. Files are for their owner.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import path from "node:path";
import { test } from "node:test";

import { binary, folder, soon } from "./support.mjs";

const canary = (place) => `CANARY-${place}-7f3a`;

const toml = (failing, admin) => `store = "sqlite:agentwire.db"
audit = { file = "audit.jsonl", key = { env = "AUDIT_KEY" } }
admin_listen = "${admin}"
[log]
level = "trace"
[[auth.jwt]]
name = "corp"
issuer = "https://id.example.com/"
audience = ["agentwire"]
secret = { env = "JWT_SECRET" }
algorithms = ["HS256"]
[auth.keys]
pepper = { file = "pepper" }
[auth.proxy]
peers = ["127.0.0.1"]
secret = { header = "x-proxy-secret", env = "PROXY_SECRET" }
user = "x-user-id"
roles = "x-roles"
[auth.ask]
url = "http://${canary("ask-user")}:${canary("ask-password")}@127.0.0.1:1/x?key=${canary("ask-query")}"
headers = ["x-session"]
[auth.roles]
all = ["*"]
[agents.down]
upstream = { kind = "ag-ui", url = "http://${canary("user")}:${canary("password")}@127.0.0.1:1/x?key=${canary("query")}", headers = { authorization = "Bearer ${canary("header")}", x-other = { env = "HEADER" } } }
feedback_url = "http://${canary("fb-user")}:${canary("fb-password")}@127.0.0.1:1/?key=${canary("fb-query")}"
[agents.secure]
upstream = { kind = "ag-ui", url = "https://${canary("user")}:${canary("password")}@127.0.0.1:1/x?key=${canary("query")}" }
[agents.refusing]
upstream = { kind = "ag-ui", url = "${failing}/401?key=${canary("query")}", headers = { authorization = "Bearer ${canary("header")}" } }
[agents.broken]
upstream = { kind = "events", url = "${failing}/cut?key=${canary("query")}" }
[agents.graph]
upstream = { kind = "langgraph", url = "${failing}/401?key=${canary("query")}", graph = "g", headers = { x-api-key = "${canary("header")}" } }
[agents.model]
upstream = { kind = "openai", url = "${failing}/401?key=${canary("query")}", model = "m", api_key_env = "API_KEY" }
[agents.program]
upstream = { kind = "exec", command = ["false", "--token", "${canary("argument")}"], env = ["TOKEN"] }
[agents.missing]
upstream = { kind = "exec", command = ["no-such-program", "${canary("argument")}"], env = ["TOKEN"] }
[agents.shell]
upstream = { kind = "exec", command = "TOKEN=${canary("shell")} false ${canary("shell")}" }
`;

const environment = { AUDIT_KEY: canary("audit-key"), JWT_SECRET: canary("jwt-secret-of-at-least-32-bytes"), PROXY_SECRET: canary("proxy-secret"), HEADER: canary("header-env"), API_KEY: canary("api-key"), TOKEN: canary("environment") };
const env = { ...process.env, ...environment, RUST_LOG: "trace" };

/** A server that refuses, or cuts the connection within an answer. */
async function failing(t) {
  const server = http.createServer((request, response) => {
    if (request.url.startsWith("/401")) return response.writeHead(401).end("no");
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write("data: {\"type\":\"RUN_STARTED\",\"threadId\":\"t\",\"runId\":\"r\"}\n\n", () => request.socket.destroy());
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => (server.closeAllConnections(), server.close()));
  return `http://127.0.0.1:${server.address().port}`;
}

/** An address that nobody listens on. */
async function freeAddress() {
  const server = http.createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return `127.0.0.1:${port}`;
}

/** Every route of the table, with the requests of all protocols in one: a new route is covered when it is there. */
async function everyRoute(address, admin, key, agents, format, outputs) {
  const authorization = `Bearer ${key}`;
  const document = await soon("the routes", (await fetch(`http://${admin}/openapi.json`)).json());
  let asked = 0;
  for (const [route, methods] of Object.entries(document.paths)) {
    if (route.startsWith("/console")) continue;
    const own = agents.find((agent) => route.startsWith(`/agents/${agent}`) || route.startsWith(`/copilotkit/agent/${agent}`));
    for (const method of Object.keys(methods).filter((method) => method !== "delete")) {
      for (const agent of own ? [own] : agents) {
        for (const call of method === "post" && !own ? ["agent/run", "run.start"] : ["agent/run"]) {
          asked++;
          const thread = `all-${agent}-${format}`;
          const at = route.replace("{id}", thread).replace("{run}", `run-${asked}`).replace("{agent}", agent).replace(/\{\*?name\}/, "x");
          const message = { id: "m", role: "user", content: "hi" };
          const input = { threadId: thread, runId: `run-${asked}`, messages: [message], tools: [], context: [], state: {}, forwardedProps: {} };
          const graph = { assistant_id: agent, input: { messages: [{ type: "human", content: "hi" }] }, if_not_exists: "create" };
          const params = { agentId: agent, threadId: thread, ...graph };
          const body = method === "patch" ? [] : { ...input, ...graph, id: call === "run.start" ? 1 : thread, method: call, params, body: input, run: "x", rating: "up" };
          try {
            const response = await fetch(`${address}${at}`, {
              method: method.toUpperCase(),
              headers: { authorization, ...(method === "get" ? {} : { "content-type": "application/json" }) },
              body: method === "get" ? undefined : JSON.stringify(body),
              signal: AbortSignal.timeout(20_000),
            });
            outputs.push([`${format} ${method} ${at}`, `${response.status} ${JSON.stringify([...response.headers])} ${await response.text()}`]);
          } catch (error) {
            // A stream that goes on, or that is cut.
            outputs.push([`${format} ${method} ${at}`, String(error)]);
          }
        }
      }
    }
  }
  assert.ok(asked > 300, `${asked} requests`);
}

const found = (text) => [...new Set(text.match(/CANARY-[\w-]+/g) ?? [])];

test("no secret reaches a log, an error, a probe, a metric, a response or the audit log", async (t) => {
  const cwd = folder(t);
  const admin = await freeAddress();
  fs.writeFileSync(path.join(cwd, "agentwire.toml"), toml(await failing(t), admin));
  fs.writeFileSync(path.join(cwd, "pepper"), canary("pepper"));
  const outputs = [];
  const checked = spawnSync(binary, ["config", "check", "agentwire.toml"], { cwd, env, encoding: "utf8" });
  assert.equal(checked.status, 0, checked.stderr);
  outputs.push(["config check", checked.stdout + checked.stderr]);
  const made = spawnSync(binary, ["keys", "create", "--tenant", "acme", "--user", "ada", "--scope", "*"], { cwd, env, encoding: "utf8" });
  assert.equal(made.status, 0, made.stderr);
  const key = made.stdout.trim();

  for (const format of ["text", "json"]) {
    const child = spawn(binary, ["serve", "--config", "agentwire.toml", "--listen", "127.0.0.1:0", "--log", "trace", "--log-format", format], { cwd, env, stdio: ["ignore", "pipe", "pipe"] });
    t.after(() => child.kill("SIGKILL"));
    let said = "";
    for (const pipe of [child.stdout, child.stderr]) pipe.on("data", (bytes) => (said += bytes));
    const ended = new Promise((resolve) => child.on("close", resolve));
    const address = await soon("the address", (async () => {
      for (;;) {
        const match = said.match(/listening\s+\S*?http:\/\/([\d.]+:\d+)\s|"address":"([^"]+)"/);
        if (match) return `http://${match[1] ?? match[2]}`;
        await new Promise((wake) => setTimeout(wake, 20));
      }
    })());
    const ask = async (method, at, headers = {}, body) => {
      const response = await soon(`${method} ${at}`, fetch(`${address}${at}`, { method, headers: { ...(body ? { "content-type": "application/json" } : {}), ...headers }, body: body && JSON.stringify(body) }));
      outputs.push([`${format} ${method} ${at}`, `${response.status} ${JSON.stringify([...response.headers])} ${await soon("a body", response.text())}`]);
      return response.status;
    };
    const agents = ["down", "secure", "refusing", "broken", "graph", "model", "program", "missing", "shell"];
    for (const agent of agents) {
      const run = `${agent}-${format}`;
      const input = { threadId: run, runId: run, messages: [{ id: "m", role: "user", content: "hi" }], tools: [], context: [], state: {}, forwardedProps: {} };
      await ask("POST", `/agents/${agent}/`, { authorization: `Bearer ${key}` }, input);
      await ask("GET", `/agents/${agent}/message_snapshot/nothing`, { authorization: `Bearer ${key}` });
      await ask("POST", `/agents/${agent}/feedback`, { authorization: `Bearer ${key}` }, { threadId: run, rating: "up" });
      await ask("DELETE", `/agents/${agent}/thread/${run}`, { authorization: `Bearer ${key}` });
    }
    await everyRoute(address, admin, key, agents, format, outputs);
    for (const at of ["/agents", "/threads", "/openapi.json", "/metrics", "/readyz", "/livez", "/nothing", "/approvals"]) await ask("GET", at, { authorization: `Bearer ${key}` });
    // Credentials that are refused.
    for (const headers of [
      { authorization: `Bearer ${canary("token")}` },
      { authorization: `Basic ${canary("basic")}` },
      { "x-session": canary("session") },
      { "x-user-id": "ada", "x-proxy-secret": canary("guess"), "x-roles": "all" },
      { "x-user-id": "ada", "x-roles": "all", "x-proxy-secret": environment.PROXY_SECRET, authorization: `Bearer ${canary("token")}` },
      { cookie: `a=${canary("cookie")}` },
    ]) await ask("GET", "/threads", headers);
    assert.equal(await ask("GET", `/runs/x/stream?ticket=${canary("ticket")}`), 401);
    assert.equal(await ask("GET", "/threads", { "x-user-id": "ada", "x-roles": "all", "x-proxy-secret": environment.PROXY_SECRET }), 200);
    // Files while it runs.
    for (const name of fs.readdirSync(cwd).filter((name) => /^(agentwire\.db|audit\.jsonl)/.test(name))) {
      assert.equal(fs.statSync(path.join(cwd, name)).mode & 0o777, 0o600, name);
    }
    assert.ok(fs.existsSync(path.join(cwd, "agentwire.db-wal")), "the log of SQLite was looked at");
    child.kill("SIGTERM");
    await soon("the end", ended);
    outputs.push([`log ${format}`, said]);
  }
  outputs.push(["audit log", fs.readFileSync(path.join(cwd, "audit.jsonl"), "utf8") + fs.readFileSync(path.join(cwd, "audit.jsonl.head"), "utf8")]);
  const secret = key.split("_")[2];
  for (const [name, text] of outputs) {
    assert.deepEqual(found(text), [], `${name}: ${text.split("\n").find((line) => line.includes("CANARY"))}`);
    assert.ok(!text.includes(secret), `${name} has the API key`);
  }
  const verified = spawnSync(binary, ["audit", "verify", "--config", "agentwire.toml"], { cwd, env, encoding: "utf8" });
  assert.equal(verified.status, 0, verified.stderr);
  assert.match(verified.stdout, /verified with the key/);
  const backup = spawnSync(binary, ["store", "backup", "copy.db", "--config", "agentwire.toml"], { cwd, env, encoding: "utf8" });
  assert.equal(backup.status, 0, backup.stderr);
  assert.equal(fs.statSync(path.join(cwd, "copy.db")).mode & 0o777, 0o600);
});

test("no error about the configuration shows a secret", async (t) => {
  const cwd = folder(t);
  const lines = [
    `[agents.a]\nupstream = { kind = "ag-ui", url = "htp://${canary("a")}:${canary("b")}@host/?k=${canary("c")}" }`,
    `[agents.a]\nupstream = { kind = "ag-ui", url = "http://${canary("a")}:${canary("b")}@ho st/?k=${canary("c")}" }`,
    `[agents.a]\nupstream = { kind = "ag-ui", uri = "http://${canary("a")}@host/?k=${canary("c")}" }`,
    `[agents.a]\nupstream = { kind = "ag-ui", url = "http://host/", headers = { "b d" = "${canary("a")}", x = "${canary("b")}\\n" } }`,
    `[agents.a.upstream]\nkind = "ag-ui"\nurl = "http://host/"\n[agents.a.upstream.headers]\nx-key = "${canary("a")}\\n"`,
    `[agents.a]\nupstream = { kind = "exec", command = ["", "${canary("a")}"] }`,
    `[agents.a]\nupstream = { kind = "exec", command = "x", env = { "A=B" = "${canary("a")}" } }`,
    `[agents.a]\nupstream = { kind = "openai", url = "http://h/", model = "m", api_key = "${canary("a")}" }`,
    `[auth.keys]\npepper = "${canary("a")}"`,
    `audit = { file = "a", key = "${canary("a")}" }`,
    `store = "postgres://u:${canary("a")}@127.0.0.1:1/db?password=${canary("b")}&nonsense=1"`,
    `store = "postgress://u:${canary("a")}@127.0.0.1:1/db"`,
    `[agents.a]\nupstream = { kind = "ag-ui", url = "http://host/", headers = { x = "${canary("a")} }`,
  ];
  for (const text of lines) {
    fs.writeFileSync(path.join(cwd, "agentwire.toml"), text);
    for (const args of [["config", "check", "agentwire.toml"], ["serve", "--config", "agentwire.toml", "--listen", "127.0.0.1:0"]]) {
      const done = spawnSync(binary, args, { cwd, env, encoding: "utf8", timeout: 60_000 });
      assert.deepEqual(found(done.stdout + done.stderr), [], `${args[0]} of\n${text}\n${done.stderr}`);
      if (args[0] === "serve") assert.notEqual(done.status, 0, text);
    }
  }
});
