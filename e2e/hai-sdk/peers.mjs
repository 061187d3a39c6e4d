// The peers of this suite: the client package, gateways, the Python agent, and a proxy that cuts connections.

import { spawn } from "node:child_process";
import fs from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { pathToFileURL, fileURLToPath } from "node:url";

import { freePort } from "../../examples/support/ports.mjs";
import { bundleKit, root } from "./kit.mjs";

export { quiet, sdk } from "./kit.mjs";

const here = path.dirname(fileURLToPath(import.meta.url));
const target = process.env.AGENTWIRE_TARGET ?? path.resolve(root, process.env.CARGO_TARGET_DIR ?? "target");
const binary = path.resolve(process.env.AGENTWIRE ?? path.join(target, "debug", "agentwire"));

/** Timeout for any wait; generous, for busy machines. */
const LIMIT_MS = 180_000;

/** Waits for a condition. */
export async function until(holds) {
  for (const begun = Date.now(); !(await holds()); ) {
    if (Date.now() - begun > LIMIT_MS) throw new Error(`it did not happen: ${holds}`);
    await new Promise((wake) => setTimeout(wake, 5));
  }
}

/** The package in one file, made of its source. */
export async function loadKit() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "agentwire-hai-kit-"));
  process.on("exit", () => fs.rmSync(folder, { recursive: true, force: true }));
  const file = path.join(folder, "index.mjs");
  bundleKit(file);
  return import(pathToFileURL(file));
}

export function temporary(t) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "agentwire-hai-sdk-"));
  t.after(() => fs.rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A gateway, with the demo agent unless `args` name another; returns its address. */
export async function gateway(t, args = []) {
  const serve = ["serve", ...args, "--listen", "127.0.0.1:0", "--store", "memory:", "--log-format", "json"];
  const child = spawn(binary, serve, { cwd: temporary(t), stdio: ["ignore", "ignore", "pipe"] });
  t.after(() => child.kill("SIGKILL"));
  let log = "";
  return new Promise((resolve, reject) => {
    child.on("exit", () => reject(new Error(`the gateway ended:\n${log}`)));
    child.stderr.on("data", (bytes) => {
      log += bytes;
      const address = log.match(/"address":"([^"]+)"/);
      if (address) resolve(`http://${address[1]}`);
    });
  });
}

/** The agent of agent.py; `ended` resolves with its process. */
export async function agent(t, witness) {
  const port = await freePort();
  const python = path.join(target, "venv", "hai-sdk", "bin", "python");
  const args = ["-m", "uvicorn", "agent:app", "--host", "127.0.0.1", "--port", String(port), "--log-level", "warning"];
  const env = { ...process.env, WITNESS: witness, PYTHONPATH: path.join(root, "sdk", "python", "src"), PYTHONDONTWRITEBYTECODE: "1" };
  const child = spawn(python, args, { cwd: here, env, stdio: ["ignore", "pipe", "pipe"] });
  let log = "";
  child.stdout.on("data", (bytes) => (log += bytes));
  child.stderr.on("data", (bytes) => (log += bytes));
  child.on("error", (error) => (log += error.message));
  const ended = new Promise((resolve) => child.on("close", resolve));
  t.after(() => child.kill("SIGKILL"));
  const url = `http://127.0.0.1:${port}`;
  await until(async () => {
    if (child.exitCode !== null || child.pid === undefined) throw new Error(`the agent ended:\n${log}`);
    return fetch(`${url}/openapi.json`).then(({ ok }) => ok, () => false);
  });
  return { url, ended };
}

/** A proxy that cuts its connections: `budget()` is the number of bytes that the next one may receive. */
export async function cutter(t, target, budget) {
  const { hostname, port } = new URL(target);
  const server = net.createServer((client) => {
    let left = budget();
    const upstream = net.connect(Number(port), hostname);
    client.pipe(upstream);
    upstream.on("data", (bytes) => {
      client.write(bytes.subarray(0, left), () => {
        if (left <= 0) client.destroy();
      });
      left -= bytes.length;
    });
    upstream.on("close", () => client.end());
    for (const socket of [client, upstream]) socket.on("error", () => {});
    client.on("close", () => upstream.destroy());
  });
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  t.after(() => server.close());
  return `http://127.0.0.1:${server.address().port}`;
}

/** The documents of all messages of the agent. */
export const documents = (kit, agent) =>
  agent.messages.filter(({ role }) => role === "assistant").flatMap(({ content }) => kit.parseContents(content));

/** The text and the thinking of all messages of the agent. */
export const textOf = (kit, agent) => documents(kit, agent).map(({ output }) => output.content ?? output.data?.content ?? "").join("");
