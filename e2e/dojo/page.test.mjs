// CopilotKit's page in Chromium with LangGraph graphs behind the gateway: state that arrives while a node works.

import assert from "node:assert/strict";
import http from "node:http";
import path from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { browser, pageServer, send, until } from "../faces/support.mjs";
import { serve, start } from "../langgraph/server.mjs";

const here = path.dirname(fileURLToPath(import.meta.url));
const GRAPHS = ["predictive_state_updates", "agentic_generative_ui"];

let server;
before(async () => {
  server = await start(path.join(here, "agent"));
});
after(() => server?.stop());

/**
 * Asks a graph in the page; returns the states that the page has had. The graph goes on in its middle when `enough` holds
 * for the states of the page, so they are those of a live run.
 */
async function asked(t, graph, question, enough, last) {
  const site = await pageServer(t, "copilotkit");
  const agents = GRAPHS.map((name) => `[agents.${name}]\nupstream = { kind = "langgraph", url = "${server.url}", graph = "${name}" }\n`);
  const gateway = await serve("--config", { config: `cors = ["${site}"]\n${agents.join("\n")}` });
  t.after(() => gateway.stop());
  const page = await (await browser(t)).page();
  const states = () => page.evaluate(() => window.states);
  const gate = http.createServer(async (_, response) => {
    const had = await until(async () => enough(await states()), async () => `states of the page: ${JSON.stringify(await states())}`).catch((error) => error);
    response.writeHead(had === true ? 200 : 500);
    response.end();
  });
  await new Promise((resolve) => gate.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    gate.closeAllConnections();
    gate.close();
  });
  await page.goto(`${site}/?${new URLSearchParams({ gateway: gateway.url, agent: graph, thread: crypto.randomUUID() })}`);
  const input = page.locator("textarea").first();
  await send(page, input, `${question} after http://127.0.0.1:${gate.address().port}/`);
  await until(async () => (await page.locator("body").innerText()).includes(last), async () => `\`${last}\` in the page; its states: ${JSON.stringify(await states())}`);
  return states();
}

const completed = (states) => states.filter(({ steps }) => steps).map(({ steps }) => steps.filter(({ status }) => status === "completed").length);
const distinct = (states) => new Set(states.map(({ document }) => document).filter(Boolean));

test("predictive_state_updates: the page shows the document while its arguments are streamed", async (t) => {
  const states = await asked(t, "predictive_state_updates", "write", (states) => distinct(states).size > 1, "Do you like it?");
  const documents = states.map(({ document }) => document).filter(Boolean);
  const whole = documents.at(-1);
  const parts = documents.filter((document) => document !== whole);
  assert.ok(parts.length > 1, `parts before the whole: ${JSON.stringify(documents)}`);
  for (const [index, part] of parts.entries()) {
    assert.ok(whole.startsWith(part), part);
    assert.ok(part.length >= (parts[index - 1]?.length ?? 0), "each is longer than the one before");
  }
});

test("agentic_generative_ui: the page shows the steps that a node emits by hand while it works", async (t) => {
  const states = await asked(t, "agentic_generative_ui", "work", (states) => completed(states).includes(1), "All done.");
  const done = completed(states);
  assert.deepEqual([...new Set(done)].sort(), [1, 2], JSON.stringify(done));
});
