// The table of LangGraph in docs/compatibility.md has exactly the checks of this suite.

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import test from "node:test";
import { fileURLToPath } from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));

test("every check is in docs/compatibility.md, and every check there exists", () => {
  const page = fs.readFileSync(path.join(here, "../../docs/compatibility.md"), "utf8").split("\n## LangGraph\n")[1];
  const rows = page.split("\n").filter((line) => line.startsWith("|")).slice(2).join("\n");
  const code = new Set(["useStream", "apiUrl", "FetchStreamTransport"]);
  const named = [...rows.matchAll(/`([^`]+)`/g)].map(([, name]) => name).filter((name) => !code.has(name)).sort();
  const files = fs.readdirSync(here).filter((name) => name.endsWith(".test.mjs") && name !== "compatibility.test.mjs");
  const titles = files.flatMap((file) => {
    const text = fs.readFileSync(path.join(here, file), "utf8");
    return [...text.matchAll(/^ *test\(["`](?:\$\{.*?\}: )?(.*?)["`], async/gm)].map(([, title]) => title);
  });
  assert.deepEqual(named, titles.sort());
});
