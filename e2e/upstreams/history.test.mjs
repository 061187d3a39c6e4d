// A reloaded page: the history of a thread equals the messages that the real `useChat` client holds after the streams.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { Gateway, everyone } from "./gateway.mjs";

let gateway;
before(async () => {
  gateway = await Gateway.configured({
    demo: `{ kind = "demo" }`,
    static: `{ kind = "demo" }\nai_sdk = { options = { ui_tools = "all" } }`,
  });
});
after(() => gateway?.stop());

const pages = everyone.filter(([name]) => name.startsWith("ai"));
const plain = (value) => JSON.parse(JSON.stringify(value));

/** Compares the history with the messages of the page, with and without naming the profile. */
async function reloads(page, agent) {
  const path = `/agents/${agent}/message_snapshot/${page.thread}?format=ai-sdk`;
  const held = plain(page.chat.messages);
  assert.deepEqual(await gateway.get(`${path}&profile=${page.version[0]}`), held);
  assert.deepEqual(await gateway.get(path), held, "the profile of the thread is remembered");
}

const WORDS = ["hello", "think", "tools", "tool error", "state", "steps", "subagent", "plan", "media", "fail", "approve"];

for (const [name, open] of pages) {
  for (const agent of ["demo", "static"]) {
    test(`${name}: the history of ${agent} equals the streams of all its words`, async () => {
      for (const word of WORDS) {
        const page = await open(gateway, agent);
        await page.say(word);
        await reloads(page, agent);
      }
    });
  }

  for (const answer of [{ approved: true }, { approved: false, reason: "too dear" }]) {
    test(`${name}: a decision (${JSON.stringify(answer)}) is the same after a reload`, async () => {
      const page = await open(gateway, "demo");
      await page.say("approve");
      await reloads(page, "demo");
      await page.answer(() => answer);
      assert.equal(page.failed(), null);
      await reloads(page, "demo");
      await page.say("plan");
      await reloads(page, "demo");
    });
  }

  test(`${name}: the output of a front-end tool is the same after a reload`, async () => {
    const tools = [{ name: "confirmAction", description: "Asks.", parameters: { type: "object", properties: {} } }];
    const page = await open(gateway, "demo");
    await page.say("confirm", { tools });
    await reloads(page, "demo");
    await page.answer(() => "yes", { tools });
    assert.equal(page.failed(), null);
    await reloads(page, "demo");
  });

  test(`${name}: a file of the user keeps its name`, async () => {
    const page = await open(gateway, "demo");
    await page.chat.sendMessage({ text: "hello", files: [{ type: "file", mediaType: "text/plain", filename: "notes.txt", url: "data:text/plain;base64,aGk=" }] });
    await reloads(page, "demo");
  });
}
