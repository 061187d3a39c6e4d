// A group of processes: started one after the other, stopped together by their ids.

import { spawn } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import os from "node:os";
import path from "node:path";

import { freePort, probe } from "./ports.mjs";

/** Timeout for the start: Python servers take seconds to import, and longer on a busy machine. */
const START_LIMIT_MS = 300_000;
/** Timeout for a graceful exit. */
const END_LIMIT_MS = 10_000;
/** Number of characters of a failed process's output that are shown. */
const TAIL = 4000;

const root = path.resolve(import.meta.dirname, "../..");
const sleep = (ms) => new Promise((wake) => setTimeout(wake, ms));

/** The gateway's program: `AGENTWIRE`, else the one built by cargo here, else the installed one. */
export function agentwire() {
  const built = ["release", "debug"].map((profile) => path.join(root, "target", profile, "agentwire"));
  return process.env.AGENTWIRE ?? built.find((file) => fs.existsSync(file)) ?? "agentwire";
}

/** The requested port, or a free one for 0. */
export async function port(wanted) {
  if (Number(wanted) === 0) return freePort();
  return probe(Number(wanted)).catch(() => {
    throw new Error(`port ${wanted} is taken; choose another`);
  });
}

/** A group of processes and a folder for their files. */
export class Group {
  #children = [];
  folder = fs.mkdtempSync(path.join(os.tmpdir(), "agentwire-example-"));

  /** Starts a program and waits until `url` responds. */
  async start(program, args, { url, cwd = this.folder, env = {} }) {
    const child = spawn(program, args, { cwd, env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"] });
    let output = "";
    const keep = (bytes) => (output = (output + bytes).slice(-TAIL));
    child.stdout.on("data", keep);
    child.stderr.on("data", keep);
    let failure = null;
    child.on("error", (error) => (failure = error));
    const ended = new Promise((resolve) => child.on("close", resolve));
    this.#children.unshift({ child, ended });
    for (const begun = Date.now(); ; await sleep(100)) {
      if (failure) throw new Error(`\`${program}\` could not be started: ${failure.message}`);
      if (child.exitCode !== null || Date.now() - begun > START_LIMIT_MS) {
        throw new Error(`\`${program} ${args.join(" ")}\` did not come up:\n${output}`);
      }
      if (await fetch(url).then((answer) => answer.ok, () => false)) return child;
    }
  }

  /** Serves a folder of files. */
  async serve(folder, at) {
    const types = { ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8" };
    const server = http.createServer((request, response) => {
      const name = path.basename(new URL(request.url, "http://page").pathname) || "index.html";
      fs.readFile(path.join(folder, name), (error, bytes) => {
        response.writeHead(error ? 404 : 200, { "content-type": types[path.extname(name)] ?? "text/plain" });
        response.end(error ? "not found\n" : bytes);
      });
    });
    await new Promise((resolve, reject) => server.on("error", reject).listen(at, "127.0.0.1", resolve));
    this.#children.unshift({
      child: { kill: () => (server.closeAllConnections(), server.close()) },
      ended: new Promise((resolve) => server.on("close", resolve)),
    });
    return `http://127.0.0.1:${server.address().port}`;
  }

  /** Stops all processes, the youngest first. */
  async stop() {
    for (const { child, ended } of this.#children.splice(0)) {
      child.kill("SIGTERM");
      const timer = setTimeout(() => child.kill("SIGKILL"), END_LIMIT_MS);
      await ended;
      clearTimeout(timer);
    }
    fs.rmSync(this.folder, { recursive: true, force: true });
  }
}

/** Runs an example until it is interrupted: `begin` starts it in a group and returns its URL. */
export async function main(begin) {
  const group = new Group();
  const end = (code) => group.stop().finally(() => process.exit(code));
  process.on("SIGINT", () => end(0)).on("SIGTERM", () => end(0));
  try {
    console.log(`open ${await begin(group)}   (Ctrl+C ends it)`);
  } catch (error) {
    console.error(`error: ${error.message}`);
    await end(1);
  }
}
