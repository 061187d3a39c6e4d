// `agentwire run` in a real terminal: tmux has the screen, the test types and reads.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { test } from "node:test";

import { binary, folder, serve, upstream } from "../gateway/support.mjs";

// Timeout of a wait, far above the slowest step on a busy machine.
const PATIENCE_MS = 120_000;

let count = 0;

/** A terminal that runs a command, with its exit code as the last line. */
function terminal(t, args, { columns = 90, state } = {}) {
  const place = folder(t);
  const socket = `agentwire-${process.pid}-${(count += 1)}`;
  const tmux = (...words) => execFileSync("tmux", ["-L", socket, ...words], { encoding: "utf8" });
  const words = [binary, ...args].map((word) => `'${word.replaceAll("'", `'\\''`)}'`).join(" ");
  const script = path.join(place, "script.sh");
  // Ctrl-C goes to the shell too, which must live to tell the exit code.
  fs.writeFileSync(script, `trap : INT\ncd '${place}'\n${words}\necho "exit code $?"\nexec sleep 1000\n`);
  tmux("-f", "/dev/null", "new-session", "-d", "-s", "t", "-x", String(columns), "-y", "60", `LC_ALL=C.UTF-8 XDG_STATE_HOME=${state ?? place} sh ${script}`);
  t.after(() => {
    try {
      tmux("kill-server");
    } catch {}
  });
  const screen = (...flags) => tmux("capture-pane", "-p", "-t", "t", "-S", "-500", ...flags);
  const shows = async (wanted) => {
    const deadline = Date.now() + PATIENCE_MS;
    for (;;) {
      const text = screen();
      if (wanted instanceof RegExp ? wanted.test(text) : text.includes(wanted)) return text;
      if (Date.now() > deadline) throw new Error(`the terminal does not show ${wanted}:\n${text}`);
      await new Promise((wake) => setTimeout(wake, 50));
    }
  };
  return {
    place,
    screen,
    shows,
    type: (text) => tmux("send-keys", "-t", "t", "-l", text),
    press: (...keys) => tmux("send-keys", "-t", "t", ...keys),
    say: (text) => {
      tmux("send-keys", "-t", "t", "-l", text);
      tmux("send-keys", "-t", "t", "Enter");
    },
  };
}

const demo = (t) => serve(t, ["--store", "memory:"]);

for (const route of ["/", "/awp", "/api/chat"]) {
  test(`a conversation over ${route}: cards, state, a question, commands`, async (t) => {
    const { url } = await demo(t);
    const page = terminal(t, ["run", `${url}${route}`]);
    await page.shows("›");
    page.say("tools think state");
    const shown = await page.shows("That was it.");
    assert.match(shown, /✻ First I look at the question.*words\)/);
    assert.match(shown, /⚙ weather\(\{"city":"Bern"\}\)/);
    assert.match(shown, /✓ weather 7 degrees, rain/);
    assert.match(shown, /\+ \/demo/);
    page.say("approve");
    await page.shows(/\? Pay 40 EUR\?[^]*approve\? \[y\/n\]/);
    page.say("maybe");
    await page.shows("expected y or n");
    page.say("y");
    await page.shows(/Your answer was .*true/);
    page.say("/history");
    await page.shows("user: approve");
    page.say("/feedback up good");
    await page.shows("thank you");
    page.say("/nonsense");
    await page.shows("is no command");
    page.say("/save talk.json");
    await page.shows("saved to talk.json");
    assert.match(fs.readFileSync(path.join(page.place, "talk.json"), "utf8"), /That was it/);
    page.say("/quit");
    await page.shows("exit code 0");
  });
}

test("Ctrl-C stops the run, and twice leaves; a run is paused and resumed while it streams", async (t) => {
  const { url } = await demo(t);
  const page = terminal(t, ["run", `${url}/`]);
  await page.shows("›");
  page.say("slow");
  await page.shows("This answer");
  page.say("long 2");
  page.say("/pause");
  await page.shows("⏸ paused");
  page.say("/resume");
  await page.shows("▶ resumed");
  page.press("C-c");
  // A message that was typed during the run is sent after it.
  await page.shows(/■ stopped[^]*› long 2[^]*word2/);
  page.say("/status");
  await page.shows('"status": "finished"');
  page.press("C-c");
  await page.shows("Ctrl-C again leaves");
  page.press("C-c");
  await page.shows("exit code 130");
});

test("one message: Ctrl-C is 130, a question is asked, a denial is told", async (t) => {
  const { url } = await demo(t);
  const slow = terminal(t, ["run", `${url}/`, "-m", "slow"]);
  await slow.shows("This answer");
  slow.press("C-c");
  await slow.shows("exit code 130");
  const asked = terminal(t, ["run", `${url}/awp`, "-m", "approve"]);
  await asked.shows("approve? [y/n]");
  asked.say("n");
  await asked.shows(/Your answer was .*false/);
  await asked.shows("exit code 0");
});

test("wide characters, editing and the history of lines", async (t) => {
  const { url } = await demo(t);
  const page = terminal(t, ["run", `${url}/`]);
  await page.shows("›");
  page.type("你好X");
  await page.shows("› 你好X");
  page.press("BSpace");
  page.press("Left");
  page.type("们");
  await page.shows("› 你们好");
  page.press("C-u");
  page.press("C-e");
  page.press("C-u");
  page.say("long 3");
  await page.shows("word3");
  page.press("Up");
  await page.shows(/word3[^]*› long 3/);
});

test("Markdown, tables, forms and buttons of agents", async (t) => {
  const frame = (event) => `data: ${JSON.stringify(event)}\n\n`;
  const requests = [];
  const agent = await upstream(t, (response, input, number) => {
    requests.push(input);
    response.writeHead(200, { "content-type": "text/event-stream" });
    const ids = { threadId: input.threadId, runId: input.runId };
    response.write(frame({ type: "RUN_STARTED", ...ids }));
    if (number === 0) {
      const text = "# Plan\n\n| 名 | n |\n|---|---|\n| 茶 | 12 |\n\nDone **now**.\u001b]0;hacked\u0007";
      response.write(frame({ type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" }));
      for (const letter of text) response.write(frame({ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: letter }));
      response.write(frame({ type: "TEXT_MESSAGE_END", messageId: "m" }));
      const responseSchema = {
        type: "object",
        properties: { city: { type: "string" }, days: { type: "integer" }, kind: { enum: ["train", "car"] } },
        required: ["city", "kind"],
      };
      const interrupts = [{ id: "i1", reason: "input_required", message: "Where to?", responseSchema }];
      response.end(frame({ type: "RUN_FINISHED", ...ids, outcome: { type: "interrupt", interrupts } }));
    } else {
      response.end(frame({ type: "RUN_FINISHED", ...ids }));
    }
  });
  const page = terminal(t, ["run", agent.url, "--thread", "t"]);
  await page.shows("›");
  page.say("plan");
  const shown = await page.shows("? Where to?");
  assert.match(shown, /│ 名 │ n {2}│\n├────┼────┤\n│ 茶 │ 12 │/);
  assert.ok(shown.includes("Done now."), shown);
  await page.shows("city*:");
  page.say("Bern");
  await page.shows("days:");
  page.say("x");
  await page.shows("expected a whole number");
  page.say("");
  await page.shows("2) car");
  page.say("2");
  await page.shows(/kind\*: 2\n[^]*›/);
  page.say("/quit");
  await page.shows("exit code 0");
  const answer = requests[1].resume[0];
  assert.deepEqual([answer.interruptId, answer.status, answer.payload], ["i1", "resolved", { city: "Bern", kind: "car" }]);
});

test("the lines of a thread are recalled in a later session, those of another thread are not", async (t) => {
  const { url } = await demo(t);
  const state = folder(t);
  const first = terminal(t, ["run", `${url}/`, "--thread", "kept"], { state });
  await first.shows("›");
  first.say("long 3");
  await first.shows("word3");
  first.say("/quit");
  await first.shows("exit code 0");
  const other = terminal(t, ["run", `${url}/`, "--thread", "other"], { state });
  await other.shows("›");
  other.press("Up");
  other.type("fresh");
  await other.shows("› fresh");
  const again = terminal(t, ["run", `${url}/`, "--thread", "kept"], { state });
  await again.shows("›");
  again.press("Up");
  await again.shows("› /quit");
  again.press("Up");
  await again.shows("› long 3");
});

test("a tool of --tool is run by hand, and its result reaches the agent", async (t) => {
  const frame = (event) => `data: ${JSON.stringify(event)}\n\n`;
  const requests = [];
  const agent = await upstream(t, (response, input, number) => {
    requests.push(input);
    response.writeHead(200, { "content-type": "text/event-stream" });
    const ids = { threadId: input.threadId, runId: input.runId };
    response.write(frame({ type: "RUN_STARTED", ...ids }));
    if (number === 0) {
      response.write(frame({ type: "TOOL_CALL_START", toolCallId: "c", toolCallName: "look" }));
      response.write(frame({ type: "TOOL_CALL_ARGS", toolCallId: "c", delta: '{"where":"outside"}' }));
      response.write(frame({ type: "TOOL_CALL_END", toolCallId: "c" }));
    }
    response.end(frame({ type: "RUN_FINISHED", ...ids }));
  });
  const file = path.join(folder(t), "look.json");
  fs.writeFileSync(file, JSON.stringify({ name: "look", description: "Looks", parameters: { type: "object" } }));
  const page = terminal(t, ["run", agent.url, "--tool", file]);
  await page.shows("›");
  page.say("weather?");
  await page.shows(/⚙ look\(\{"where":"outside"\}\)[^]*\? look/);
  page.say("sunny");
  await page.shows(/sunny[^]*›/);
  page.say("/tools");
  await page.shows("look: Looks");
  page.say("/quit");
  await page.shows("exit code 0");
  const result = requests[1].messages.at(-1);
  assert.deepEqual([result.role, result.toolCallId, JSON.parse(JSON.stringify(result.content)).includes("sunny")], ["tool", "c", true]);
});
