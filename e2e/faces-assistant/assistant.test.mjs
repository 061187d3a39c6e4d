// Pages with assistant-ui in Chromium, of another origin than the gateway: one check per feature, for each of its runtimes
// that can talk to a gateway. The adapter for threads and history is the one of examples/assistant-ui.

import assert from "node:assert/strict";
import test from "node:test";
import { agent as agUiAgent, browser, gate, holds, pageServer, serve, until } from "./support.mjs";

/** `AssistantChatTransport`, `useDataStreamRuntime`, `useAgUiRuntime`. */
const RUNTIMES = ["ai-sdk", "data-stream", "ag-ui"];

/** One check for several runtimes. */
function each(runtimes, title, check) {
  for (const runtime of runtimes) test(`${runtime}: ${title}`, (t) => check(t, runtime));
}

/** A page with a runtime. */
async function chat(t, runtime, { query = {}, args = [], gateway } = {}) {
  const site = await pageServer(t);
  const url = gateway ?? (await serve(t, ["--cors", site, ...args])).url;
  const page = await (await browser(t)).page();
  const posts = [];
  page.on("request", (request) => {
    if (request.method() === "POST" && request.postData()) posts.push({ path: new URL(request.url()).pathname, body: JSON.parse(request.postData()) });
  });
  await page.goto(`${site}/?${new URLSearchParams({ gateway: url, runtime, ...query })}`);
  const input = page.locator("#input");
  await input.waitFor();
  const say = async (text) => {
    await input.fill(text);
    await page.locator("#send").click();
  };
  const text = () => page.locator("#messages").innerText();
  const shows = (pattern) => until(async () => pattern.test(await text()), async () => `${pattern} in the page: ${await text()}`);
  /** How often the page shows a text. */
  const count = async (words) => (await text()).split(words).length - 1;
  const idle = () => page.waitForFunction(() => !globalThis.runtime.thread.getState().isRunning);
  const thread = () => until(async () => decodeURIComponent(new URL(page.url()).hash.slice(1)), "the id of the thread");
  const runs = async () => (await (await fetch(`${url}/threads/${encodeURIComponent(await thread())}/runs`)).json()).runs;
  return { page, url, site, say, shows, text, count, idle, thread, runs, posts };
}

/** An agent that stops in the middle of its answer, until the test lets it go on. */
async function halting(t) {
  const [half, rest] = [gate(), gate()];
  const url = await agUiAgent(t, async (send, { threadId, runId }, response) => {
    send({ type: "RUN_STARTED", threadId, runId });
    send({ type: "TEXT_MESSAGE_START", messageId: `m-${runId}`, role: "assistant" });
    send({ type: "TEXT_MESSAGE_CONTENT", messageId: `m-${runId}`, delta: "one half, " });
    half.open();
    await rest.opened;
    send({ type: "TEXT_MESSAGE_CONTENT", messageId: `m-${runId}`, delta: "and the other" });
    send({ type: "TEXT_MESSAGE_END", messageId: `m-${runId}` });
    send({ type: "RUN_FINISHED", threadId, runId });
    response.end();
  });
  return { url, half, rest };
}

each(RUNTIMES, "chat with streaming, and the history after a reload", async (t, runtime) => {
  const { url: upstream, half, rest } = await halting(t);
  const { page, say, shows, count, idle } = await chat(t, runtime, { args: ["--ag-ui", upstream] });
  await say("hello");
  await half.opened;
  await shows(/one half/);
  assert.equal(await count("and the other"), 0);
  rest.open();
  await shows(/one half, and the other/);
  await idle();
  await say("again");
  await until(async () => (await count("one half, and the other")) === 2, "the second answer");
  await idle();
  await page.reload();
  await until(async () => (await count("one half, and the other")) === 2, "the history");
  await idle();
  for (const words of ["hello", "again\n"]) await holds(async () => assert.equal(await page.locator(".user .text", { hasText: words.trim() }).count(), 1, words));
  assert.deepEqual(page.problems, []);
});

each(RUNTIMES, "reasoning is shown apart from the answer, also after a reload", async (t, runtime) => {
  const { page, say, shows, idle } = await chat(t, runtime);
  await say("think");
  await shows(/That was it/);
  await idle();
  for (const visit of ["first", "second"]) {
    await until(async () => (await page.locator(".reasoning").allInnerTexts()).join("").includes("then I decide what to say."), `the reasoning, ${visit} visit`);
    await page.reload();
  }
});

each(RUNTIMES, "a tool of the agent is drawn by the page, also after a reload", async (t, runtime) => {
  const { page, say, shows, idle } = await chat(t, runtime);
  await say("tools");
  await shows(/That was it/);
  await idle();
  for (const visit of ["first", "second"]) {
    await until(async () => /"city":"Bern".*7 degrees/.test(await page.locator(".weather").innerText()), `the tool, ${visit} visit`);
    await holds(async () => assert.equal(await page.locator('.call[data-name="clock"]').count(), 1));
    await page.reload();
  }
});

each(RUNTIMES, "a front-end tool runs in the page, and the agent gets its result", async (t, runtime) => {
  const { page, say, shows, count, idle } = await chat(t, runtime);
  await say("confirm");
  await shows(/Your front end answered .*confirmed by the page/);
  assert.equal(await page.title(), "the tool ran");
  await idle();
  await page.reload();
  await shows(/Your front end answered .*confirmed by the page/);
  await idle();
  assert.equal(await count("Your front end answered"), 1, "the tool ran once");
});

each(RUNTIMES, "human in the loop: a person answers a tool call, also after a reload", async (t, runtime) => {
  const { page, say, shows, idle, url, thread } = await chat(t, runtime, { query: { hitl: "1" } });
  await say("confirm");
  await page.locator("#confirm").click();
  await shows(/Your front end answered .*confirmed.*true/);
  await idle();
  await say("confirm");
  await page.locator("#confirm").waitFor();
  await page.reload();
  await page.locator("#confirm").click();
  await until(async () => (await (await fetch(`${url}/threads/${encodeURIComponent(await thread())}/pending`)).json()).length === 0, "no open call");
  await until(async () => (await page.locator("#messages").innerText()).split("Your front end answered").length === 3, "the second answer");
});

each(RUNTIMES, "an interrupt is shown, survives a reload, and is answered", async (t, runtime) => {
  const { page, url, say, shows, thread } = await chat(t, runtime);
  await say("approve");
  await page.locator(".approve").first().waitFor();
  await page.reload();
  await page.locator(".approve").first().click();
  await shows(/Your answer was .*"approved":true/);
  await until(async () => (await (await fetch(`${url}/threads/${encodeURIComponent(await thread())}/pending`)).json()).length === 0, "no open question");
});

each(RUNTIMES, "an attachment reaches the agent, and is shown after a reload", async (t, runtime) => {
  const inputs = [];
  const upstream = await agUiAgent(t, (send, input, response) => {
    inputs.push(input);
    send({ type: "RUN_STARTED", threadId: input.threadId, runId: input.runId });
    send({ type: "TEXT_MESSAGE_CHUNK", messageId: `m-${input.runId}`, role: "assistant", delta: "seen" });
    send({ type: "RUN_FINISHED", threadId: input.threadId, runId: input.runId });
    response.end();
  });
  const { page, say, shows, idle, text } = await chat(t, runtime, { args: ["--ag-ui", upstream] });
  const chooser = page.waitForEvent("filechooser");
  await page.locator("#attach").click();
  const pixel = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==", "base64");
  await (await chooser).setFiles({ name: "pixel.png", mimeType: "image/png", buffer: pixel });
  await page.locator(".pending-attachment").waitFor();
  await say("look at this");
  await shows(/seen/);
  await idle();
  const content = JSON.stringify(inputs[0].messages.findLast(({ role }) => role === "user").content);
  assert.match(content, /look at this/);
  assert.ok(content.includes(pixel.toString("base64")), content.slice(0, 300));
  assert.match(content, /image\/png/);
  await page.reload();
  await shows(/seen/);
  const shown = await page.locator(".user .attachment, .user .file, .user .image").count();
  assert.equal(shown, 1, await text());
});

each(RUNTIMES, "instructions and tools of the page reach the agent", async (t, runtime) => {
  const inputs = [];
  const upstream = await agUiAgent(t, (send, input, response) => {
    inputs.push(input);
    send({ type: "RUN_STARTED", threadId: input.threadId, runId: input.runId });
    send({ type: "TEXT_MESSAGE_CHUNK", messageId: `m-${input.runId}`, role: "assistant", delta: `answer ${inputs.length}` });
    send({ type: "RUN_FINISHED", threadId: input.threadId, runId: input.runId });
    response.end();
  });
  const { say, shows, idle, thread } = await chat(t, runtime, { args: ["--ag-ui", upstream] });
  await say("one");
  await shows(/answer 1/);
  await idle();
  await say("two");
  await shows(/answer 2/);
  for (const input of inputs) {
    assert.deepEqual(input.tools.map(({ name, description, parameters }) => ({ name, description, type: parameters.type })), [{ name: "confirmAction", description: "Confirms", type: "object" }]);
    const instructions = runtime === "ag-ui" ? input.context.map(({ value }) => value) : input.messages.filter(({ role }) => role === "system").map(({ content }) => content);
    assert.deepEqual(instructions, ["You speak like the page wants."]);
    assert.equal(input.threadId, await thread());
  }
  const said = inputs[1].messages.filter(({ role }) => role !== "system").map(({ role, content }) => [role, content]);
  assert.deepEqual(said, [["user", "one"], ["assistant", "answer 1"], ["user", "two"]], "the agent has each message once");
});

each(RUNTIMES, "the list of threads: switch, archive, restore, rename, delete", async (t, runtime) => {
  const { page, say, shows, count, idle, url } = await chat(t, runtime);
  await say("long 3");
  await shows(/word3/);
  await idle();
  await page.locator("#new").click();
  await until(async () => (await count("word3")) === 0, "an empty thread");
  await say("long 4");
  await shows(/word4/);
  await idle();
  await page.reload();
  const regular = page.locator("#threads > .thread");
  const archived = page.locator("#archived .thread");
  await until(async () => (await regular.count()) === 2, "two threads");
  assert.deepEqual(await regular.locator(".open").allInnerTexts(), ["long 4", "long 3"]);
  await regular.filter({ hasText: "long 3" }).locator(".open").click();
  await until(async () => (await count("word3")) === 1 && (await count("word4")) === 0, "the other thread");
  await regular.filter({ hasText: "long 4" }).locator(".archive").click();
  await until(async () => (await regular.count()) === 1 && (await archived.count()) === 1, "an archived thread");
  const threads = async () => (await (await fetch(`${url}/threads`)).json()).threads;
  await until(async () => (await threads()).some(({ archived: is, title }) => is && title === "long 4"), "the gateway has it as archived");
  await page.reload();
  await until(async () => (await archived.count()) === 1, "it is archived after a reload");
  await archived.locator(".unarchive").click();
  await until(async () => (await regular.count()) === 2, "it is back");
  await page.evaluate(async () => {
    const { threads } = globalThis.runtime;
    const id = threads.getState().threadIds.find((it) => threads.getItemById(it).getState().title === "long 4");
    await threads.getItemById(id).rename("a better name");
  });
  await until(async () => (await threads()).some(({ title }) => title === "a better name"), "the new name");
  await regular.filter({ hasText: "a better name" }).locator(".delete").click();
  await until(async () => (await threads()).length === 1, "one thread");
});

each(RUNTIMES, "a reload in mid-run shows the first half and the rest, once", async (t, runtime) => {
  const { url: upstream, half, rest } = await halting(t);
  const { page, say, shows, count, idle } = await chat(t, runtime, { args: ["--ag-ui", upstream] });
  await say("go");
  await half.opened;
  await shows(/one half/);
  await page.reload();
  await shows(/one half/);
  assert.equal(await count("and the other"), 0);
  rest.open();
  await shows(/one half, and the other/);
  await idle();
  assert.equal(await count("one half"), 1);
  await page.reload();
  await shows(/one half, and the other/);
  await idle();
  assert.equal(await count("one half"), 1);
  await holds(async () => assert.equal(await page.locator(".assistant").count(), 1));
});

each(RUNTIMES, "the stop button ends the run on the gateway, and the thread goes on", async (t, runtime) => {
  const { page, say, shows, runs, idle } = await chat(t, runtime);
  await say("slow");
  await shows(/This/);
  await page.locator("#stop").click();
  const ended = await until(async () => {
    const [run] = await runs();
    return run.status !== "running" && run;
  }, "the end of the run");
  assert.equal(ended.status, "stopped");
  await idle();
  await say("long 2");
  await shows(/word2/);
});

each(RUNTIMES, "an edited message starts a branch, and the agent has no other one", async (t, runtime) => {
  const inputs = [];
  const upstream = await agUiAgent(t, (send, input, response) => {
    inputs.push(input);
    send({ type: "RUN_STARTED", threadId: input.threadId, runId: input.runId });
    send({ type: "TEXT_MESSAGE_CHUNK", messageId: `m-${input.runId}`, role: "assistant", delta: `answer ${inputs.length}` });
    send({ type: "RUN_FINISHED", threadId: input.threadId, runId: input.runId });
    response.end();
  });
  const { page, say, shows, count, idle } = await chat(t, runtime, { args: ["--ag-ui", upstream] });
  await say("first");
  await shows(/answer 1/);
  await idle();
  await say("second");
  await shows(/answer 2/);
  await idle();
  await page.locator(".user .edit").last().click();
  await page.locator(".edit-input").fill("second, edited");
  await page.locator(".edit-send").click();
  await shows(/answer 3/);
  await idle();
  assert.equal(await count("answer 2"), 0);
  const said = (input) => input.messages.filter(({ role }) => role !== "system").map(({ content }) => content);
  assert.deepEqual(said(inputs[2]), ["first", "answer 1", "second, edited"]);
  await page.locator(".branches .previous").first().click();
  await shows(/answer 2/);
  await page.reload();
  await shows(/answer 3/);
  assert.deepEqual([await count("answer 1"), await count("answer 2"), await count("answer 3")], [1, 0, 1]);
});

each(RUNTIMES, "an answer is made again, and the agent does not get the old one", async (t, runtime) => {
  const inputs = [];
  const upstream = await agUiAgent(t, (send, input, response) => {
    inputs.push(input);
    send({ type: "RUN_STARTED", threadId: input.threadId, runId: input.runId });
    send({ type: "TEXT_MESSAGE_CHUNK", messageId: `m-${input.runId}`, role: "assistant", delta: `answer ${inputs.length}` });
    send({ type: "RUN_FINISHED", threadId: input.threadId, runId: input.runId });
    response.end();
  });
  const { page, say, shows, count, idle } = await chat(t, runtime, { args: ["--ag-ui", upstream] });
  await say("question");
  await shows(/answer 1/);
  await idle();
  await page.locator(".assistant .reload").last().click();
  await shows(/answer 2/);
  await idle();
  assert.equal(await count("answer 1"), 0);
  assert.deepEqual(inputs[1].messages.filter(({ role }) => role !== "system").map(({ content }) => content), ["question"]);
  await page.reload();
  await shows(/answer 2/);
  assert.deepEqual([await count("answer 1"), await count("answer 2")], [0, 1]);
});

each(RUNTIMES, "a failed run is an error of the page, and the thread goes on", async (t, runtime) => {
  const { page, say, shows, idle } = await chat(t, runtime);
  await say("fail");
  // A decoder of a stream reports to the message, a client of a run to the page.
  const errors = async () => [await page.locator("body").getAttribute("data-error"), ...(await page.locator(".error").allInnerTexts())].join(" ");
  await until(async () => /the demo agent failed/.test(await errors()), "the error");
  await shows(/Something is about to go/);
  await idle();
  await say("long 2");
  await shows(/word2/);
});
