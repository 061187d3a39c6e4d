// The package as users install it: packed, under the name `hai-client`, compiled into the standard's page and into one
// like the public demo's, in Node and in Chromium, over the gateway and over a server with the demo's stream.

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import { createRequire } from "node:module";
import os from "node:os";
import path from "node:path";
import { before, test } from "node:test";

import { inBrowser } from "../../examples/support/browser.mjs";
import { installKit, quiet, root, sdk } from "./kit.mjs";
import { cutter, gateway, temporary } from "./peers.mjs";

const here = import.meta.dirname;
const tsc = path.join(sdk, "node_modules", "typescript", "bin", "tsc");
const esbuild = path.join(sdk, "node_modules", ".bin", "esbuild");
const fixture = (name) => fs.readFileSync(path.join(root, "crates", "agentwire-core", "src", "format", "hai", "fixtures", name), "utf8");

let packed;
before(() => {
  packed = fs.mkdtempSync(path.join(os.tmpdir(), "agentwire-hai-packed-"));
  process.on("exit", () => fs.rmSync(packed, { recursive: true, force: true }));
  installKit(packed);
});

/** Installs the packed package. */
const install = (folder) => fs.cpSync(packed, path.join(folder, "node_modules"), { recursive: true });

/** A project with the package, the stubs, and one page at the place of the demo's. */
function project(folder, page) {
  install(folder);
  const stubs = { "@angular/core": "angular", "paletx/ai/plx-chat": "plx-chat", "paletx/ai/plx-content": "plx-chat", "paletx/ai/plx-frame-native/plx-frame-native.model": "plx-chat" };
  for (const [name, file] of Object.entries(stubs)) {
    const place = path.join(folder, "node_modules", name);
    fs.mkdirSync(place, { recursive: true });
    fs.copyFileSync(path.join(here, "pages", "stubs", `${file}.ts`), path.join(place, "index.ts"));
  }
  const source = path.join(folder, "src", "app");
  fs.mkdirSync(path.join(source, "page", "task"), { recursive: true });
  fs.mkdirSync(path.join(source, "shared", "util"), { recursive: true });
  fs.copyFileSync(path.join(here, "pages", "stubs", "rest-api.ts"), path.join(source, "shared", "util", "rest-api.ts"));
  fs.copyFileSync(page, path.join(source, "page", "task", "task.component.ts"));
  // The settings of the demo.
  const compilerOptions = { allowSyntheticDefaultImports: true, forceConsistentCasingInFileNames: true, noImplicitOverride: true, noImplicitReturns: true, noFallthroughCasesInSwitch: true, downlevelIteration: true, experimentalDecorators: true, moduleResolution: "node", target: "ES2022", module: "ES2022", lib: ["ES2022", "dom"], types: [], noEmit: true };
  fs.writeFileSync(path.join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["src/app/page/task/task.component.ts"] }));
  const { status, stdout } = spawnSync(process.execPath, [tsc, "-p", folder], quiet);
  assert.equal(status, 0, stdout);
  // Both forms of the package: a bundler takes the ES modules, `require` takes CommonJS.
  const built = path.join(folder, "built.cjs");
  execFileSync(esbuild, [path.join(source, "page", "task", "task.component.ts"), "--bundle", "--format=cjs", "--platform=node", `--tsconfig=${path.join(folder, "tsconfig.json")}`, `--outfile=${built}`, "--external:hai-client", "--external:fast-json-patch"], quiet);
  return { page: createRequire(built)(built), source: path.join(source, "page", "task", "task.component.ts") };
}

/** A server that answers every POST with a stream of the demo. */
async function demo(t, text) {
  const bodies = [];
  const server = http.createServer((request, response) => {
    let body = "";
    request.on("data", (bytes) => (body += bytes));
    request.on("end", () => {
      bodies.push(JSON.parse(body));
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.end(text);
    });
  });
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  t.after(() => server.close());
  return { url: `http://127.0.0.1:${server.address().port}/chat`, bodies };
}

const framesOf = (text) => text.split("\n\n").filter(Boolean).map((frame) => JSON.parse(frame.replace(/^data: ?/, "")));

test("old and new module resolution, ES modules and CommonJS, all documented paths, under 15 kB", (t) => {
  const folder = temporary(t);
  install(folder);
  const installed = path.join(folder, "node_modules", "hai-client");
  fs.writeFileSync(path.join(folder, "page.ts"), `
    import { AbstractAgent, AgentConfig, AgentStateMutation, AgentSubscriberParams, AssistantMessage, BaseEvent, BusinessDataContentEvent, Context, CustomEvent, DeveloperMessage, EventType, HaiError, HttpAgent, HttpAgentConfig, Message, MessageSnapshotEvent, RawEvent, RunAgentInput, RunAgentParameters, RunAgentResult, RunErrorEvent, RunFinishedEvent, RunStartedEvent, State, StateDeltaEvent, StateSnapshotEvent, StepFinishedEvent, StepStartedEvent, SystemMessage, Tool, ToolCall, ToolCallArgsEvent, ToolCallEndEvent, ToolCallResultEvent, ToolCallStartEvent, ToolMessage, UserMessage, AgentCollaborativeMessageContentEvent, AgentCollaborativeMessageEndEvent, AgentCollaborativeMessageStartEvent, BusinessDataEndEvent, BusinessDataStartEvent, mergeOutputs, parseContents, parseJsonString, parseSse, randomId, verifyEvents } from 'hai-client';
    import { AgentSubscriber, AgentStateMutation as Mutation, AgentSubscriberParams as Params, runSubscribersWithMutation } from 'hai-client/dist/client/agent/subscriber';
    import { HttpAgent as Same } from 'hai-client/dist/client/agent/http';
    import { AbstractAgent as Base } from 'hai-client/dist/client/agent/agent';
    import { HttpAgentConfig as Config } from 'hai-client/dist/client/agent/types';
    import { EventType as Types } from 'hai-client/dist/core/events';
    import { Message as Message2 } from 'hai-client/dist/core/types';
    export type All = [AgentConfig, AgentStateMutation, AgentSubscriberParams, BaseEvent, BusinessDataContentEvent, BusinessDataStartEvent, BusinessDataEndEvent, AgentCollaborativeMessageStartEvent, AgentCollaborativeMessageContentEvent, AgentCollaborativeMessageEndEvent, Context, CustomEvent, HttpAgentConfig, MessageSnapshotEvent, RawEvent, RunAgentInput, RunAgentParameters, RunAgentResult, RunErrorEvent, RunFinishedEvent, RunStartedEvent, State, StateDeltaEvent, StateSnapshotEvent, StepFinishedEvent, StepStartedEvent, ToolCallArgsEvent, ToolCallEndEvent, ToolCallResultEvent, ToolCallStartEvent, Mutation, Params, Config, Message2];
    export const values = [AbstractAgent, Base, Same, Types, EventType.RUN_STARTED, HaiError, mergeOutputs, parseContents, parseJsonString, parseSse, randomId, verifyEvents, runSubscribersWithMutation];
    const config: HttpAgentConfig = { url: "/awp", initialMessages: [], initialState: {}, threadId: "t", agentId: "a", description: "d", headers: {}, debug: false, fetch, binary: false, verify: "strict", reconnect: { retries: 5, minDelayMs: 500, maxDelayMs: 10000 }, timeouts: { connectMs: 1, idleMs: 1 }, credentials: "include" };
    class Own extends HttpAgent {
      protected override requestInit(input: RunAgentInput): RequestInit {
        return { ...super.requestInit(input), cache: "no-store" };
      }
    }
    export async function use(): Promise<string> {
      const agent = new Own(config);
      const five: Message[] = [{ id: "1", role: "user" } as UserMessage, { id: "2", role: "assistant", toolCalls: [] as ToolCall[] } as AssistantMessage, { id: "3", role: "system" } as SystemMessage, { id: "4", role: "tool", toolCallId: "c" } as ToolMessage, { id: "5", role: "developer" } as DeveloperMessage];
      agent.addMessage(five[0]);
      agent.addMessage({ id: "p", role: "user", content: [{ type: "text", text: "parts" }] });
      agent.addMessages(five);
      agent.setMessages(five);
      agent.setState({});
      agent.addToolResult("c", { ok: true });
      const tools: Tool[] = [{ name: "n", description: "d", parameters: {} }];
      const subscriber: AgentSubscriber = {
        onRunInitialized: async ({ messages, state, agent, input }) => ({ messages, state, stopPropagation: agent.threadId === input.threadId }),
        onRunFailed: ({ error }) => void [error.code, error.status, error.payload, error.cause, error.runId, error.threadId],
        onEvent: ({ event }) => void event.type,
        onRunFinishedEvent: ({ event, result, outcome }) => void [event, result, outcome],
        onBusinessDataContentEvent: ({ event, textMessageBuffer }) => { const text: string = textMessageBuffer + event['delta']; void text; },
        onToolCallArgsEvent: ({ event, toolCallBuffer, toolCallName, partialToolCallArgs }) => { const delta: string = event.delta + toolCallBuffer + toolCallName; void [delta, partialToolCallArgs]; },
        onToolCallEndEvent: ({ toolCallName, toolCallArgs, toolCallBuffer }) => void [toolCallName, toolCallArgs, toolCallBuffer],
        onStateDeltaEvent: ({ event }) => { const delta: any[] = event.delta; void delta; },
        onAgentCollaborativeMessageStartEvent: ({ event }) => { const to: string = event['to']; void to; },
        onStepStartedEvent: ({ event }) => { const name: string = event['stepName']; void name; },
        onNewMessage: ({ message }) => void message.id,
        onNewToolCall: ({ toolCall }) => void toolCall.function.name,
        onMessagesChanged: ({ input }) => void input?.runId,
        onReconnecting: ({ attempt, delayMs }) => void (attempt + delayMs),
        onReconnected: ({ recovery }) => void recovery,
        onSubscriberError: ({ error }) => void error,
      };
      const { unsubscribe } = agent.subscribe(subscriber);
      const { result, newMessages }: RunAgentResult = await agent.runAgent({ runId: "r", tools, context: [], forwardedProps: {}, resume: [], abortController: new AbortController() }, subscriber);
      await agent.reconnect(subscriber);
      await Promise.all([agent.status(), agent.pause(), agent.resume(), agent.stop(), agent.pending(), agent.history(), agent.feedback({ rating: "up", messageId: "m", toolCallId: "c", score: 1, tags: ["a"], comment: "c" })]);
      agent.abortRun();
      unsubscribe();
      const twin: HttpAgent = agent.clone();
      return [result, newMessages.length, twin.url, twin.headers, twin.agentId, twin.description, twin.threadId, twin.messages, twin.state, twin.debug, twin.subscribers, twin.isRunning, twin.lastRunId, twin.abortController].join();
    }
  `);
  for (const [module, resolution, lib] of [["es2020", "node", "es2020"], ["nodenext", "nodenext", "es2022"], ["esnext", "bundler", "es2022"]]) {
    const compilerOptions = { noEmit: true, strict: true, target: "es2020", lib: [lib, "dom", "dom.asynciterable"], esModuleInterop: true, types: [], module, moduleResolution: resolution };
    fs.writeFileSync(path.join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["page.ts"] }));
    const { status, stdout } = spawnSync(process.execPath, [tsc, "-p", folder], quiet);
    assert.equal(status, 0, `${resolution}: ${stdout}`);
  }
  // The files are real ones, for `moduleResolution: node` and for old bundlers.
  const names = ["index", "client/index", ...["agent", "http", "subscriber", "types", "index"].map((name) => `client/agent/${name}`), "client/verify/index", "client/apply/index", "core/events", "core/types", "core/index", "proto/index"];
  for (const name of names) for (const end of ["js", "mjs", "d.ts"]) assert.ok(fs.existsSync(path.join(installed, "dist", `${name}.${end}`)), `${name}.${end}`);
  const imports = ["hai-client", "hai-client/dist", "hai-client/package.json", ...names.flatMap((name) => [`hai-client/dist/${name}`, `hai-client/dist/${name}.js`]), ...["client", "client/agent", "client/verify", "client/apply", "core", "proto"].map((name) => `hai-client/dist/${name}`)];
  fs.writeFileSync(path.join(folder, "all.cjs"), imports.map((name) => `require(${JSON.stringify(name)});`).join("\n"));
  const modules = [...imports.filter((name) => !name.endsWith("package.json")), ...names.map((name) => `hai-client/dist/${name}.mjs`)];
  fs.writeFileSync(path.join(folder, "all.mjs"), modules.map((name) => `import ${JSON.stringify(name)};`).join("\n"));
  for (const name of ["all.cjs", "all.mjs"]) execFileSync(process.execPath, [name], { cwd: folder, ...quiet });
  const { dependencies, devDependencies } = JSON.parse(fs.readFileSync(path.join(installed, "package.json"), "utf8"));
  assert.deepEqual(Object.keys(dependencies), ["fast-json-patch"]);
  assert.ok(!("rxjs" in devDependencies || "zod" in devDependencies));
  // No built-in module of Node: the bundle for browsers has no import but the patches.
  const bundle = execFileSync(esbuild, [path.join(installed, "dist", "index.mjs"), "--bundle", "--minify", "--external:fast-json-patch", "--format=esm", "--platform=browser", "--target=es2020"], quiet);
  assert.deepEqual([...bundle.matchAll(/\bimport\s*[\w${},\s]*from"([^"]+)"/g)].map(([, name]) => name), ["fast-json-patch"]);
  const size = execFileSync("gzip", ["-9c"], { input: bundle }).length;
  assert.ok(size < 15_000, `${size} bytes`);
  t.diagnostic(`${size} bytes`);
});

test("the page of the standard, section 4.1, compiles and runs over a server and over the gateway", async (t) => {
  t.mock.method(console, "log", () => {});
  t.mock.method(console, "error", () => {});
  const { page } = project(temporary(t), path.join(here, "pages", "standard.component.ts"));
  const server = await demo(t, fixture("reference_chat.sse"));
  const gate = await gateway(t, ["--hai", server.url]);
  const expected = framesOf(fixture("reference_chat.sse")).filter(({ type }) => type === "BUSINESS_DATA_CONTENT").map(({ delta }) => JSON.parse(delta));
  for (const url of [server.url, `${gate}/chat`]) {
    globalThis.CHAT_URL = url;
    page.dialogueMessages.length = 0;
    const component = new page.TaskComponent();
    // Messages of the page have `contents` and no `content`; every turn is a new agent with the whole history.
    for (const [turn, text] of ["你好", "再说一次"].entries()) {
      page.dialogueMessages.push({ id: `u${turn}`, role: page.userRole, name: "admin", avatar: "a.png", contents: [{ type: "text", content: text }], timestamp: 1 });
      await component.onSend({ messages: page.dialogueMessages });
    }
    const answers = component.dialogue.messages.filter(({ role }) => role === "assistant");
    // The agent gives all its messages one id. The page shows the last one; the gateway makes them distinct.
    assert.deepEqual(answers.map(({ id }) => id), url === server.url ? ["msg-2"] : ["msg-2", "msg-2#2"]);
    for (const { contents, name, timestamp } of answers) {
      assert.deepEqual([name, typeof timestamp], ["智能体名称", "number"]);
      assert.deepEqual(contents.map(({ output }) => output), expected.map(({ output }) => output), url);
    }
  }
  // The gateway gave the texts of the page's messages to the agent.
  assert.deepEqual(server.bodies.at(-1).messages.filter(({ role }) => role === "user").map(({ content }) => content), ["你好", "再说一次"]);
});

test("a page like the public demo's draws every output once, over its stream and over the gateway", async (t) => {
  t.mock.method(console, "log", () => {});
  t.mock.method(console, "error", () => {});
  t.mock.method(console, "warn", () => {});
  const { page } = project(temporary(t), path.join(here, "pages", "demo.component.ts"));
  const task = fixture("reference_task.sse");
  const events = framesOf(task);
  const starts = events.map(({ type }) => type).lastIndexOf("BUSINESS_DATA_START");
  const outputs = events.slice(starts).filter(({ type }) => type === "BUSINESS_DATA_CONTENT").map(({ delta }) => JSON.parse(delta).output);
  const lastText = outputs.slice(outputs.findLastIndex(({ type }) => type !== "text") + 1).map(({ content }) => content).join("");
  assert.ok(lastText.length > 50);
  const server = await demo(t, task);
  const chat = await demo(t, fixture("reference_chat.sse"));
  const gate = await gateway(t, ["--hai", server.url]);
  const drawn = [];
  for (const url of [server.url, `${gate}/chat`]) {
    globalThis.TASK_URL = url;
    const component = new page.DemoComponent();
    await component.work();
    const [{ steps }] = component.tasks;
    const last = steps.at(-1).info.at(-1);
    const text = (last.type === "block" ? last.info.at(-1) : last).data;
    assert.equal(text, lastText, url);
    assert.ok(component.selected.length > 0 && component.state.workflowItems.every(({ name }) => name), JSON.stringify(component.state));
    drawn.push({ steps, state: component.state, selected: component.selected });
  }
  assert.deepEqual(drawn[1], drawn[0]);
  globalThis.CHAT_URL = chat.url;
  const component = new page.DemoComponent();
  await component.say({ messages: [{ id: "u", role: component.userRole(), contents: [{ content: "你好" }] }] });
  assert.ok(component.dialogue.messages.at(-1).contents.length > 1);
});

test("in Chromium: a chat, a question, a connection that is cut, and stop", async (t) => {
  const folder = temporary(t);
  install(folder);
  fs.writeFileSync(path.join(folder, "page.mjs"), `
    import * as kit from "hai-client";
    window.kit = kit;
    document.body.dataset.ready = "yes";
  `);
  fs.mkdirSync(path.join(folder, "page"));
  fs.writeFileSync(path.join(folder, "page", "index.html"), '<!doctype html><meta charset="utf-8"><body><script type="module" src="page.js"></script></body>');
  execFileSync(esbuild, [path.join(folder, "page.mjs"), "--bundle", "--format=esm", "--platform=browser", `--outfile=${path.join(folder, "page", "page.js")}`], quiet);
  const puppeteer = createRequire(path.join(root, "examples", "hai-chat", "package.json"))("puppeteer-core");
  let origin;
  await inBrowser(puppeteer.default ?? puppeteer, async (group) => (origin = await group.serve(path.join(folder, "page"), 0)), async ({ page }) => {
    fs.writeFileSync(path.join(folder, "agentwire.toml"), `cors = ["${origin}"]\n`);
    const gate = await gateway(t, ["--config", path.join(folder, "agentwire.toml")]);
    let seed = 3;
    const cut = await cutter(t, gate, () => 400 + ((seed = (seed * 48271) % 2147483647) % 3000));
    const shown = await page.evaluate(async (gate, cut) => {
      const { HttpAgent, parseContents } = window.kit;
      const textOf = (agent) => agent.messages.filter(({ role }) => role === "assistant").flatMap(({ content }) => parseContents(content)).map(({ output }) => output.content ?? "").join("");
      const ask = async (url, content, config = {}) => {
        const agent = new HttpAgent({ url, initialMessages: [{ id: "q", role: "user", content }], ...config });
        await agent.runAgent({ runId: crypto.randomUUID() });
        return agent;
      };
      const whole = await ask(`${gate}/awp`, "think tools state");
      const binary = await ask(`${gate}/awp`, "think tools state", { binary: true });
      const reconnect = { retries: 50, minDelayMs: 1, maxDelayMs: 5 };
      const resumed = await ask(`${cut}/awp`, "think tools state", { reconnect });
      const asked = await ask(`${gate}/awp`, "approve");
      const [call] = asked.messages.flatMap(({ toolCalls = [] }) => toolCalls).slice(-1);
      asked.addToolResult(call.id, { approved: true });
      await asked.runAgent();
      const long = new HttpAgent({ url: `${gate}/awp`, initialMessages: [{ id: "q", role: "user", content: "long 100000" }] });
      let outcome;
      await long.runAgent({}, { onBusinessDataContentEvent: ({ textMessageBuffer }) => (textMessageBuffer === "" ? long.stop() : undefined), onRunFinishedEvent: (data) => void (outcome = data.outcome.type) });
      return { whole: textOf(whole), binary: textOf(binary), resumed: textOf(resumed), states: [whole.state, binary.state, resumed.state], answered: textOf(asked), outcome };
    }, gate, cut);
    assert.ok(shown.whole.length > 10);
    assert.deepEqual([shown.binary, shown.resumed], [shown.whole, shown.whole]);
    assert.deepEqual(shown.states[1], shown.states[0]);
    assert.deepEqual(shown.states[2], shown.states[0]);
    assert.match(shown.answered, /approved/);
    assert.equal(shown.outcome, "cancelled");
  });
});
