#!/usr/bin/env node
// One command: `adk api_server` with the agent, the gateway in front of it, and the page.

import fs from "node:fs";
import path from "node:path";

import { build } from "esbuild";

import { agentwire, main, port } from "../support/processes.mjs";

const here = import.meta.dirname;

/** Starts all processes; returns the page's URL. Ports: PAGE_PORT, GATEWAY_PORT, AGENT_PORT; 0 is any free port. */
export async function begin(group, { PAGE_PORT = 5173, GATEWAY_PORT = 7117, AGENT_PORT = 8000 } = process.env) {
  const [pagePort, gatewayPort, agentPort] = [await port(PAGE_PORT), await port(GATEWAY_PORT), await port(AGENT_PORT)];
  const [page, gateway, agent] = [pagePort, gatewayPort, agentPort].map((port) => `http://127.0.0.1:${port}`);

  const memory = ["--session_service_uri", "memory://", "--artifact_service_uri", "memory://"];
  const api = ["api_server", "--host", "127.0.0.1", "--port", String(agentPort), ...memory, path.join(here, "apps")];
  const quiet = { ADK_DISABLE_TELEMETRY: "1", PYTHONDONTWRITEBYTECODE: "1" };
  await group.start("adk", api, { url: `${agent}/list-apps`, env: quiet });

  // A page may read the gateway's responses if its origin is listed.
  const config = path.join(group.folder, "agentwire.toml");
  fs.writeFileSync(config, `cors = ["${page}"]\n`);
  const serve = ["serve", "--config", config, "--adk", agent, "--app", "helper", "--listen", `127.0.0.1:${gatewayPort}`];
  await group.start(agentwire(), serve, { url: `${gateway}/readyz` });

  const folder = path.join(group.folder, "page");
  fs.cpSync(path.join(here, "page"), folder, { recursive: true });
  await build({
    entryPoints: [path.join(here, "page", "page.jsx")],
    outfile: path.join(folder, "page.js"),
    bundle: true,
    format: "esm",
    jsx: "automatic",
    define: { GATEWAY: JSON.stringify(gateway), "process.env.NODE_ENV": '"production"' },
    logLevel: "error",
  });
  return group.serve(folder, pagePort);
}

if (process.argv[1] === import.meta.filename) await main(begin);
