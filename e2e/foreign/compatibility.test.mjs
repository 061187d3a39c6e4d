// The table of docs/compatibility.md has exactly the servers and conversations of this suite. UPDATE=1 rewrites it.

import { test } from "node:test";

import { sameTable } from "../support/compatibility.mjs";
import { CONVERSATIONS, offered } from "./conversations.mjs";
import { SERVERS } from "./servers.mjs";

test("docs/compatibility.md has every server and every conversation", () => {
  const head = `| conversation | ${SERVERS.map(({ name }) => name).join(" | ")} |\n|${" --- |".repeat(SERVERS.length + 1)}\n`;
  const has = SERVERS.map((server) => new Set(offered(server).map(([name]) => name)));
  const rows = Object.keys(CONVERSATIONS).map((name) => `| ${name} | ${has.map((names) => (names.has(name) ? "yes" : "–")).join(" | ")} |\n`);
  sameTable("docs/compatibility.md", "Agents: AG-UI servers of frameworks", head + rows.join(""));
});
