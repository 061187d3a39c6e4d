// The running gateway: certificates that are replaced by SIGHUP under load (T11), keys that are revoked, and doors that stay
// closed.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import fs from "node:fs";
import https from "node:https";
import path from "node:path";
import { test } from "node:test";

import { agent, binary, certificate, folder, soon } from "./support.mjs";

/** `agentwire serve` in a folder with a configuration; returns the process and its address. */
async function serve(t, cwd, env = {}) {
  const args = ["serve", "--config", "agentwire.toml", "--listen", "127.0.0.1:0", "--log", "info"];
  const child = spawn(binary, args, { cwd, env: { ...process.env, ...env }, stdio: ["ignore", "ignore", "pipe"] });
  t.after(() => child.kill("SIGKILL"));
  let said = "";
  child.stderr.setEncoding("utf8").on("data", (text) => (said += text));
  const url = await soon("the address", until(() => said.match(/listening\s+\S*?(https?:\/\/[\d.]+:\d+)\s/)?.[1]));
  return { child, url, said: () => said };
}

async function until(ready) {
  for (;;) {
    const found = await ready();
    if (found) return found;
    await new Promise((wake) => setTimeout(wake, 20));
  }
}

test("t11 certificates are replaced by SIGHUP under load, and bad ones are not used", async (t) => {
  const cwd = folder(t);
  const [first, second] = [certificate(t), certificate(t)];
  const write = (pair) => {
    for (const kind of ["key", "cert"]) fs.writeFileSync(path.join(cwd, `${kind}.pem`), pair[kind]);
  };
  const pair = (made) => ({ key: fs.readFileSync(made.key), cert: fs.readFileSync(made.cert) });
  write(pair(first));
  fs.writeFileSync(path.join(cwd, "agentwire.toml"), 'store = "memory:"\ntls = { cert = "cert.pem", key = "key.pem" }\n');
  const { child, url, said } = await serve(t, cwd);
  const port = Number(new URL(url).port);
  const get = (ca) =>
    new Promise((resolve) => {
      const request = https.get({ host: "127.0.0.1", servername: "localhost", port, path: "/livez", ca, agent: false }, (response) => {
        response.resume().on("end", () => resolve(response.statusCode));
      });
      request.on("error", (error) => resolve(error.code ?? String(error)));
    });
  let isLoading = true;
  const answers = [];
  const load = Promise.all(Array.from({ length: 3 }, async () => {
    while (isLoading) answers.push(await get([first.pem, second.pem]));
  }));
  assert.equal(await get(first.pem), 200);
  assert.notEqual(await get(second.pem), 200);
  // A key that belongs to another certificate, and no certificate at all.
  for (const bad of [{ ...pair(second), key: pair(first).key }, { key: "", cert: "" }, { key: "nonsense", cert: "nonsense" }]) {
    const before = said().length;
    write(bad);
    child.kill("SIGHUP");
    await soon("the refusal", until(() => /error|not used|cannot|ERROR/i.test(said().slice(before))));
    assert.equal(await soon("the old certificate", get(first.pem)), 200);
  }
  write(pair(second));
  child.kill("SIGHUP");
  await soon("the new certificate", until(async () => (await get(second.pem)) === 200));
  assert.notEqual(await get(first.pem), 200);
  isLoading = false;
  await soon("the load", load);
  assert.ok(answers.length > 0);
  assert.deepEqual(answers.filter((status) => status !== 200), [], "no request failed meanwhile");
});

test("a revoked key is refused by two gateways of one store, and its readers are cut", async (t) => {
  const cwd = folder(t);
  const upstream = await agent(t);
  fs.writeFileSync(path.join(cwd, "pepper"), "a pepper of the test\n");
  fs.writeFileSync(path.join(cwd, "agentwire.toml"), `store = "sqlite:shared.db"\n[auth.keys]\npepper = { file = "pepper" }\n[agents.a]\nupstream = { kind = "ag-ui", url = "${upstream.url}" }\n`);
  const keys = (...args) => {
    const done = spawnSync(binary, ["keys", ...args], { cwd, encoding: "utf8" });
    assert.equal(done.status, 0, done.stderr);
    return done.stdout.trim();
  };
  const [one, two] = [await serve(t, cwd), await serve(t, cwd)];
  const make = () => keys("create", "--tenant", "acme", "--user", "ada", "--scope", "agents:*:*");
  const [key, kept] = [make(), make()];
  const ask = (url, at, secret = key) => soon(at, fetch(`${url}${at}`, { headers: { authorization: `Bearer ${secret}` } }));
  for (const { url } of [one, two]) await soon("the key", until(async () => (await ask(url, "/threads")).status === 200));
  upstream.holds = true;
  const started = await fetch(one.url, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({ threadId: "t", runId: "r", messages: [{ id: "m", role: "user", content: "hi" }], tools: [], context: [], state: {}, forwardedProps: {} }),
  });
  const other = await ask(two.url, "/runs/r/stream");
  const others = await ask(two.url, "/runs/r/stream", kept);
  assert.deepEqual([started.status, other.status, others.status], [200, 200, 200]);
  keys("revoke", key.split("_")[1]);
  for (const { url } of [one, two]) await soon("the refusal", until(async () => (await ask(url, "/threads")).status === 401));
  // The streams are cut without an ending; the run goes on for the other key.
  for (const response of [started, other]) {
    const text = await soon("the cut", response.text().catch((error) => String(error)));
    assert.ok(!text.includes("RUN_FINISHED") && !text.includes("RUN_ERROR"), text);
  }
  upstream.release();
  assert.match(await soon("the end of the run", others.text()), /RUN_FINISHED/);
});

test("config check refuses each open door", async (t) => {
  const cwd = folder(t);
  fs.writeFileSync(path.join(cwd, "pepper"), "p\n");
  const auth = '[auth.keys]\npepper = { file = "pepper" }\n';
  const closed = { listen: 'listen = "0.0.0.0:8443"', hosts: 'hosts = ["a.example"]', tls: 'tls = "proxy"', auth };
  const text = (parts) => [parts.listen, parts.hosts, parts.tls, parts.more, parts.auth].filter(Boolean).join("\n");
  const check = (parts) => {
    fs.writeFileSync(path.join(cwd, "agentwire.toml"), text(parts));
    const done = spawnSync(binary, ["config", "check", "agentwire.toml"], { cwd, encoding: "utf8" });
    return [done.status, done.stderr];
  };
  const header = '[identity]\nuser_header = "x-user"\n';
  for (const [name, parts, said] of [
    ["no authentication", { ...closed, auth: "" }, /nobody has to show/],
    ["anonymous mode", { ...closed, auth: `[auth]\nmode = "anonymous"\n` }, /nobody has to show/],
    ["a header of anybody", { ...closed, auth: header }, /header that anybody/],
    ["a header beside credentials", { ...closed, auth: auth + header }, /nobody vouches for/],
    ["no hosts", { ...closed, hosts: "" }, /any host name/],
    ["no encryption", { ...closed, tls: "" }, /not encrypted/],
    ["all interfaces of IPv6", { ...closed, listen: 'listen = "[::]:8443"', auth: "" }, /nobody has to show/],
    ["cookies from every origin", { ...closed, more: 'cors = { origins = ["*"], credentials = true }' }, /every origin/],
    ["the same on loopback", { more: 'cors = { origins = ["*"], credentials = true }' }, /every origin/],
    ["no audience", { ...closed, auth: '[[auth.jwt]]\nname = "a"\nissuer = "https://i/"\naudience = []\njwks = { url = "https://i/k" }\n' }, /audience/],
    ["a key set without encryption", { ...closed, auth: '[[auth.jwt]]\nname = "a"\nissuer = "https://i/"\naudience = ["a"]\njwks = { url = "http://i.example/k" }\n' }, /https/],
    ["a proxy without a secret", { ...closed, auth: '[auth.proxy]\npeers = ["10.0.0.0/8"]\nuser = "x-user"\n' }, /secret/],
    ["a role with an unknown scope", { ...closed, auth: `${auth}[auth.roles]\nx = ["agents:*:everything"]\n` }, /scope|everything/],
  ]) {
    const [status, stderr] = check(parts);
    assert.notEqual(status, 0, name);
    assert.match(stderr, said, name);
  }
  assert.equal(check(closed)[0], 0, check(closed)[1]);
  assert.equal(check({})[0], 0, "loopback needs nothing");
  const [status, stderr] = check({ ...closed, auth: "", more: "insecure = true" });
  assert.equal(status, 0);
  assert.match(stderr, /waives/);
});
