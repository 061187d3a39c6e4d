#!/usr/bin/env node
// One command: `langgraph dev` with the agent, the gateway in front of it, and the page.

import fs from "node:fs";
import path from "node:path";

import { build } from "esbuild";

import { agentwire, main, port } from "../support/processes.mjs";

const here = import.meta.dirname;

/** Starts all processes; returns the page's URL. Ports: PAGE_PORT, GATEWAY_PORT, AGENT_PORT; 0 is any free port. */
export async function begin(group, { PAGE_PORT = 5173, GATEWAY_PORT = 7117, AGENT_PORT = 2024 } = process.env) {
  const [pagePort, gatewayPort, agentPort] = [await port(PAGE_PORT), await port(GATEWAY_PORT), await port(AGENT_PORT)];
  const [page, gateway, agent] = [pagePort, gatewayPort, agentPort].map((port) => `http://127.0.0.1:${port}`);

  // `langgraph dev` stores its threads beside the graph.
  const graph = path.join(group.folder, "agent");
  fs.cpSync(path.join(here, "agent"), graph, { recursive: true });
  const dev = ["dev", "--no-browser", "--no-reload", "--host", "127.0.0.1", "--port", String(agentPort)];
  const quiet = { LANGSMITH_TRACING: "false", LANGGRAPH_NO_VERSION_CHECK: "true", LANGGRAPH_CLI_NO_ANALYTICS: "1", PYTHONDONTWRITEBYTECODE: "1" };
  await group.start("langgraph", dev, { url: `${agent}/ok`, cwd: graph, env: quiet });

  // A page may read the gateway's responses if its origin is listed.
  const config = path.join(group.folder, "agentwire.toml");
  fs.writeFileSync(config, `cors = ["${page}"]\n`);
  const serve = ["serve", "--config", config, "--langgraph", agent, "--graph", "agent", "--listen", `127.0.0.1:${gatewayPort}`];
  await group.start(agentwire(), serve, { url: `${gateway}/readyz` });

  const folder = path.join(group.folder, "page");
  fs.cpSync(path.join(here, "page"), folder, { recursive: true });
  await build({
    entryPoints: [path.join(here, "page", "page.js")],
    outfile: path.join(folder, "page.js"),
    allowOverwrite: true,
    bundle: true,
    format: "esm",
    define: { GATEWAY: JSON.stringify(gateway) },
    logLevel: "error",
  });
  return group.serve(folder, pagePort);
}

if (process.argv[1] === import.meta.filename) await main(begin);
