// Pages with the packages of LangGraph, gateways and agents.

import path from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

import { pages } from "../support/pages.mjs";

export { PATIENCE_MS, agent, agentInHalves, binary, browser, folder, gate, root, serve } from "../console/support.mjs";
export { holds, until } from "../support/pages.mjs";

export const pageServer = pages(build, path.join(path.dirname(fileURLToPath(import.meta.url)), "pages"));

/** All items of a stream. */
export async function collect(stream) {
  const all = [];
  for await (const item of stream) all.push(item);
  return all;
}

/** The text of a message's content. */
export const textOf = ({ content }) =>
  typeof content === "string" ? content : content.map((block) => block.text ?? "").join("");
