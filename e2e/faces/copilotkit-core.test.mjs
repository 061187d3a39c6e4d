// The client of CopilotKit, without a page: both transports against the gateway, no runtime of CopilotKit in between.

import assert from "node:assert/strict";
import test from "node:test";
import { z } from "zod";
import { agentInHalves, serve } from "../console/support.mjs";
import { until } from "../support/pages.mjs";

// The client connects only where there is a window.
globalThis.window = globalThis;
const { CopilotKitCore, ɵcreateThreadStore: createThreadStore, ɵselectThreads: selectThreads } = await import("@copilotkit/core");

const TRANSPORTS = ["rest", "single", "auto"];

/** A connected client with its agent. */
async function connected(t, url, { transport = "rest", agentId = "demo", tools = [], threadId } = {}) {
  const core = new CopilotKitCore({ runtimeUrl: `${url}/copilotkit`, runtimeTransport: transport, tools });
  const errors = [];
  core.subscribe({ onError: ({ error, code }) => void errors.push(`${code}: ${error.message}`) });
  await until(() => core.runtimeConnectionStatus === "connected", "the connection");
  const agent = core.getAgent(agentId);
  assert.ok(agent, `${agentId} is known`);
  if (threadId) agent.threadId = threadId;
  return { core, agent, errors };
}

async function say(core, agent, content) {
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content });
  return core.runAgent({ agent });
}

const texts = (agent) => agent.messages.filter((it) => it.role === "assistant").map((it) => it.content ?? "").join("\n");

for (const transport of TRANSPORTS) {
  test(`${transport}: info, chat, state, history`, async (t) => {
    const { url } = await serve(t);
    const { core, agent, errors } = await connected(t, url, { transport, threadId: `t-${transport}` });
    assert.deepEqual(Object.keys(core.agents).sort(), ["default", "demo"]);
    await say(core, agent, "hello");
    assert.match(texts(agent), /I am the demo agent/);
    await say(core, agent, "tools state");
    assert.equal(agent.state.demo?.progress, 100);
    assert.ok(agent.messages.some((it) => it.role === "tool" && /7 degrees/.test(JSON.stringify(it.content))));
    // Another client has the same conversation.
    const other = await connected(t, url, { transport, threadId: `t-${transport}` });
    await other.core.connectAgent({ agent: other.agent });
    assert.deepEqual(other.agent.messages.map((it) => it.id), agent.messages.map((it) => it.id));
    assert.equal(other.agent.state.demo?.progress, 100);
    // A thread that nobody knows is empty and no error.
    const fresh = await connected(t, url, { transport, threadId: "nobody-knows" });
    await fresh.core.connectAgent({ agent: fresh.agent });
    assert.deepEqual(fresh.agent.messages, []);
    assert.deepEqual([...errors, ...other.errors, ...fresh.errors], []);
  });
}

test("a front-end tool runs in the client, and its result reaches the agent", async (t) => {
  const { url } = await serve(t);
  const calls = [];
  const tools = [{
    name: "confirmAction",
    description: "Asks the user",
    parameters: z.object({}).passthrough(),
    handler: async (args) => (calls.push(args), "confirmed by the page"),
  }];
  const { core, agent, errors } = await connected(t, url, { tools, threadId: "t" });
  await say(core, agent, "confirm");
  assert.equal(calls.length, 1);
  assert.match(JSON.stringify(agent.messages), /confirmed by the page/);
  assert.equal(agent.messages.at(-1).role, "assistant", "the agent has spoken about the result");
  assert.deepEqual(errors, []);
});

test("an interrupt is answered under the id of its run, also after a reload", async (t) => {
  const { url } = await serve(t);
  const { core, agent } = await connected(t, url, { threadId: "t" });
  let open;
  let runId;
  const note = {
    onRunFinishedEvent: ({ outcome, interrupts, input }) => {
      if (outcome === "interrupt") [open, runId] = [interrupts, input.runId];
    },
  };
  agent.subscribe(note);
  await say(core, agent, "approve");
  assert.equal(open.length, 1);
  const asked = open[0].id;
  open = undefined;
  const other = await connected(t, url, { threadId: "t" });
  other.agent.subscribe(note);
  await other.core.connectAgent({ agent: other.agent });
  assert.equal(open[0].id, asked, "the question is open after a reload");
  await core.runAgent({ agent, runId, resume: [{ interruptId: asked, status: "resolved", payload: { approved: true } }] });
  assert.match(texts(agent), /./);
  open = undefined;
  const last = await connected(t, url, { threadId: "t" });
  last.agent.subscribe(note);
  await last.core.connectAgent({ agent: last.agent });
  assert.equal(open, undefined, "nothing is open any more");
});

test("a reload in mid-run gets the whole answer once", async (t) => {
  const { upstream, half, rest } = await agentInHalves(t);
  const { url } = await serve(t, ["--ag-ui", upstream]);
  const agentId = "default";
  const first = await connected(t, url, { agentId, threadId: "t" });
  const running = say(first.core, first.agent, "go");
  await half.opened;
  const second = await connected(t, url, { agentId, threadId: "t" });
  const back = second.core.connectAgent({ agent: second.agent });
  await until(() => /one half/.test(texts(second.agent)), "the first half");
  assert.doesNotMatch(texts(second.agent), /other/);
  rest.open();
  await Promise.all([running, back]);
  assert.equal(texts(second.agent), "one half, and the other");
  assert.deepEqual(second.agent.messages.map((it) => it.id), first.agent.messages.map((it) => it.id));
  assert.deepEqual([...first.errors, ...second.errors], []);
});

for (const transport of ["rest", "single"]) {
  test(`${transport}: stop ends the run on the gateway`, async (t) => {
    const { url } = await serve(t);
    const { core, agent } = await connected(t, url, { transport, threadId: "t" });
    const running = say(core, agent, "slow");
    await until(() => texts(agent).length > 0, "the first word");
    core.stopAgent({ agent });
    await running;
    const runs = await until(async () => {
      const { runs } = await (await fetch(`${url}/threads/t/runs`)).json();
      return runs.every((run) => run.status !== "running") && runs;
    }, "the end of the run");
    assert.equal(runs[0].status, "stopped");
  });
}

test("a failed run and an unknown agent are errors of the client", async (t) => {
  const { url } = await serve(t);
  const { core, agent, errors } = await connected(t, url, { threadId: "t" });
  await say(core, agent, "fail");
  assert.match(errors.join("\n"), /the demo agent failed/);
  const response = await fetch(`${url}/copilotkit/agent/nobody/run`, {
    method: "POST", headers: { "content-type": "application/json" }, body: "{}",
  });
  assert.equal(response.status, 404);
  assert.equal((await response.json()).error, "Agent not found");
});

for (const transport of ["rest", "single"]) {
  test(`${transport}: the list of threads: pages, rename, archive, delete`, async (t) => {
    const { url } = await serve(t);
    const { core, agent } = await connected(t, url, { transport });
    for (const name of ["one", "two", "three"]) {
      agent.threadId = name;
      agent.setMessages([]);
      await say(core, agent, `long 1 of ${name}`);
    }
    const store = createThreadStore({ fetch: core.ɵruntimeFetch ?? fetch });
    store.start();
    t.after(() => store.stop());
    const listed = async (extra = {}) => {
      store.setContext({ runtimeUrl: `${url}/copilotkit`, headers: {}, agentId: "demo", ...extra });
      await until(() => !store.getState().isLoading && store.getState().threads.length > 0, "the list");
      return selectThreads(store.getState());
    };
    assert.deepEqual((await listed()).map((it) => it.id), ["three", "two", "one"]);
    await listed({ limit: 2 });
    await until(() => store.getState().threads.length === 2, "a page");
    store.fetchNextPage();
    await until(() => store.getState().threads.length === 3, "the next page");
    await store.renameThread("two", "a better name");
    await store.archiveThread("one");
    await store.deleteThread("three");
    await listed({ limit: 10 });
    await until(() => store.getState().threads.length === 1, "one thread");
    assert.equal(store.getState().threads[0].name, "a better name");
    await listed({ limit: 11, includeArchived: true });
    await until(() => store.getState().threads.length === 2, "the archived one too");
    await store.unarchiveThread("one");
    await listed({ limit: 12 });
    await until(() => store.getState().threads.length === 2, "it is back");
  });
}
