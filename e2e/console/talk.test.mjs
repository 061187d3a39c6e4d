// Talk, control, judge: a first visit, every word of the demo agent, reconnect, reload, two pages.

import assert from "node:assert/strict";
import path from "node:path";
import test from "node:test";
import { agent, browser, ended, gate, here, holds, open, say, serve, until } from "./support.mjs";

const text = (page) => page.locator(".scroller").innerText();

test("a first visit streams an answer, within 256,000 bytes", async (t) => {
  const { url } = await serve(t);
  const page = await (await browser(t)).page();
  const session = await page.context().newCDPSession(page);
  await session.send("Network.enable");
  let bytes = 0;
  session.on("Network.loadingFinished", ({ encodedDataLength }) => (bytes += encodedDataLength));
  await open(page, url);
  assert.match(page.url(), /\/console(#|$)/);
  assert.ok(bytes > 10_000 && bytes <= 256_000, `${bytes} bytes`);
  await page.getByRole("button", { name: "hello", exact: true }).click();
  await ended(page);
  assert.match(await text(page), /I am the demo agent/);
  assert.match(page.url(), /#\/talk\/demo\/t-\w+\/r-\w+$/);
  assert.deepEqual(page.problems, []);
  assert.deepEqual(page.foreign, []);
});

test("every word of the demo agent draws its items", async (t) => {
  const { url } = await serve(t);
  const page = await (await browser(t)).page();
  const expected = {
    think: [".item-reasoning summary", /Thought for/],
    tools: [".tool:has-text('weather')", /7 degrees, rain/],
    "tool error": [".tool-failed", /the tool is broken/],
    state: [".scroller", /./],
    steps: [".item-step", /Step look/],
    subagent: [".item-subagent", /Subagent researcher/],
    plan: [".activity .is-done", /read/],
    media: ["img.media", undefined],
    fail: [".problem-box", /The run failed/],
    "long 50": [".item-assistant", /./],
  };
  for (const [word, [selector, pattern]] of Object.entries(expected)) {
    await open(page, url);
    await page.goto(`${url}/console#/talk/demo`);
    await page.reload();
    await page.waitForSelector("#composer-text");
    await say(page, word);
    await ended(page);
    const found = page.locator(selector).first();
    await found.waitFor();
    if (pattern) assert.match(await found.innerText(), pattern, word);
    if (word === "tools") {
      const card = await page.locator(".tool:has-text('clock')").innerText();
      assert.match(card, /Europe\/Zurich/);
      assert.match(card, /12:00/);
      assert.match(card, /\d m?s/, "the duration");
    }
    if (word === "state") {
      await page.getByRole("button", { name: "State" }).click();
      await holds(async () => assert.match(await page.locator(".state-pane").innerText(), /"progress": 100/));
    }
    if (word === "media") {
      await holds(async () => assert.match(await page.locator(".source a").getAttribute("href"), /rfc2397/));
      await holds(async () => assert.ok(await page.locator("img.media").evaluate((image) => image.naturalWidth > 0)));
    }
  }
  assert.deepEqual(page.problems, []);
});

test("a front-end tool is answered by a form, confirmAction by two buttons", async (t) => {
  const { url } = await serve(t);
  const page = await (await browser(t)).page();
  await open(page, url);
  await say(page, "confirm");
  await page.getByRole("button", { name: "Confirm", exact: true }).click();
  await until(page, () => document.querySelector(".tool dl")?.innerText.includes("true"));
  assert.deepEqual(page.problems, []);
});

test("a tool of the settings is offered, and its call is answered by a form from its schema", async (t) => {
  const inputs = [];
  const upstream = await agent(t, (send, input, response) => {
    inputs.push(input);
    send({ type: "RUN_STARTED", threadId: input.threadId, runId: input.runId });
    const result = input.messages.findLast((message) => message.role === "tool");
    if (result) {
      send({ type: "TEXT_MESSAGE_START", messageId: "m2", role: "assistant" });
      send({ type: "TEXT_MESSAGE_CONTENT", messageId: "m2", delta: `booked: ${result.content}` });
      send({ type: "TEXT_MESSAGE_END", messageId: "m2" });
    } else {
      send({ type: "TOOL_CALL_START", toolCallId: "c1", toolCallName: "book" });
      send({ type: "TOOL_CALL_ARGS", toolCallId: "c1", delta: '{"room":"blue"}' });
      send({ type: "TOOL_CALL_END", toolCallId: "c1" });
    }
    send({ type: "RUN_FINISHED", threadId: input.threadId, runId: input.runId });
    response.end();
  });
  const { url } = await serve(t, ["--ag-ui", upstream]);
  const page = await (await browser(t)).page();
  await open(page, url);
  const parameters = {
    type: "object",
    properties: {
      room: { type: "string", enum: ["red", "blue"], title: "Room" },
      people: { type: "integer", minimum: 1, title: "People" },
      projector: { type: "boolean", title: "Projector" },
    },
    required: ["room", "people"],
  };
  await page.getByRole("button", { name: "Settings" }).click();
  await page.fill("#settings-tools", "[not JSON");
  await page.getByRole("button", { name: "Save" }).click();
  await page.locator("dialog .problem").waitFor();
  await page.fill("#settings-tools", JSON.stringify([{ name: "book", description: "books a room", parameters }]));
  await page.getByRole("button", { name: "Save" }).click();
  await page.locator("dialog").waitFor({ state: "detached" });
  await say(page, "a room please");
  const form = page.locator(".decision form");
  await form.waitFor();
  assert.deepEqual(inputs[0].tools.map((tool) => tool.name).sort(), ["book", "confirmAction"]);
  // The arguments of the call are the first values of the form.
  assert.equal(await form.getByLabel("Room").inputValue(), "blue");
  await form.getByLabel("Room").selectOption("red");
  await form.getByLabel("People").fill("3");
  await form.getByLabel("Projector").check();
  await form.getByRole("button", { name: "Answer" }).click();
  await until(page, () => document.querySelector(".scroller")?.innerText.includes("booked:"));
  await ended(page);
  const given = JSON.parse(inputs[1].messages.findLast((message) => message.role === "tool").content);
  assert.deepEqual(given, { room: "red", people: 3, projector: true });
  // The settings are kept.
  await page.reload();
  await page.getByRole("button", { name: "Settings" }).click();
  await holds(async () => assert.match(await page.locator("#settings-tools").inputValue(), /books a room/));
  assert.deepEqual(page.problems, []);
});

test("files are attached, shown, removed, and reach the agent", async (t) => {
  const inputs = [];
  const upstream = await agent(t, (send, input, response) => {
    inputs.push(input);
    send({ type: "RUN_STARTED", threadId: input.threadId, runId: input.runId });
    send({ type: "TEXT_MESSAGE_START", messageId: `m-${input.runId}`, role: "assistant" });
    send({ type: "TEXT_MESSAGE_CONTENT", messageId: `m-${input.runId}`, delta: "seen" });
    send({ type: "TEXT_MESSAGE_END", messageId: `m-${input.runId}` });
    send({ type: "RUN_FINISHED", threadId: input.threadId, runId: input.runId });
    response.end();
  });
  const { url } = await serve(t, ["--ag-ui", upstream]);
  const page = await (await browser(t)).page();
  await open(page, url);
  const dot = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4//8/w38GIAXDIBKE0DHxgljNBAAO9TXL0Y4OHwAAAABJRU5ErkJggg==", "base64");
  const files = [
    { name: "dot.png", mimeType: "image/png", buffer: dot },
    { name: "notes.txt", mimeType: "text/plain", buffer: Buffer.from("three words here") },
    { name: "secret.txt", mimeType: "text/plain", buffer: Buffer.from("not for the agent") },
  ];
  // The page reads files in the background.
  const attached = (count) => page.waitForFunction((count) => document.querySelectorAll(".attached li").length === count, count);
  await page.locator('input[type="file"]').setInputFiles(files);
  await attached(3);
  await page.getByRole("button", { name: /secret\.txt/ }).click();
  await attached(2);
  // Too much is refused, and the attached files stay.
  await page.locator('input[type="file"]').setInputFiles([{ name: "big.bin", mimeType: "application/octet-stream", buffer: Buffer.alloc(9 << 20) }]);
  await page.locator(".composer .problem-box").waitFor();
  await holds(async () => assert.equal(await page.locator(".attached li").count(), 2));
  await say(page, "look at these");
  await ended(page);
  await page.waitForFunction(() => document.querySelector(".bubble img.media")?.naturalWidth > 0);
  await holds(async () => assert.match(await page.locator(".bubble").innerText(), /look at these[\s\S]*notes\.txt/));
  const { content } = inputs[0].messages.at(-1);
  assert.deepEqual(content.map((part) => part.type), ["text", "image", "document"]);
  assert.equal(content[1].source.value, dot.toString("base64"));
  assert.equal(Buffer.from(content[2].source.value, "base64").toString(), "three words here");
  // They are part of the thread.
  await page.reload();
  await page.locator(".bubble img.media").waitFor();
  assert.deepEqual(page.problems, []);
});

test("blocks of HAI are drawn, folds contain theirs, a button speaks", async (t) => {
  const { url } = await serve(t, ["--replay", path.join(here, "blocks.jsonl"), "--format", "hai"]);
  const page = await (await browser(t)).page();
  await open(page, url);
  await say(page, "report");
  await ended(page);
  for (const type of ["table", "echarts", "toolCallShow", "icon", "image", "file", "weather", "button", "fold"]) {
    await page.locator(`[data-block="${type}"]`).first().waitFor({ state: "attached" });
  }
  await page.locator(".chart-canvas canvas").waitFor();
  const fold = page.locator("details.block-fold").first();
  assert.match(await fold.innerText(), /Figures are in thousands/);
  assert.doesNotMatch(await page.locator(".item-assistant").first().innerText(), /thousands/);
  // A reload shows the text at its place between the blocks, as the stream had it.
  const order = () =>
    page.evaluate(() => [...document.querySelectorAll(".scroller .item-assistant, .scroller [data-block]")].map((it) => it.dataset.block ?? it.querySelector(".markdown")?.textContent));
  const streamed = await order();
  assert.ok(streamed.indexOf("table") < streamed.findIndex((it) => /thousands/.test(it)), String(streamed));
  await page.reload();
  await ended(page);
  await until(page, () => document.querySelectorAll(".scroller .item-assistant").length > 1);
  assert.deepEqual(await order(), streamed);
  await page.getByRole("button", { name: /read_ledger/ }).click();
  await holds(async () => assert.match(await page.locator(".side-page").innerText(), /q2\.csv/));
  await holds(async () => assert.match(await page.locator('[data-block="weather"]').innerText(), /unknown type: weather/));
  await holds(async () => assert.match(await page.locator('[data-block="file"] a').innerText(), /report\.pdf on example\.org/));
  await page.getByRole("button", { name: "Show last year" }).click();
  await until(page, () => [...document.querySelectorAll(".bubble")].some((bubble) => bubble.innerText.includes("Show last year")));
  assert.deepEqual(page.problems, []);
  assert.deepEqual(page.foreign, []);
});

test("a connection cut in mid-text comes back whole: nothing is lost or doubled", async (t) => {
  const [first, second] = [gate(), gate()];
  const upstream = await agent(t, async (send, input, response) => {
    send({ type: "RUN_STARTED", threadId: input.threadId, runId: input.runId });
    send({ type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" });
    const words = (from, to) => {
      for (let at = from; at < to; at += 1) send({ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: `w${at} ` });
    };
    words(0, 50);
    await first.opened;
    words(50, 100);
    await second.opened;
    words(100, 150);
    send({ type: "TEXT_MESSAGE_END", messageId: "m" });
    send({ type: "RUN_FINISHED", threadId: input.threadId, runId: input.runId });
    response.end();
  });
  const { url } = await serve(t, ["--ag-ui", upstream]);
  const page = await (await browser(t)).page();
  await open(page, url);
  await say(page, "go");
  await until(page, () => document.querySelector(".scroller")?.innerText.includes("w49"));
  await page.getByRole("button", { name: "Cut my connection" }).click();
  first.open();
  await page.waitForSelector('[data-verdict="whole"]');
  second.open();
  await ended(page);
  const words = (await page.locator(".item-assistant").innerText()).match(/w\d+/g);
  assert.deepEqual(words, Array.from({ length: 150 }, (_, at) => `w${at}`));
  assert.deepEqual(page.problems, []);
});

test("two pages see one run live, a reload in mid-run goes on, pause and stop work", async (t) => {
  const steps = [gate(), gate()];
  const upstream = await agent(t, async (send, input, response) => {
    send({ type: "RUN_STARTED", threadId: input.threadId, runId: input.runId });
    send({ type: "TEXT_MESSAGE_START", messageId: `m-${input.runId}`, role: "assistant" });
    send({ type: "TEXT_MESSAGE_CONTENT", messageId: `m-${input.runId}`, delta: "one " });
    await steps[0].opened;
    send({ type: "TEXT_MESSAGE_CONTENT", messageId: `m-${input.runId}`, delta: "two " });
    await steps[1].opened;
    send({ type: "TEXT_MESSAGE_CONTENT", messageId: `m-${input.runId}`, delta: "three " });
    response.on("close", () => {});
  });
  const { url } = await serve(t, ["--ag-ui", upstream]);
  const chrome = await browser(t);
  const [one, two] = [await chrome.page(), await chrome.page()];
  await open(one, url);
  await say(one, "go");
  await until(one, () => document.querySelector(".item-assistant")?.innerText.includes("one"));
  await two.goto(one.url());
  await until(two, () => document.querySelector(".item-assistant")?.innerText.includes("one"));
  steps[0].open();
  for (const page of [one, two]) await until(page, () => document.querySelector(".item-assistant")?.innerText.includes("two"));
  await one.reload();
  await until(one, () => document.querySelector(".item-assistant")?.innerText.includes("one two"));
  await holds(async () => assert.match(await one.locator(".bubble").innerText(), /go/));
  await one.getByRole("button", { name: "Pause" }).click();
  await one.getByRole("button", { name: "Resume" }).waitFor();
  await two.getByRole("button", { name: "Resume" }).waitFor();
  await two.getByRole("button", { name: "Resume" }).click();
  await one.getByRole("button", { name: "Pause" }).waitFor();
  steps[1].open();
  for (const page of [one, two]) await until(page, () => document.querySelector(".item-assistant")?.innerText.includes("three"));
  await one.getByRole("button", { name: "Stop" }).click();
  for (const page of [one, two]) await ended(page);
  // A run that one page starts appears in the other without a click.
  await say(one, "again");
  await until(two, () => document.querySelectorAll(".bubble").length === 2);
  assert.deepEqual([...one.problems, ...two.problems], []);
});

test("thumbs, score and comment are stored", async (t) => {
  const { url } = await serve(t);
  const page = await (await browser(t)).page();
  await open(page, url);
  await say(page, "tools");
  await ended(page);
  await page.locator(".tool").first().getByRole("button", { name: "Good" }).click();
  await page.locator(".run-footer").getByRole("button", { name: "Comment" }).click();
  await page.fill("#judge-comment", "clear");
  await page.fill("#judge-score", "0.5");
  await page.getByRole("button", { name: "Send feedback" }).click();
  await page.locator(".run-footer").getByText("Recorded").waitFor();
  await page.locator(".item-assistant").first().hover();
  await page.locator(".item-assistant").first().getByRole("button", { name: "Bad" }).click();
  await page.locator(".item-assistant").first().getByText("Recorded").waitFor();
  const thread = page.url().split("/").at(-2);
  const given = await (await fetch(`${url}/threads/${thread}/feedback`)).json();
  assert.equal(given.length, 3);
  assert.ok(given[0].toolCallId && given[0].rating === "up");
  assert.ok(given[1].runId && given[1].comment === "clear" && given[1].score === 0.5);
  assert.ok(given[2].messageId && given[2].rating === "down");
});
