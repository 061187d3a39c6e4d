// The parts of the abilities that the other files do not touch: filter, gaps, raw frames, curl, status, forms, repairs.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import test from "node:test";
import { agent, browser, ended, holds, open, say, serve, until } from "./support.mjs";

const start = (send, input) => send({ type: "RUN_STARTED", threadId: input.threadId, runId: input.runId });
const finish = (send, input, response, outcome) => {
  send({ type: "RUN_FINISHED", threadId: input.threadId, runId: input.runId, ...(outcome && { outcome }) });
  response.end();
};

test("look: filter by kind, a gap in time, the raw frame, and a curl command that repeats the event", async (t) => {
  const upstream = await agent(t, (send, input, response) => {
    const at = Date.now();
    start(send, input);
    send({ type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant", timestamp: at });
    send({ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "before ", timestamp: at });
    send({ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "after", timestamp: at + 5000, rawEvent: { source: "model", token: 42 } });
    send({ type: "TEXT_MESSAGE_END", messageId: "m", timestamp: at + 5000 });
    send({ type: "STATE_SNAPSHOT", snapshot: { a: 1 }, timestamp: at + 5000 });
    finish(send, input, response);
  });
  const { url } = await serve(t, ["--ag-ui", upstream]);
  const page = await (await browser(t)).page();
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await open(page, url);
  await say(page, "go");
  await ended(page);
  await page.getByRole("link", { name: "Timeline" }).last().click();
  await until(page, () => document.querySelector("[data-count]")?.dataset.count === "7");
  await holds(async () => assert.match(await page.locator(".event .gap").innerText(), /5/));
  await page.locator(".menu summary").click();
  await page.getByRole("checkbox", { name: "text" }).uncheck();
  await until(page, () => document.querySelector("[data-count]")?.dataset.count === "3");
  await holds(async () => assert.equal(await page.locator(".virtual-row", { hasText: "TEXT_MESSAGE" }).count(), 0));
  await page.getByRole("checkbox", { name: "text" }).check();
  await page.locator(".menu summary").click();
  await page.locator(".virtual-row", { hasText: "after" }).click();
  await holds(async () => assert.match(await page.locator(".timeline-detail").innerText(), /"token": 42/));
  await page.getByRole("button", { name: "Copy as curl" }).click();
  const command = await page.evaluate(() => navigator.clipboard.readText());
  assert.match(command, /^curl -N '/);
  const told = execFileSync("sh", ["-c", `${command} -sS --max-time 60`], { encoding: "utf8" });
  assert.match(told.split("\n").find((line) => line.startsWith("data:")), /"delta":"after"/);
  assert.deepEqual(page.problems, []);
});

test("find: threads by status", async (t) => {
  const { url } = await serve(t);
  const page = await (await browser(t)).page();
  for (const word of ["hello", "fail"]) {
    await page.goto(`${url}/console#/talk/demo`);
    await page.reload();
    await page.waitForSelector("#composer-text");
    await say(page, word);
    await ended(page);
  }
  await page.getByRole("link", { name: "Threads" }).click();
  await until(page, () => document.querySelectorAll(".threads tbody tr").length === 2);
  await page.selectOption("#find-status", "failed");
  await until(page, () => document.querySelectorAll(".threads tbody tr").length === 1);
  await holds(async () => assert.match(await page.locator(".threads tbody").innerText(), /fail/));
  assert.deepEqual(page.problems, []);
});

test("decide: a question with a response schema and an expiry is answered by a form", async (t) => {
  const inputs = [];
  const upstream = await agent(t, (send, input, response) => {
    inputs.push(input);
    start(send, input);
    if (input.resume) return finish(send, input, response);
    const responseSchema = {
      type: "object",
      properties: { nights: { type: "integer", title: "Nights", minimum: 1 }, view: { type: "string", title: "View", enum: ["sea", "yard"] } },
      required: ["nights", "view"],
    };
    const expiresAt = new Date(Date.now() + 3_600_000).toISOString();
    finish(send, input, response, { type: "interrupt", interrupts: [{ id: "q1", reason: "input_required", message: "Which room?", responseSchema, expiresAt }] });
  });
  const { url } = await serve(t, ["--ag-ui", upstream]);
  const page = await (await browser(t)).page();
  await open(page, url);
  await say(page, "go");
  await page.locator(".decision").waitFor();
  await page.getByRole("link", { name: "Decisions" }).click();
  const card = page.locator(".decision");
  await card.waitFor();
  assert.match(await card.innerText(), /Which room\?[\s\S]*(expires|Expires)/);
  await card.getByLabel("Nights").fill("2");
  await card.getByLabel("View").selectOption("sea");
  await card.getByRole("button", { name: "Answer" }).click();
  await page.locator(".past li").waitFor();
  assert.deepEqual(inputs[1].resume[0].payload, { nights: 2, view: "sea" });
  assert.deepEqual(page.problems, []);
});

test("operate: repairs by rule, reconnects by verdict, refusals by code", async (t) => {
  let release;
  const held = new Promise((resolve) => (release = resolve));
  const upstream = await agent(t, async (send, input, response) => {
    start(send, input);
    // Without a start: the guard adds it.
    send({ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "orphan" });
    await held;
    finish(send, input, response);
  });
  const { url } = await serve(t, ["--ag-ui", upstream]);
  const page = await (await browser(t)).page();
  await open(page, url);
  await say(page, "go");
  await until(page, () => document.querySelector(".scroller")?.innerText.includes("orphan"));
  await page.getByRole("button", { name: "Cut my connection" }).click();
  await page.waitForSelector('[data-verdict="whole"]');
  release();
  await ended(page);
  await fetch(`${url}/runs/no-such-run`);
  await page.getByRole("link", { name: "Operations" }).click();
  await until(page, () => {
    const text = document.querySelector(".tables")?.innerText ?? "";
    return /Repairs by rule\s+[a-z-]+\s+[1-9]/.test(text) && /whole\s+[1-9]/.test(text) && /UNKNOWN_RUN\s+[1-9]/.test(text);
  });
  assert.deepEqual(page.problems, []);
});
