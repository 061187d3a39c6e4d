// A hostile agent, accessibility, languages, sign-in, sizes of the screen.

import assert from "node:assert/strict";
import path from "node:path";
import test from "node:test";
import { agent, browser, ended, findings, holds, open, root, say, serve, until, view } from "./support.mjs";

const HOSTILE = [
  "<script>globalThis.hacked = 1</script>",
  "<img src=x onerror=\"globalThis.hacked = 2\">",
  "<svg onload=\"globalThis.hacked = 3\"><a xlink:href=\"javascript:globalThis.hacked=4\">x</a></svg>",
  "[click](javascript:globalThis.hacked=5) [data](data:text/html,<script>hacked=6</script>) [vb](vbscript:x) [tab](java\tscript:globalThis.hacked=7)",
  "![picture](https://evil.example/track.png) ![script](javascript:globalThis.hacked=8) <iframe src=\"https://evil.example\"></iframe>",
  "<style>body{display:none}</style><form action=\"https://evil.example\"><input name=a></form>",
  "[rel](//evil.example/x) <https://evil.example/auto> [upper](JaVaScRiPt:globalThis.hacked=9)",
  "| a | b |\n|---|---|\n| <b onmouseover=\"globalThis.hacked=10\">x</b> | y |",
].join("\n\n");

test("a hostile agent runs nothing, loads nothing and breaks nothing", async (t) => {
  const upstream = await agent(t, (send, input, response) => {
    const id = input.runId;
    send({ type: "RUN_STARTED", threadId: input.threadId, runId: id });
    send({ type: "TEXT_MESSAGE_START", messageId: `${id}-m`, role: "assistant" });
    send({ type: "TEXT_MESSAGE_CONTENT", messageId: `${id}-m`, delta: HOSTILE });
    send({ type: "TEXT_MESSAGE_CONTENT", messageId: `${id}-m`, delta: `\n\n${"A".repeat(1 << 20)}\n\n` });
    send({ type: "TEXT_MESSAGE_END", messageId: `${id}-m` });
    const block = (type, data, number) => send({ type: "ACTIVITY_SNAPSHOT", messageId: `${id}-${number}`, activityType: `hai.${type}`, content: { type, data } });
    block("image", { url: "javascript:globalThis.hacked=11", mimeType: "image/png", name: "a" }, 1);
    block("image", { data: "PHN2Zy8+", mimeType: "image/svg+xml", name: "svg" }, 2);
    block("image", { url: "https://evil.example/pixel.png", mimeType: "image/png", name: "pixel" }, 3);
    block("video", { url: "http://evil.example/v.mp4", mimeType: "video/mp4", name: "v" }, 4);
    block("source", { url: "javascript:globalThis.hacked=12", title: "s" }, 5);
    block("unheard", { html: "<script>globalThis.hacked=13</script>" }, 6);
    block("icon", { icon: "x", color: "red;background:url(https://evil.example/c)" }, 7);
    block("table", { columns: "no list", rows: 3 }, 8);
    block("echarts", { option: { title: { text: "<img src=x onerror=globalThis.hacked=14>", link: "javascript:globalThis.hacked=15" }, tooltip: { formatter: "<img src=x onerror=globalThis.hacked=16>" }, xAxis: {}, yAxis: {}, series: [{ type: "scatter", symbol: "image://https://evil.example/s.png", data: [[1, 2]] }], graphic: [{ type: "image", style: { image: "https://evil.example/g.png" } }] } }, 9);
    block("toolCallShow", { tools: "no list", title: { a: 1 } }, 10);
    block("fold", { title: "never closed", position: "start" }, 11);
    send({ type: "ACTIVITY_SNAPSHOT", messageId: `${id}-n`, activityType: "x.<b>", content: { items: [null, 1, { name: { deep: true } }] } });
    send({ type: "STATE_SNAPSHOT", snapshot: { __proto__x: 1 } });
    send({ type: "STATE_DELTA", delta: [{ op: "add", path: "/__proto__/polluted", value: 1 }, { op: "add", path: "/constructor", value: { prototype: { polluted: 1 } } }] });
    send({ type: "TOOL_CALL_START", toolCallId: `${id}-c`, toolCallName: "pay\u202egnp.exe", parentMessageId: `${id}-m` });
    send({ type: "TOOL_CALL_ARGS", toolCallId: `${id}-c`, delta: JSON.stringify({ to: "alice\u202ebob\u200b\u2066", "\u202ekey": "</pre><script>globalThis.hacked=17</script>" }) });
    send({ type: "TOOL_CALL_END", toolCallId: `${id}-c` });
    send({ type: "CUSTOM", name: "<b>", value: { a: "<script>" } });
    send({ type: "RUN_FINISHED", threadId: input.threadId, runId: id, outcome: { type: "interrupt", interrupts: [{ id: `${id}-i`, reason: "tool_call", toolCallId: `${id}-c`, message: "Pay\u202e?<script>globalThis.hacked=18</script>", responseSchema: { type: "object", properties: { "<b>": { type: "string", title: "<img src=x onerror=globalThis.hacked=19>" } } } }] } });
    response.end();
  });
  const { url } = await serve(t, ["--ag-ui", upstream]);
  const page = await (await browser(t)).page();
  page.on("dialog", () => page.problems.push("a dialogue"));
  await open(page, url);
  await say(page, "hello");
  await page.locator(".decision").waitFor();
  const check = async () => {
    assert.equal(await page.evaluate(() => globalThis.hacked), undefined);
    assert.equal(await page.evaluate(() => ({}).polluted), undefined);
    assert.deepEqual(page.foreign, []);
    assert.deepEqual(page.problems, []);
    const links = await page.evaluate(() => [...document.querySelectorAll("main a[href], main [src]")].map((it) => it.getAttribute("href") ?? it.getAttribute("src")));
    for (const link of links) assert.match(link, /^(#|https?:|mailto:|data:image\/(png|jpeg)|blob:)/, link);
    assert.equal(await page.locator("main script, main iframe, main style, main object, main embed").count(), 0);
  };
  await check();
  const card = await page.locator(".decision").innerText();
  assert.match(card, /alice\\u202ebob\\u200b\\u2066/);
  assert.doesNotMatch(card, /[\u202e\u2066\u200b]/);
  await holds(async () => assert.match(await page.locator(".tool").first().innerText(), /pay\\u202egnp\.exe/));
  // The page still works: the timeline, the state, an answer.
  await page.locator(".chart-canvas canvas").waitFor();
  await page.getByRole("button", { name: "State" }).click();
  await page.locator(".state-pane").waitFor();
  await check();
  await page.getByRole("link", { name: "Timeline" }).last().click();
  await page.locator(".virtual-row").nth(2).click();
  await page.locator("pre[data-protocol='ag-ui']").waitFor();
  await check();
  await page.getByRole("link", { name: "Decisions" }).click();
  await page.getByRole("button", { name: "Approve" }).click();
  await page.locator(".past li").first().waitFor();
  await check();
});

test("axe-core finds nothing serious in any view, in both themes, both languages and at phone width", async (t) => {
  const { url } = await serve(t);
  const chrome = await browser(t);
  for (const options of [
    { colorScheme: "light" },
    { colorScheme: "dark" },
    { colorScheme: "light", locale: "zh-CN", viewport: { width: 360, height: 740 } },
  ]) {
    const page = await chrome.page({ ...options, reducedMotion: "reduce" });
    await open(page, url);
    assert.deepEqual(await findings(page), [], `empty ${JSON.stringify(options)}`);
    await say(page, "think tools tool error state steps subagent plan media approve");
    await page.locator(".decision").waitFor();
    assert.deepEqual(await findings(page), [], `talk ${JSON.stringify(options)}`);
    for (const view of ["find", "decide", "operate"]) {
      await page.goto(`${url}/console#/${view}`);
      await page.locator(view === "find" ? ".threads" : view === "decide" ? ".decision" : ".agents .card").first().waitFor();
      assert.deepEqual(await findings(page), [], `${view} ${JSON.stringify(options)}`);
      const width = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert.ok(width <= 0, `${view} is ${width} pixels too wide`);
    }
    const { threads } = await (await fetch(`${url}/threads?limit=1`)).json();
    await page.goto(`${url}/console#/look/demo/${threads[0].threadId}/${threads[0].runId}`);
    await page.locator(".virtual-row").nth(3).click();
    await page.locator("pre[data-protocol='hai']").waitFor();
    assert.deepEqual(await findings(page), [], `look ${JSON.stringify(options)}`);
    await page.locator("nav button").click();
    await page.locator("dialog").waitFor();
    assert.deepEqual(await findings(page), [], `settings ${JSON.stringify(options)}`);
    assert.deepEqual(page.problems, []);
  }
});

test("axe-core finds nothing serious in the view of recordings", async (t) => {
  const fixtures = path.join(root, "e2e/fixtures");
  const one = await view(t, path.join(fixtures, "broken_orphans.jsonl"));
  const two = await view(t, path.join(fixtures, "broken_orphans.jsonl"), path.join(root, "e2e/console/blocks.jsonl"));
  const chrome = await browser(t);
  for (const options of [{ colorScheme: "light" }, { colorScheme: "dark", locale: "zh-CN" }, { viewport: { width: 360, height: 740 } }]) {
    const page = await chrome.page({ ...options, reducedMotion: "reduce" });
    for (const { url } of [one, two]) {
      await page.goto(url);
      await page.locator(".virtual-row").first().waitFor();
      assert.deepEqual(await findings(page), [], `${url} ${JSON.stringify(options)}`);
      await page.locator(".virtual-row").nth(2).click();
      await page.locator(".timeline-detail h2").first().waitFor();
      assert.deepEqual(await findings(page), [], `an event, ${url} ${JSON.stringify(options)}`);
      const width = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert.ok(width <= 0, `${width} pixels too wide, ${JSON.stringify(options)}`);
    }
    assert.deepEqual(page.problems, []);
  }
});

test("the language follows the browser, and a switch is kept", async (t) => {
  const { url } = await serve(t);
  const chrome = await browser(t);
  const page = await chrome.page({ locale: "zh-CN" });
  await open(page, url);
  await holds(async () => assert.equal(await page.locator("html").getAttribute("lang"), "zh-CN"));
  await page.getByRole("link", { name: "会话", exact: true }).waitFor();
  await page.getByRole("button", { name: "设置" }).click();
  await page.selectOption("#settings-language", "en");
  await page.getByRole("button", { name: "Save" }).click();
  await page.reload();
  await page.getByRole("link", { name: "Threads" }).waitFor();
  await holds(async () => assert.equal(await page.locator("html").getAttribute("lang"), "en"));
});

test("nothing jumps while text streams, and the whole conversation works by keyboard", async (t) => {
  const { url } = await serve(t);
  const page = await (await browser(t)).page();
  await page.addInitScript(() => {
    globalThis.shift = 0;
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) if (!entry.hadRecentInput) globalThis.shift += entry.value;
    }).observe({ type: "layout-shift", buffered: true });
  });
  await open(page, url);
  await page.locator("#composer-text").focus();
  await page.keyboard.type("long 120");
  await page.keyboard.press("Enter");
  await until(page, () => document.querySelector(".item-assistant")?.innerText.length > 100);
  await page.evaluate(() => (globalThis.shift = 0));
  await ended(page);
  const shift = await page.evaluate(() => globalThis.shift);
  assert.ok(shift < 0.1, `layout shift ${shift}`);
  // From the composer to the navigation by Tab alone.
  for (let presses = 0; presses < 60; presses += 1) {
    await page.keyboard.press("Tab");
    if (await page.evaluate(() => document.activeElement?.getAttribute("href") === "#/find")) break;
  }
  await page.keyboard.press("Enter");
  await page.locator(".threads").waitFor();
  assert.deepEqual(page.problems, []);
});
