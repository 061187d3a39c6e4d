// Pages with `useStream` in Chromium, of another origin than the gateway, one check per feature.

import assert from "node:assert/strict";
import test from "node:test";
import { startServer } from "../adk/peers.mjs";
import { agentInHalves, holds, until } from "./support.mjs";
import { chat, isOnce } from "./chat.mjs";

for (const transport of ["classic", "fetch"]) {
  test(`${transport}: chat with streaming, each message once`, async (t) => {
    const { page, say, shows, idle, texts } = await chat(t, { query: { transport } });
    await say("hello");
    await shows(/I am the demo agent/);
    await idle();
    await say("think and use tools");
    await shows(/weather/);
    await idle();
    await isOnce(page);
    assert.deepEqual((await texts("human")), ["hello", "think and use tools"]);
    assert.deepEqual(page.problems, []);
  });

  test(`${transport}: an interrupt is shown and answered`, async (t) => {
    const { page, say, idle } = await chat(t, { query: { transport } });
    await say("approve");
    await page.locator(".interrupt").waitFor();
    await page.locator("#approve").click();
    await page.locator(".interrupt").waitFor({ state: "detached" });
    await idle();
    await isOnce(page);
  });

  test(`${transport}: a failed run is an error of the page`, async (t) => {
    const { page, say } = await chat(t, { query: { transport } });
    await say("fail");
    await until(async () => /the demo agent failed/.test(await page.locator("#error").innerText().catch(() => "")), "the error");
  });
}

test("tool calls are drawn by the page", async (t) => {
  const { page, say, idle } = await chat(t);
  await say("tools");
  await until(async () => (await page.locator(".call").count()) > 0, "a call");
  await idle();
  assert.match((await page.locator(".call").allInnerTexts()).join(), /weather \{/);
  assert.match((await page.locator('#messages li[data-type="tool"] .text').allInnerTexts()).join(), /7 degrees/);
});

test("the history and the open question are there after a reload", async (t) => {
  const { page, say, shows, idle } = await chat(t);
  await say("hello");
  await shows(/I am the demo agent/);
  await idle();
  await say("approve");
  await page.locator(".interrupt").waitFor();
  await page.reload();
  await shows(/I am the demo agent/);
  await page.locator("#approve").click();
  await page.locator(".interrupt").waitFor({ state: "detached" });
  await idle();
  await isOnce(page);
});

test("the state of the agent is in the values", async (t) => {
  const { page, say } = await chat(t);
  await say("state");
  await until(async () => /"progress":100/.test(await page.locator("#values").innerText()), "the state");
});

test("a reload in mid-run shows the first half and the rest", async (t) => {
  const { upstream, half, rest } = await agentInHalves(t);
  const { page, say, shows, idle } = await chat(t, { query: { agent: "default" }, args: ["--ag-ui", upstream] });
  await say("go");
  await half.opened;
  await shows(/one half/);
  await page.reload();
  await shows(/one half/);
  rest.open();
  await shows(/one half, and the other/);
  await idle();
  assert.equal((await page.locator("body").innerText()).split("one half").length, 2, "once");
  await isOnce(page);
});

test("the stop button ends the run on the gateway", async (t) => {
  const { page, url, say, shows } = await chat(t);
  await say("slow");
  await shows(/This/);
  await page.locator("#stop").click();
  const thread = await page.evaluate(() => sessionStorage.getItem("thread"));
  await until(async () => {
    const [run] = await (await fetch(`${url}/langgraph/threads/${thread}/runs`)).json();
    return run.status === "interrupted";
  }, "the end of the run");
});

test("the list of threads", async (t) => {
  const { page, say, shows, idle } = await chat(t);
  await say("long 3");
  await shows(/word3/);
  await idle();
  await page.evaluate(() => sessionStorage.clear());
  await page.reload();
  await say("long 4");
  await shows(/word4/);
  await idle();
  await page.locator("#list").click();
  await until(async () => (await page.locator("#threads li").count()) === 2, "two threads");
  await holds(async () => assert.deepEqual(await page.locator("#threads li").allInnerTexts(), ["long 4", "long 3"]));
});

test("branches: an edited message, a regenerated answer, and the way back", async (t) => {
  const { page, say, shows, idle, texts } = await chat(t);
  await say("long 2");
  await shows(/word2/);
  await idle();
  await page.locator(".edit").click();
  await until(async () => (await texts("human"))[0] === "long 3", "the edited message");
  await shows(/word3/);
  await idle();
  await until(async () => (await page.locator(".branches").count()) > 0, "the branches");
  await holds(async () => assert.match(await page.locator(".branches").first().innerText(), /2\/2/));
  await page.locator(".branches button").first().click();
  await until(async () => (await texts("human"))[0] === "long 2", "the first variant");
  await page.locator(".regenerate").last().click();
  await idle();
  await until(async () => (await page.locator(".branches").count()) > 0, "the branches of the answer");
});

test("an ADK agent in LangGraph's hook", async (t) => {
  const adk = await startServer();
  t.after(adk.close);
  const { page, say, idle, texts } = await chat(t, { query: { agent: "default" }, args: ["--adk", adk.url, "--app", "demo"] });
  await say("weather in Paris");
  await until(async () => (await texts("ai")).some((text) => text.length > 0), "an answer");
  await idle();
  await isOnce(page);
});
