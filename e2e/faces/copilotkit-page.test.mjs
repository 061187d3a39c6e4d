// Pages with CopilotKit's components in Chromium, of another origin than the gateway, one check per feature.

import assert from "node:assert/strict";
import test from "node:test";
import { agent as agUiAgent, agentInHalves, browser, gate, holds, pageServer, send, serve, until } from "./support.mjs";

/** A page with a chat; `query` selects the features. */
async function chat(t, { query = {}, args = [], gateway } = {}) {
  const site = await pageServer(t, "copilotkit");
  const url = gateway ?? (await serve(t, ["--cors", site, ...args])).url;
  const page = await (await browser(t)).page();
  const open = (more = {}) => page.goto(`${site}/?${new URLSearchParams({ gateway: url, thread: "t", ...query, ...more })}`);
  await open();
  const input = page.locator("textarea").first();
  await input.waitFor();
  const say = (text) => send(page, input, text);
  const shows = (pattern) => until(async () => pattern.test(await page.locator("body").innerText()), `${pattern} in the page`);
  return { page, url, site, open, say, shows };
}

for (const query of [{ version: "1" }, { version: "1", single: "true" }, { version: "1", single: "false" }, { version: "2" }, { version: "2", single: "true" }]) {
  test(`${JSON.stringify(query)}: chat with streaming, and the history after a reload`, async (t) => {
    const { page, say, shows } = await chat(t, { query });
    await say("hello");
    await shows(/I am the demo agent/);
    await page.reload();
    await shows(/I am the demo agent/);
    assert.equal((await page.locator("body").innerText()).split("I am the demo agent").length, 2, "once");
  });
}

test("a tool of the agent is drawn by the page", async (t) => {
  const { page, say } = await chat(t);
  await say("tools");
  await page.locator('.weather[data-status="complete"]').waitFor();
  await holds(async () => assert.match(await page.locator(".weather").innerText(), /7 degrees/));
});

test("a front-end tool runs in the page, and the agent gets its result", async (t) => {
  const { page, say, shows } = await chat(t);
  await say("confirm");
  await until(async () => (await page.title()) === "the tool ran", "the tool");
  await shows(/confirmed by the page/);
});

test("human in the loop: a person answers a tool call", async (t) => {
  const { page, say, shows } = await chat(t, { query: { hitl: "1" } });
  await say("confirm");
  await page.locator("#confirm").click();
  await page.locator('.hitl[data-status="complete"]').waitFor({ state: "attached" });
  await shows(/confirmed/);
});

test("an interrupt is shown, survives a reload, and is answered", async (t) => {
  const { page, url, say } = await chat(t, { query: { version: "2" } });
  await say("approve");
  await page.locator(".interrupt").waitFor();
  await page.reload();
  await page.locator("#approve").click();
  await page.locator(".interrupt").waitFor({ state: "detached" });
  await until(async () => (await (await fetch(`${url}/threads/t/pending`)).json()).length === 0, "no open question");
});

test("shared state goes both ways", async (t) => {
  const inputs = [];
  const upstream = await agUiAgent(t, (send, { threadId, runId, state }, response) => {
    inputs.push(state);
    send({ type: "RUN_STARTED", threadId, runId });
    send({ type: "STATE_SNAPSHOT", snapshot: { ...state, count: inputs.length } });
    send({ type: "RUN_FINISHED", threadId, runId });
    response.end();
  });
  const { page, say } = await chat(t, { query: { agent: "default" }, args: ["--ag-ui", upstream] });
  await say("one");
  await until(async () => /"count":1/.test(await page.locator("#state").innerText()), "the state of the agent");
  await page.locator("#set-state").click();
  await say("two");
  await until(() => inputs.length === 2, "the second run");
  assert.equal(inputs[1].fromPage, "seen");
  await until(async () => /"count":2/.test(await page.locator("#state").innerText()), "the next state");
});

/** An agent that announces a prediction, streams the arguments of a tool, and has its own state at the end. */
async function writer(t) {
  const [half, rest] = [gate(), gate()];
  const upstream = await agUiAgent(t, async (send, { threadId, runId }, response) => {
    const call = { toolCallId: "c" };
    send({ type: "RUN_STARTED", threadId, runId });
    send({ type: "STATE_SNAPSHOT", snapshot: { document: "", author: "agent" } });
    send({ type: "CUSTOM", name: "PredictState", value: [{ state_key: "document", tool: "write_document", tool_argument: "document" }] });
    send({ type: "TOOL_CALL_START", ...call, toolCallName: "write_document", parentMessageId: "m" });
    // The client gives the page the arguments before each piece, so the last piece is not part of the state yet.
    send({ type: "TOOL_CALL_ARGS", ...call, delta: '{"document":"Once upon' });
    send({ type: "TOOL_CALL_ARGS", ...call, delta: " a" });
    half.open();
    await rest.opened;
    send({ type: "TOOL_CALL_ARGS", ...call, delta: " time" });
    send({ type: "TOOL_CALL_ARGS", ...call, delta: '."}' });
    send({ type: "TOOL_CALL_END", ...call });
    send({ type: "TOOL_CALL_RESULT", messageId: "r", ...call, content: "written" });
    send({ type: "STATE_SNAPSHOT", snapshot: { document: "Once upon a time. The end.", author: "agent" } });
    send({ type: "RUN_FINISHED", threadId, runId });
    response.end();
  });
  return { upstream, half, rest };
}

test("predictive state: streamed arguments of a tool are state before the tool has run", async (t) => {
  const { upstream, half, rest } = await writer(t);
  const { page, say } = await chat(t, { query: { agent: "default" }, args: ["--ag-ui", upstream] });
  const state = async (pattern) => until(async () => pattern.test(await page.locator("#state").innerText()), `${pattern}`);
  await say("write");
  await half.opened;
  await state(/"document":"Once upon","author":"agent"/);
  rest.open();
  await state(/"document":"Once upon a time. The end."/);
  const shown = await page.evaluate(() => window.states.map(({ document }) => document));
  assert.ok(shown.includes("Once upon a time"), JSON.stringify(shown));
});

test("predictive state goes on after a reload in mid-run", async (t) => {
  const { upstream, half, rest } = await writer(t);
  const { page, say } = await chat(t, { query: { agent: "default" }, args: ["--ag-ui", upstream] });
  const state = async (pattern) => until(async () => pattern.test(await page.locator("#state").innerText()), `${pattern}`);
  await say("write");
  await half.opened;
  await state(/"document":"Once upon"/);
  await page.reload();
  await state(/"document":"Once upon","author":"agent"/);
  rest.open();
  await state(/"document":"Once upon a time. The end."/);
  const shown = await page.evaluate(() => window.states.map(({ document }) => document));
  assert.ok(shown.includes("Once upon a time"), JSON.stringify(shown));
});

test("generative UI: an activity is drawn by the page and changes", async (t) => {
  const { page, say } = await chat(t, { query: { version: "2" } });
  await say("plan");
  await until(async () => /"name":"write","done":true/.test(await page.locator("body").innerText()), "the last change");
  await holds(async () => assert.equal(await page.locator(".plan").count(), 1));
});

test("a reload in mid-run shows the first half and the rest", async (t) => {
  const { upstream, half, rest } = await agentInHalves(t);
  const { page, say, shows } = await chat(t, { query: { agent: "default" }, args: ["--ag-ui", upstream] });
  await say("go");
  await half.opened;
  await shows(/one half/);
  await page.reload();
  await shows(/one half/);
  rest.open();
  await shows(/one half, and the other/);
  assert.equal((await page.locator("body").innerText()).split("one half").length, 2, "once");
});

test("the list of threads: newest first, rename, archive, delete", async (t) => {
  const { page, say, shows, open } = await chat(t, { query: { version: "2" } });
  await say("long 3");
  await shows(/word3/);
  await open({ thread: "u" });
  await say("long 4");
  await shows(/word4/);
  await open({ list: "1", thread: "v" });
  const items = page.locator("#threads li");
  await until(async () => (await items.count()) === 2, "two threads");
  assert.deepEqual(await items.evaluateAll((all) => all.map((item) => item.dataset.id)), ["u", "t"]);
  await page.locator('#threads li[data-id="u"] .rename').click();
  await until(async () => {
    await open({ list: "1", thread: "v" });
    await items.first().waitFor();
    return /renamed in the page/.test(await items.first().innerText());
  }, "the new name");
  await page.locator('#threads li[data-id="u"] .archive').click();
  await until(async () => (await items.count()) === 1, "one thread");
  await page.locator('#threads li[data-id="t"] .delete').click();
  await until(async () => (await items.count()) === 0, "no thread");
});

test("a failed run is an error of the page", async (t) => {
  const { page, say } = await chat(t, { query: { version: "2" } });
  await say("fail");
  await until(async () => /the demo agent failed/.test(await page.locator("body").getAttribute("data-error") ?? ""), "the error");
});

test("the stop button ends the run on the gateway", async (t) => {
  const { page, url, say, shows } = await chat(t);
  await say("slow");
  await shows(/This/);
  await page.locator('[data-test-id="copilot-chat-request-in-progress"], button[aria-label*="top" i], [data-copilotkit-in-progress] button').last().click();
  const ended = await until(async () => {
    const { runs } = await (await fetch(`${url}/threads/t/runs`)).json();
    return runs[0].status !== "running" && runs[0].status;
  }, "the end of the run");
  assert.equal(ended, "stopped");
});
