// Pages with the packages of CopilotKit, gateways and agents.

import path from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

import { pages } from "../support/pages.mjs";

export { PATIENCE_MS, agent, agentInHalves, browser, folder, gate, serve } from "../console/support.mjs";
export { holds, until } from "../support/pages.mjs";

export const pageServer = pages(build, path.join(path.dirname(fileURLToPath(import.meta.url)), "pages"));

/**
 * Sends a message and waits until the page shows it. CopilotKit drops a message that is sent before the page knows the agents
 * of the runtime; nothing in the page tells when that is, so the message is sent again, as a person would.
 */
export async function send(page, input, text) {
  const count = async () => (await page.locator("body").innerText()).split(text).length;
  const before = await count();
  for (let attempt = 0; attempt < 6; attempt += 1) {
    await input.fill(text);
    await input.press("Enter");
    for (let tries = 0; tries < 500; tries += 1) {
      if ((await count()) > before) return;
      await new Promise((wake) => setTimeout(wake, 20));
    }
  }
  throw new Error(`the page does not show the message \`${text}\``);
}
