// The table of docs/compatibility.md has exactly the checks of this suite.

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import test from "node:test";
import { fileURLToPath } from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));

test("every check is in docs/compatibility.md, and every check there exists", () => {
  const page = fs.readFileSync(path.join(here, "../../docs/compatibility.md"), "utf8");
  // The other sections have suites of their own.
  const sections = page.split(/^## /m).filter((section) => !/^(assistant-ui|AG-UI clients|Features of AG-UI's dojo)/.test(section));
  const cells = sections.join("\n").split("\n").filter((line) => line.startsWith("| ")).slice(2).join("\n");
  const named = [...cells.matchAll(/`([^`]+)`/g)].map(([, name]) => name).filter((name) => name !== "info").sort();
  const files = fs.readdirSync(here).filter((name) => name.endsWith(".test.mjs") && name !== "compatibility.test.mjs");
  const titles = files.flatMap((file) => {
    const text = fs.readFileSync(path.join(here, file), "utf8");
    // The part of a title that is the same for all transports.
    return [...text.matchAll(/^ *test\(["`](?:\$\{.*?\}: )?(.*?)["`], async/gm)].map(([, title]) => title);
  });
  assert.deepEqual(named, titles.sort());
});
