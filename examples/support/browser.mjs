// A page in a real browser, for the tests of the examples.

import fs from "node:fs";

import { Group } from "./processes.mjs";

/** Timeout for any wait; generous, for busy machines. */
const PATIENCE_MS = 180_000;

const candidates = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/** Starts an example with `begin`, opens its page, and checks it with `look`. */
export async function inBrowser(puppeteer, begin, look) {
  const executablePath = process.env.CHROMIUM ?? candidates.find((file) => fs.existsSync(file));
  if (!executablePath) throw new Error("no browser was found: install `chromium`, or name one in CHROMIUM");
  const group = new Group();
  let browser;
  try {
    const address = await begin(group);
    // Containers lack the privileges for Chromium's sandbox and have a small /dev/shm.
    const args = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-proxy-server"];
    browser = await puppeteer.launch({ executablePath, args, userDataDir: `${group.folder}/browser`, timeout: PATIENCE_MS, protocolTimeout: 2 * PATIENCE_MS });
    const page = await browser.newPage();
    page.setDefaultTimeout(PATIENCE_MS);
    const problems = [];
    page.on("pageerror", (error) => problems.push(error.message));
    const open = async (where = address) => {
      await page.goto(where);
      await page.waitForSelector("[data-ready]");
    };
    const text = () => page.evaluate(() => document.body.innerText);
    const ask = async (question) => {
      await page.type("#question", question);
      await page.click("button");
    };
    const shows = async (wanted) => {
      const is = (wanted) => document.body.innerText.includes(wanted);
      await page.waitForFunction(is, {}, wanted).catch(async () => {
        throw new Error(`the page does not show \`${wanted}\` but:\n${await text()}\n${problems.join("\n")}`);
      });
    };
    await open();
    await look({ page, open, ask, shows, text });
    // A picture of the last state, for the eye.
    if (process.env.SCREENSHOT) await page.screenshot({ path: process.env.SCREENSHOT });
    if (problems.length > 0) throw new Error(`the page had problems:\n${problems.join("\n")}`);
  } finally {
    await browser?.close();
    await group.stop();
  }
}
