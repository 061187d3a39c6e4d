// Look, find, decide, operate, offline.

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import test from "node:test";
import { agent, browser, ended, folder, holds, open, recordTasks, root, say, serve, until, view } from "./support.mjs";

test("the timeline shows one event in three protocols, and the state at its position", async (t) => {
  const { url } = await serve(t);
  const page = await (await browser(t)).page();
  await open(page, url);
  await say(page, "tools state fail");
  await ended(page);
  await page.getByRole("link", { name: "Timeline" }).last().click();
  await page.locator(".virtual-row").first().waitFor();
  await page.fill('input[type="search"]', "TEXT_MESSAGE_CONTENT");
  await page.locator(".virtual-row").first().click();
  const bytes = async (protocol) => page.locator(`pre[data-protocol="${protocol}"]`).innerText();
  assert.match(await bytes("ag-ui"), /^data: \{"type":"TEXT_MESSAGE_CONTENT"/);
  assert.match(await bytes("hai"), /BUSINESS_DATA_CONTENT/);
  assert.match(await bytes("ai-sdk"), /"type":"text-delta"/);
  // The bytes are those of the routes.
  const [, , , , run] = new URL(page.url()).hash.split("/");
  const stream = await (await fetch(`${url}/runs/${run}/stream?format=hai`)).text();
  const shown = (await bytes("hai")).trim().split("\n")[0];
  assert.ok(stream.includes(shown), shown);
  await page.fill('input[type="search"]', "STATE_DELTA");
  await page.locator(".virtual-row").nth(1).click();
  await holds(async () => assert.match(await page.locator(".diff").innerText(), /\/demo\/progress[\s\S]*25[\s\S]*50/));
  await page.fill('input[type="search"]', "");
  await page.getByRole("button", { name: "Next error" }).click();
  await holds(async () => assert.match(await page.locator(".timeline-detail h2").innerText(), /RUN_ERROR/));
  // By keyboard.
  await page.locator(".virtual").focus();
  await page.keyboard.press("Home");
  await until(page, () => document.querySelector(".timeline-detail h2")?.innerText.includes("RUN_STARTED"));
  await page.keyboard.press("ArrowDown");
  await holds(async () => assert.match(await page.locator(".timeline-detail h2").innerText(), /^1/));
  const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Download" }).click()]);
  const lines = fs.readFileSync(await file.path(), "utf8").trim().split("\n").map((line) => JSON.parse(line));
  assert.equal(lines.at(-1).type, "RUN_ERROR");
  assert.deepEqual(page.problems, []);
});

const RUNS = {
  "one text": (send) => {
    send({ type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" });
    for (let at = 0; at < 10_000; at += 1) send({ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: `word${at} ` });
    send({ type: "TEXT_MESSAGE_END", messageId: "m" });
  },
  "many calls and patches": (send) => {
    for (let at = 0; at < 2000; at += 1) {
      send({ type: "TOOL_CALL_START", toolCallId: `c${at}`, toolCallName: "look" });
      send({ type: "TOOL_CALL_ARGS", toolCallId: `c${at}`, delta: `{"at":${at}}` });
      send({ type: "TOOL_CALL_END", toolCallId: `c${at}` });
      send({ type: "TOOL_CALL_RESULT", messageId: `r${at}`, toolCallId: `c${at}`, content: "done" });
      send({ type: "STATE_DELTA", delta: [{ op: "add", path: `/k${at % 50}`, value: at }] });
    }
    send({ type: "STATE_SNAPSHOT", snapshot: {} });
    send({ type: "STATE_SNAPSHOT", snapshot: { at: 1 } });
  },
};

for (const [name, write] of Object.entries(RUNS)) {
  test(`10,000 events, ${name}: few elements in the page, no long task, also while it scrolls`, async (t) => {
    const upstream = await agent(t, (send, input, response) => {
      send({ type: "RUN_STARTED", threadId: input.threadId, runId: input.runId });
      write(send);
      send({ type: "RUN_FINISHED", threadId: input.threadId, runId: input.runId });
      response.end();
    });
    const { url } = await serve(t, ["--ag-ui", upstream]);
    const page = await (await browser(t)).page();
    await open(page, url);
    const tasks = await recordTasks(page);
    const elements = () => page.evaluate(() => document.querySelectorAll("*").length);
    await say(page, "go");
    await ended(page);
    const inTalk = await elements();
    // At most 200 items are drawn at once.
    assert.ok(inTalk < 10_000, `${inTalk} elements`);
    if (name === "one text") await holds(async () => assert.match(await page.locator(".item-assistant").innerText(), /word9999/));
    await page.getByRole("link", { name: "Timeline" }).last().click();
    await until(page, () => document.querySelector("[data-count]")?.dataset.count === "10004");
    for (let at = 0; at <= 40; at += 1) {
      await page.locator(".virtual").evaluate((box, part) => (box.scrollTop = (box.scrollHeight * part) / 40), at);
      await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
      const rows = await page.locator(".virtual-row").count();
      assert.ok(rows > 0 && rows <= 1000, `${rows} rows`);
    }
    const inLook = await elements();
    assert.ok(inLook < 2000, `${inLook} elements`);
    await page.locator(".virtual").focus();
    await page.keyboard.press("End");
    await holds(async () => assert.match(await page.locator(".timeline-detail h2").innerText(), /10003\s*RUN_FINISHED/));
    const { count, cpuMs, wallMs } = await tasks();
    t.diagnostic(`${count} tasks, longest ${cpuMs.toFixed(1)} ms of processor time, ${wallMs.toFixed(1)} ms by the clock; ${inTalk} and ${inLook} elements`);
    assert.ok(count > 0 && cpuMs <= 200, `a task of ${cpuMs} ms of processor time`);
    assert.deepEqual(page.problems, []);
  });
}

test("100 tokens a second: a token changes the end of the text and nothing else", async (t) => {
  const TOKENS = 400;
  const upstream = await agent(t, async (send, input, response) => {
    send({ type: "RUN_STARTED", threadId: input.threadId, runId: input.runId });
    send({ type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" });
    for (let at = 0; at < TOKENS; at += 1) {
      send({ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: at % 40 === 39 ? `word${at}.\n\n` : `word${at} ` });
      await new Promise((wake) => setTimeout(wake, 10));
    }
    send({ type: "TEXT_MESSAGE_END", messageId: "m" });
    send({ type: "RUN_FINISHED", threadId: input.threadId, runId: input.runId });
    response.end();
  });
  const { url } = await serve(t, ["--ag-ui", upstream]);
  const page = await (await browser(t)).page();
  await open(page, url);
  const tasks = await recordTasks(page);
  await say(page, "go");
  await until(page, () => document.querySelector(".item-assistant")?.innerText.includes("word39"));
  await page.evaluate(() => {
    globalThis.records = 0;
    globalThis.earlier = 0;
    new MutationObserver((list) => {
      globalThis.records += list.length;
      const all = [...document.querySelectorAll(".item-assistant .markdown > *")];
      // Changes of a block before the last two: the work would grow with the text.
      globalThis.earlier += list.filter(({ target }) => all.slice(0, -2).some((block) => block.contains(target))).length;
    }).observe(document.querySelector(".item-assistant"), { subtree: true, childList: true, characterData: true });
  });
  await ended(page);
  const { records, earlier } = await page.evaluate(() => ({ records: globalThis.records, earlier: globalThis.earlier }));
  const { cpuMs } = await tasks();
  t.diagnostic(`${TOKENS} tokens: ${records} changes of the page, ${earlier} of them before the end of the text; longest task ${cpuMs.toFixed(1)} ms`);
  assert.ok(records > 0 && records <= 4 * TOKENS, `${records} changes`);
  assert.equal(earlier, 0);
  assert.ok(cpuMs <= 200, `a task of ${cpuMs} ms`);
  assert.deepEqual(page.problems, []);
});

test("threads are found, renamed, exported, deleted", async (t) => {
  const { url } = await serve(t);
  const page = await (await browser(t)).page();
  await open(page, url);
  await say(page, "hello needle");
  await ended(page);
  await page.goto(`${url}/console#/talk/demo`);
  await page.reload();
  await page.waitForSelector("#composer-text");
  await say(page, "tools");
  await ended(page);
  await page.getByRole("link", { name: "Threads" }).click();
  await until(page, () => document.querySelectorAll(".threads tbody tr").length === 2);
  await page.fill("#find-query", "NEEDLE");
  await until(page, () => document.querySelectorAll(".threads tbody tr").length === 1);
  await page.getByRole("button", { name: "Rename" }).click();
  await page.fill("#rename-title", "A new name");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("link", { name: "A new name" }).waitFor();
  const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Export" }).click()]);
  assert.match(fs.readFileSync(await file.path(), "utf8"), /^\{"type":"RUN_STARTED"/);
  await page.getByRole("button", { name: "Runs" }).click();
  await page.locator("dialog .picks a").waitFor();
  await page.keyboard.press("Escape");
  await page.locator("dialog").waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Delete" }).click();
  await page.locator("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByText("Nothing found").waitFor();
  await page.fill("#find-query", "");
  await until(page, () => document.querySelectorAll(".threads tbody tr").length === 1);
  assert.deepEqual(page.problems, []);
});

for (const [name, press, expected] of [
  ["approve", async (page) => page.getByRole("button", { name: "Approve" }).click(), { approved: true }],
  ["deny", async (page) => page.getByRole("button", { name: "Deny" }).click(), { approved: false }],
  [
    "edit",
    async (page) => {
      await page.getByRole("button", { name: "Edit arguments" }).click();
      await page.locator('textarea[name="arguments"]').fill('{"amount": 10, "currency": "EUR"}');
      await page.getByRole("button", { name: "Approve with these arguments" }).click();
    },
    { approved: true, editedArgs: { amount: 10, currency: "EUR" } },
  ],
]) {
  test(`a question is decided at the desk: ${name}`, async (t) => {
    const { url } = await serve(t);
    const page = await (await browser(t)).page();
    await open(page, url);
    await say(page, "approve");
    await ended(page);
    const thread = page.url().split("/").at(-2);
    await page.getByRole("link", { name: "Decisions" }).click();
    const card = page.locator(".decision");
    assert.match(await card.innerText(), /Pay 40 EUR\?[\s\S]*"amount": 40[\s\S]*[0-9a-f]{64}/);
    await press(page);
    await page.locator(".past li").waitFor();
    await page.locator(".decision").waitFor({ state: "detached" });
    await holds(async () => assert.match(await page.locator(".past").innerText(), /default-user/));
    const all = await (await fetch(`${url}/threads/${thread}/pending?all=true`)).json();
    const given = all[0].answer.content;
    assert.deepEqual(given.payload ?? given, expected);
    assert.deepEqual(page.problems, []);
  });
}

test("operations show the health of agents, repairs and refusals", async (t) => {
  const { url } = await serve(t);
  const page = await (await browser(t)).page();
  await open(page, url);
  await say(page, "fail");
  await ended(page);
  await page.getByRole("link", { name: "Operations" }).click();
  const card = page.locator(".agents .card");
  await until(page, () => document.querySelector(".agents .card")?.innerText.includes("DEMO_FAILURE") || /Last error/.test(document.querySelector(".agents .card")?.innerText ?? ""));
  assert.match(await card.innerText(), /started\s*1[\s\S]*failed\s*1[\s\S]*first event/);
  await until(page, () => /ready[\s\S]*Version \d/.test(document.querySelector(".tiles")?.innerText ?? ""));
  assert.deepEqual(page.problems, []);
});

test("a recording is viewed with its violations, two with their differences", async (t) => {
  const fixtures = path.join(root, "e2e/fixtures");
  const chrome = await browser(t);
  const page = await chrome.page();
  const broken = await view(t, path.join(fixtures, "broken_orphans.jsonl"));
  assert.match(broken.out(), /^http:\/\/127\.0\.0\.1:\d+\/\S*\n$/);
  await page.goto(broken.url);
  await page.locator(".tag.is-error").first().waitFor();
  await holds(async () => assert.match(await page.locator(".recording-head").innerText(), /ag-ui, \d+ events[\s\S]*violation/));
  await page.getByRole("button", { name: "Next error" }).click();
  await holds(async () => assert.match(await page.locator(".timeline-detail .problem-box").innerText(), /Violation/));
  broken.child.kill("SIGINT");
  assert.deepEqual(await broken.ended, { code: 0, signal: null });

  const made = folder(t);
  const [a, b] = [path.join(made, "a.jsonl"), path.join(made, "b.jsonl")];
  const event = (delta, at) => JSON.stringify({ type: "TEXT_MESSAGE_CONTENT", messageId: `m${at}`, delta, timestamp: at });
  const whole = (deltas, at) =>
    [`{"type":"RUN_STARTED","threadId":"t","runId":"r${at}"}`, `{"type":"TEXT_MESSAGE_START","messageId":"m${at}","role":"assistant"}`, ...deltas.map((delta) => event(delta, at)), `{"type":"TEXT_MESSAGE_END","messageId":"m${at}"}`, `{"type":"RUN_FINISHED","threadId":"t","runId":"r${at}"}`].join("\n");
  fs.writeFileSync(a, whole(["x", "y", "z"], 1));
  fs.writeFileSync(b, whole(["x", "CHANGED", "z", "more"], 2));
  const both = await view(t, a, b);
  await page.goto(both.url);
  await page.getByText("2 differences").waitFor();
  await holds(async () => assert.equal(await page.locator(".recording").count(), 2));
  await holds(async () => assert.equal(await page.locator(".event.is-different").count(), 2));
  await holds(async () => assert.equal(await page.locator(".event.is-only").count(), 1));
  const hai = await view(t, path.join(root, "crates/agentwire-core/src/format/hai/fixtures/reference_chat.sse"));
  await page.goto(hai.url);
  await until(page, () => /hai, \d+ events/.test(document.querySelector(".recording-head")?.innerText ?? ""));
  assert.deepEqual(page.problems, []);
});
