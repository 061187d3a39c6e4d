// Native events that a reader does not know: visible in the log and the metrics of the gateway, and on stderr of `convert`.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";

import { AgUi, Gateway, binary, until } from "./gateway.mjs";

const done = '{"type":"RUN_FINISHED","threadId":"t","runId":"r"}';
/** A stream of each format with an event of a kind that no version has, twice. */
const STREAMS = {
  "ag-ui": ['{"type":"RUN_STARTED","threadId":"t","runId":"r"}', '{"type":"FROBNICATED","secret":"x1"}', '{"type":"FROBNICATED"}', done],
  hai: ['{"type":"RUN_STARTED","threadId":"t","runId":"r"}', '{"type":"FROBNICATED","secret":"x1"}', '{"type":"FROBNICATED"}', done],
  adk: ['{"author":"a","id":"e1","content":{"parts":[{"text":"Hi."}]}}', '{"FROBNICATED":"x1"}', '{"FROBNICATED":"x1"}'],
  langgraph: ['{"event":"on_chain_start","run_id":"1","name":"g","data":{},"metadata":{},"parent_ids":[],"tags":[]}', '{"event":"FROBNICATED","run_id":"1","name":"g","data":{"x":"x1"},"metadata":{},"parent_ids":[],"tags":[]}', '{"event":"FROBNICATED","run_id":"1","name":"g","data":{},"metadata":{},"parent_ids":[],"tags":[]}', '{"event":"on_chain_end","run_id":"1","name":"g","data":{"output":{}},"metadata":{},"parent_ids":[],"tags":[]}'],
  "ai-sdk": ['{"type":"start","messageId":"m"}', '{"type":"FROBNICATED","secret":"x1"}', '{"type":"FROBNICATED"}', '{"type":"finish"}'],
  openai: ['{"object":"FROBNICATED","x":"x1"}', '{"object":"FROBNICATED"}', '{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hi."},"finish_reason":"stop"}]}', "[DONE]"],
};

let folder;
let gateway;
const file = (format) => path.join(folder, `${format}.sse`);
before(async () => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), "agentwire-unknown-"));
  for (const [format, frames] of Object.entries(STREAMS)) fs.writeFileSync(file(format), frames.map((frame) => `data: ${frame}\n\n`).join(""));
  const agents = Object.keys(STREAMS).map((format) => [format, `{ kind = "replay", file = "${file(format)}", format = "${format}", speed = "max" }`]);
  gateway = await Gateway.configured(Object.fromEntries(agents));
});
after(async () => {
  await gateway?.stop();
  fs.rmSync(folder, { recursive: true, force: true });
});

for (const format of Object.keys(STREAMS)) {
  test(`${format}: an unknown event is logged once per run and counted`, async () => {
    for (const runs of [1, 2]) {
      const person = new AgUi(gateway, format);
      await person.say("go");
      assert.equal(person.failed(), null);
      const found = () => gateway.log.split("\n").filter((line) => line.includes("WARN") && line.includes("FROBNICATED") && line.includes(person.thread));
      // The log arrives through a pipe, later than the response.
      await until(() => found().length > 0, "the warning");
      const warnings = found();
      assert.equal(warnings.length, 1, gateway.log);
      assert.match(warnings[0], /x1/, "the warning has the content");
      const metrics = await (await fetch(`${gateway.url}/metrics`)).text();
      assert.match(metrics, new RegExp(`agentwire_unknown_events_total\\{agent="${format}"\\} ${2 * runs}\\b`));
    }
  });

  test(`${format}: convert says so on stderr`, () => {
    const { status, stdout, stderr } = spawnSync(binary, ["convert", "--from", format, "--to", "ag-ui", file(format)], { encoding: "utf8" });
    assert.equal(status, 0, stderr);
    assert.match(stdout, /RUN_FINISHED/);
    const lines = stderr.split("\n").filter((line) => line.includes("FROBNICATED"));
    assert.equal(lines.length, 1, stderr);
    assert.match(lines[0], /^warning: unknown .*2 times/);
  });
}
