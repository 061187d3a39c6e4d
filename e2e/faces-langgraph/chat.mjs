// A page of `pages/` with a chat, in Chromium.

import assert from "node:assert/strict";
import { browser, pageServer, serve, until } from "./support.mjs";

/** A page with a chat; `query` selects the features. */
export async function chat(t, { query = {}, args = [], page: name = "usestream" } = {}) {
  const site = await pageServer(t, name);
  const { url } = await serve(t, ["--cors", site, ...args]);
  const page = await (await browser(t)).page();
  const open = (more = {}) => page.goto(`${site}/?${new URLSearchParams({ gateway: url, ...query, ...more })}`);
  await open();
  const input = page.locator("textarea").first();
  await input.waitFor();
  const say = async (text) => {
    await input.fill(text);
    await input.press("Enter");
  };
  const shows = (pattern) => until(async () => pattern.test(await page.locator("body").innerText()), `${pattern} in the page`);
  const idle = () => page.locator('main[data-loading="false"]').waitFor();
  const texts = (type) => page.locator(`#messages li[data-type="${type}"] .text`).allInnerTexts();
  return { page, url, open, say, shows, idle, texts };
}

/** Every message of the page is there once. */
export const isOnce = async (page) => {
  const ids = await page.locator("#messages li").evaluateAll((all) => all.map((item) => item.dataset.id));
  assert.equal(new Set(ids).size, ids.length, ids.join(" "));
};
