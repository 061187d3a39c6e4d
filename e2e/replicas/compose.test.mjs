// The three gateways of docs/scale.md: its files are parsed, and the same commands are started as processes.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { test } from "node:test";

import { parse } from "yaml";

import { freePort } from "../../examples/support/ports.mjs";
import { binary, folder, input, post, root, soon } from "../gateway/support.mjs";
import { get, last, postgres, until, Stream } from "./cluster.mjs";

/** The first code block of a kind in the section. */
function block(kind) {
  const page = fs.readFileSync(path.join(root, "docs", "scale.md"), "utf8").split("## Three gateways")[1].split("\n## ")[0];
  return page.match(new RegExp(`^\`\`\`${kind}\\n([\\s\\S]*?)^\`\`\``, "m"))[1];
}

test("the compose file of docs/scale.md: three gateways behind HAProxy", async (t) => {
  const compose = parse(block("yaml"), { merge: true });
  const { db, balancer, ...gateways } = compose.services;
  assert.deepEqual(Object.keys(gateways), ["gateway-1", "gateway-2", "gateway-3"]);
  assert.match(db.image, /^postgres:1[3-9]$/);
  const server = await postgres(t);
  const cwd = folder(t);
  fs.copyFileSync(binary, path.join(cwd, "agentwire"));
  fs.chmodSync(path.join(cwd, "agentwire"), 0o755);
  let haproxy = block("text");
  const running = [];
  t.after(() => running.forEach((child) => child.kill("SIGKILL")));
  const start = (command, args, env = {}) => {
    const child = spawn(command, args, { cwd, env: { ...process.env, ...env }, stdio: "ignore" });
    child.ended = new Promise((resolve) => child.on("exit", (code) => resolve(code)));
    running.push(child);
    return child;
  };
  const processes = {};
  for (const [name, { command, volumes, environment }] of Object.entries(gateways)) {
    // The volumes name the files beside the compose file.
    const files = Object.fromEntries(volumes.map((volume) => volume.split(":").slice(0, 2).reverse()));
    const port = await freePort();
    const config = `${name}.toml`;
    assert.equal(files["/srv/agentwire.toml"], "./agentwire.toml");
    fs.writeFileSync(path.join(cwd, config), block("toml").replace("0.0.0.0:7117", `127.0.0.1:${port}`));
    assert.match(environment.DATABASE_URL, /^postgres:\/\/gateway:\$\{DB_PASSWORD\}@db\/agentwire$/);
    const line = command.map((word) => (word === "/srv/agentwire.toml" ? config : files[word] ?? word));
    processes[name] = start(line[0], line.slice(1), { DATABASE_URL: server.address });
    haproxy = haproxy.replace(`${name}:7117`, `127.0.0.1:${port}`);
    await until(`${name} is ready`, async () => (await get(`http://127.0.0.1:${port}/readyz`).catch(() => ({}))).status === 200);
  }
  const port = await freePort();
  assert.ok(balancer.ports[0].endsWith(":8080"));
  fs.writeFileSync(path.join(cwd, "haproxy.cfg"), haproxy.replace("bind :8080", `bind 127.0.0.1:${port}`));
  start("haproxy", ["-db", "-f", "haproxy.cfg"]);
  const url = `http://127.0.0.1:${port}`;
  await until("the load balancer serves", async () => (await get(`${url}/livez`).catch(() => ({}))).status === 200);
  const talk = async (number) => {
    const stream = new Stream(await post(`${url}/`, { ...input(`t${number}`, `r${number}`, "hello"), protocolVersion: "1.0" }));
    assert.equal(stream.response.status, 200);
    await stream.rest();
    assert.equal(last(stream.seen).type, "RUN_FINISHED");
    // At the next gateway.
    const again = new Stream(await soon("a stream", fetch(`${url}/runs/r${number}/stream`)));
    assert.deepEqual(await again.rest(), stream.seen);
  };
  for (let number = 0; number < 3; number += 1) await talk(number);
  // A rolling upgrade: one leaves after the other, and the others serve.
  processes["gateway-1"].kill("SIGTERM");
  assert.equal(await soon("the end of the gateway", processes["gateway-1"].ended), 0);
  for (let number = 3; number < 6; number += 1) await talk(number);
});
