// The table of CopilotKit in docs/compatibility.md has exactly the checks of this suite, and the matrix of all front ends
// is made from checks that exist. UPDATE=1 rewrites the matrix.

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import test from "node:test";
import { fileURLToPath } from "node:url";

import { read, sameTable } from "../support/compatibility.mjs";
import { FEATURES, FRONT_ENDS, table } from "./matrix.mjs";

const here = path.dirname(fileURLToPath(import.meta.url));

test("every check is in docs/compatibility.md, and every check there exists", () => {
  const section = read("docs/compatibility.md").split(/^## /m).find((part) => part.startsWith("CopilotKit\n"));
  const cells = section.split("\n").filter((line) => line.startsWith("| ")).slice(2).join("\n");
  const named = [...cells.matchAll(/`([^`]+)`/g)].map(([, name]) => name).filter((name) => name !== "info").sort();
  const files = fs.readdirSync(here).filter((name) => name.endsWith(".test.mjs") && name !== "compatibility.test.mjs");
  const titles = files.flatMap((file) => {
    const text = fs.readFileSync(path.join(here, file), "utf8");
    // The part of a title that is the same for all transports.
    return [...text.matchAll(/^ *test\(["`](?:\$\{.*?\}: )?(.*?)["`], async/gm)].map(([, title]) => title);
  });
  assert.deepEqual(named, titles.sort());
});

test("the matrix of front ends is made from checks that exist", () => {
  for (const [feature, checks] of Object.entries(FEATURES)) {
    assert.equal(checks.length, FRONT_ENDS.length, feature);
    for (const [index, check] of checks.entries()) {
      const { name, files } = FRONT_ENDS[index];
      // The titles of tests, and of the conversations that tests are made from.
      const titles = files.flatMap((file) => [...read(`e2e/${file}`).matchAll(/(?:(?:test|each)\((?:[A-Z]\w*, )?|^ {2}|CONVERSATIONS\[)(["'`])(.*?)\1/gm)].map(([, , title]) => title));
      assert.ok(check === null || titles.some((title) => title.includes(check)), `${feature}, ${name}: no check \`${check}\` in ${files.join(", ")}`);
    }
  }
  sameTable("docs/compatibility.md", "All front ends", table());
});
