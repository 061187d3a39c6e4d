// The binary, a Chromium without a screen, and agents that a test controls.

import { execFileSync, spawn } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import { createRequire } from "node:module";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

export { holds } from "../support/pages.mjs";

export const here = path.dirname(fileURLToPath(import.meta.url));
export const root = process.env.AGENTWIRE_ROOT ?? path.resolve(here, "../..");
const target = process.env.AGENTWIRE_TARGET ?? path.resolve(root, process.env.CARGO_TARGET_DIR ?? "target");
export const binary = path.resolve(process.env.AGENTWIRE ?? path.join(target, "debug", "agentwire"));

const axe = fs.readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** The limit of any wait; generous, for busy machines. */
export const PATIENCE_MS = 180_000;

const FLAGS = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];

export function folder(t) {
  const made = fs.mkdtempSync(path.join(os.tmpdir(), "agentwire-console-"));
  t.after(() => fs.rmSync(made, { recursive: true, force: true }));
  return made;
}

/** Starts a command and resolves with the first match in its output. */
async function start(t, args, cwd, from, pattern) {
  const child = spawn(binary, args, { cwd, stdio: ["ignore", "pipe", "pipe"] });
  t.after(() => child.kill("SIGKILL"));
  const ended = new Promise((resolve) => child.on("close", (code, signal) => resolve({ code, signal })));
  let said = "";
  let out = "";
  const url = await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`timed out: ${said}`)), PATIENCE_MS);
    const note = (name) => (text) => {
      said += text;
      if (name === "stdout") out += text;
      const found = (name === from ? (from === "stdout" ? out : said) : "").match(pattern);
      if (found) resolve((clearTimeout(timer), found[1]));
    };
    child.stdout.setEncoding("utf8").on("data", note("stdout"));
    child.stderr.setEncoding("utf8").on("data", note("stderr"));
    ended.then(({ code }) => (clearTimeout(timer), reject(new Error(`ended with ${code}: ${said}`))));
  });
  return { url, child, ended, out: () => out };
}

/** `agentwire serve` on a free port. */
export function serve(t, args = [], cwd = folder(t)) {
  const store = args.includes("--config") ? [] : ["--store", "memory:"];
  return start(t, ["serve", "--listen", "127.0.0.1:0", "--log", "warn", ...store, ...args], cwd, "stderr", /listening\s+\S*?(http:\/\/[\d.]+:\d+)\s/);
}

/** Runs a command to its end; its output. */
export function command(cwd, ...args) {
  return execFileSync(binary, args, { cwd, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] }).trim();
}

/** Serious findings of axe-core. Run by the debugger's protocol, which the policy of the page does not bind. */
export async function findings(page) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  return violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, nodes }) => `${id}: ${nodes.map((node) => `${node.target} ${node.failureSummary}`).slice(0, 3).join(" | ")}`);
}

/** `agentwire view`. */
export function view(t, ...files) {
  return start(t, ["view", ...files], folder(t), "stdout", /^(http:\S+)\n/);
}

/** A page of a browser of its own; errors of scripts and of the policy fail the test. */
export async function browser(t) {
  const launched = await chromium.launch({ executablePath: "/usr/bin/chromium", args: FLAGS });
  t.after(() => launched.close());
  return {
    async page(options = {}) {
      const context = await launched.newContext({ viewport: { width: 1280, height: 800 }, ...options });
      const page = await context.newPage();
      page.setDefaultTimeout(PATIENCE_MS);
      page.problems = [];
      page.foreign = [];
      page.on("pageerror", (error) => page.problems.push(String(error)));
      page.on("console", (message) => {
        // A refused request is part of some tests; a refused script or style never is.
        if (message.type() === "error" && !/Failed to load resource/.test(message.text())) page.problems.push(message.text());
      });
      page.on("request", (request) => {
        const { protocol, hostname } = new URL(request.url());
        if (/^https?:$/.test(protocol) && hostname !== "127.0.0.1") page.foreign.push(request.url());
      });
      return page;
    },
  };
}

/** Sends a message by the keyboard. */
export async function say(page, text) {
  await page.fill("#composer-text", text);
  await page.press("#composer-text", "Enter");
}

/** Waits for the end of the run. */
export const ended = (page) => page.waitForSelector(".run-footer");

/** Opens the console and waits until a message can be written. */
export async function open(page, url) {
  await page.goto(`${url}/`);
  await page.waitForSelector("#composer-text");
}

/** An AG-UI agent: `answer(send, input, response)` writes its events. */
export async function agent(t, answer) {
  const server = http.createServer((request, response) => {
    let body = "";
    request.setEncoding("utf8").on("data", (part) => (body += part));
    request.on("end", () => {
      const input = JSON.parse(body);
      response.on("error", () => {});
      response.writeHead(200, { "content-type": "text/event-stream" });
      const send = (event) => response.write(`data: ${JSON.stringify(event)}\n\n`);
      answer(send, input, response);
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${server.address().port}/`;
}

/** A gate that a test opens. */
export function gate() {
  let open;
  const opened = new Promise((resolve, reject) => {
    open = resolve;
    setTimeout(() => reject(new Error("timed out: a gate was not opened")), PATIENCE_MS).unref();
  });
  // Of a gate for which nobody waits.
  opened.catch(() => {});
  return { open, opened };
}

/** An AG-UI agent that opens `half` after the first half of its text, and says the rest once `rest` is open. */
export async function agentInHalves(t) {
  const [half, rest] = [gate(), gate()];
  const upstream = await agent(t, async (send, { threadId, runId }, response) => {
    send({ type: "RUN_STARTED", threadId, runId });
    send({ type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" });
    send({ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "one half, " });
    half.open();
    await rest.opened;
    send({ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "and the other" });
    send({ type: "TEXT_MESSAGE_END", messageId: "m" });
    send({ type: "RUN_FINISHED", threadId, runId });
    response.end();
  });
  return { upstream, half, rest };
}

/**
 * Records the tasks of the page's main thread. The result has the longest one by its processor time, which a busy machine
 * does not lengthen, and by the clock.
 */
export async function recordTasks(page) {
  const session = await page.context().newCDPSession(page);
  const events = [];
  session.on("Tracing.dataCollected", ({ value }) => events.push(...value));
  await session.send("Tracing.start", { transferMode: "ReportEvents", traceConfig: { includedCategories: ["toplevel"] } });
  return async () => {
    const complete = new Promise((resolve) => session.once("Tracing.tracingComplete", resolve));
    await session.send("Tracing.end");
    await complete;
    const main = new Set(events.filter(({ name, args }) => name === "thread_name" && args.name === "CrRendererMain").map(({ pid, tid }) => `${pid}:${tid}`));
    const tasks = events.filter(({ name, pid, tid, tdur }) => /RunTask$/.test(name) && main.has(`${pid}:${tid}`) && tdur !== undefined);
    const longest = (key) => Math.max(0, ...tasks.map((task) => task[key])) / 1000;
    return { count: tasks.length, cpuMs: longest("tdur"), wallMs: longest("dur") };
  };
}

/** Waits for a condition in the page. */
export const until = (page, work, argument) => page.waitForFunction(work, argument, { timeout: PATIENCE_MS });
