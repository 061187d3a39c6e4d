#!/usr/bin/env node
// One command: the Python agent, the gateway in front of it, and the page.

import fs from "node:fs";
import path from "node:path";

import { build } from "esbuild";

import { agentwire, main, port } from "../support/processes.mjs";

const here = import.meta.dirname;
const sdk = path.resolve(here, "../../sdk");

/** Starts all processes; returns the page's URL. Ports: PAGE_PORT, GATEWAY_PORT, AGENT_PORT; 0 is any free port. */
export async function begin(group, { PAGE_PORT = 5173, GATEWAY_PORT = 7117, AGENT_PORT = 8000 } = process.env) {
  const [pagePort, gatewayPort, agentPort] = [await port(PAGE_PORT), await port(GATEWAY_PORT), await port(AGENT_PORT)];
  const [page, gateway, agent] = [pagePort, gatewayPort, agentPort].map((port) => `http://127.0.0.1:${port}`);

  // The server kit is taken from this repository. `agentwire.hai` is pure Python.
  const env = { PORT: String(agentPort), PYTHONPATH: path.join(sdk, "python", "src"), PYTHONDONTWRITEBYTECODE: "1" };
  await group.start("python3", [path.join(here, "agent", "agent.py")], { url: `${agent}/openapi.json`, env });

  // A page may read the gateway's responses if its origin is listed.
  const config = path.join(group.folder, "agentwire.toml");
  fs.writeFileSync(config, `cors = ["${page}"]\n`);
  const serve = ["serve", "--config", config, "--hai", `${agent}/awp`, "--listen", `127.0.0.1:${gatewayPort}`];
  await group.start(agentwire(), serve, { url: `${gateway}/readyz` });

  const folder = path.join(group.folder, "page");
  fs.cpSync(path.join(here, "page"), folder, { recursive: true });
  await build({
    entryPoints: [path.join(here, "page", "page.js")],
    outfile: path.join(folder, "page.js"),
    allowOverwrite: true,
    bundle: true,
    format: "esm",
    // The client kit is taken from this repository too; it needs fast-json-patch of this example.
    alias: { "hai-client": path.join(sdk, "typescript", "hai-client", "src", "index.ts") },
    nodePaths: [path.join(here, "node_modules")],
    define: { GATEWAY: JSON.stringify(gateway) },
    logLevel: "error",
  });
  return group.serve(folder, pagePort);
}

if (process.argv[1] === import.meta.filename) await main(begin);
