// The table of docs/compatibility.md has exactly the checks of this suite, and the guide has the adapter of the example.
// UPDATE=1 rewrites both.

import assert from "node:assert/strict";
import test from "node:test";

import { read, same } from "../support/compatibility.mjs";

test("docs/compatibility.md has every check of assistant-ui", () => {
  const runtimes = ["ai-sdk", "data-stream", "ag-ui"];
  const checks = [...read("e2e/faces-assistant/assistant.test.mjs").matchAll(/^each\((RUNTIMES|\[.*?\]), "(.*?)", async/gm)];
  assert.ok(checks.length > 0);
  const rows = checks.map(([, list, title]) => {
    const covered = list === "RUNTIMES" ? runtimes : JSON.parse(list);
    return `| ${title} | ${runtimes.map((runtime) => (covered.includes(runtime) ? "yes" : "–")).join(" | ")} |\n`;
  });
  same("docs/compatibility.md", "| check | `useChatRuntime` | `useDataStreamRuntime` | `useAgUiRuntime` |\n| --- | --- | --- | --- |\n", "\nAn edit of", rows.join(""));
});

test("docs/guides/assistant-ui.md has the adapter of the example", () => {
  same("docs/guides/assistant-ui.md", "## 6. The adapter\n\n```jsx\n", "```\n", read("examples/assistant-ui/page/agentwire.jsx"));
});
