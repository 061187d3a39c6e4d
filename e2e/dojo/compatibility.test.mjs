// The table of docs/compatibility.md has exactly the checks of this suite.

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));

test("every check is in docs/compatibility.md, and every check there exists", () => {
  const page = fs.readFileSync(path.join(here, "../../docs/compatibility.md"), "utf8");
  const section = page.split(/^## /m).find((it) => it.startsWith("Features of AG-UI's dojo"));
  const listed = [...section.matchAll(/^\| `(\w+)` \| (.*) \|$/gm)].map(([, graph, check]) => `${graph}: ${check}`);
  const text = fs.readFileSync(path.join(here, "dojo.test.mjs"), "utf8");
  const pages = fs.readFileSync(path.join(here, "page.test.mjs"), "utf8");
  const own = [...`${text}\n${pages}`.matchAll(/^test\("(.*?)", async/gm)].map(([, title]) => title);
  const [, shared] = text.match(/^  test\(`\$\{graph\}: (.*?)`, async/m);
  const graphs = [...text.matchAll(/^  \["(\w+)", "\w+", "\w+"\],$/gm)].map(([, graph]) => `${graph}: ${shared}`);
  assert.deepEqual(listed.sort(), [...graphs, ...own].sort());
});
