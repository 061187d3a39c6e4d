// A scripted chat completions server that follows the public wire format. The model's name selects the response, which
// includes the quirks of real servers and is the same for every client.

import http from "node:http";

const base = { id: "chatcmpl-e2e", object: "chat.completion.chunk", created: 1790000000, model: "scripted" };
const chunk = (delta, finish = null, index = 0) => ({ ...base, choices: [{ index, delta, logprobs: null, finish_reason: finish }] });
const words = (text) => text.match(/\S+\s*/g) ?? [];
const said = (text) => words(text).map((content) => chunk({ content }));
const usage = { ...base, choices: [], usage: { prompt_tokens: 9, completion_tokens: 4, total_tokens: 13 } };
const role = chunk({ role: "assistant", content: "" });
const call = (index, rest) => chunk({ tool_calls: [{ index, ...rest }] });
const named = (index, id, name) => call(index, { id, type: "function", function: { name, arguments: "" } });
const more = (index, text) => call(index, { function: { arguments: text } });
const DONE = "[DONE]";

/** The response of each model: frames, as in the documentation and from real servers. */
export const SCENES = {
  plain: [role, ...said("The weather in Oslo is fine."), chunk({}, "stop"), DONE],
  "with usage": [role, ...said("Counted."), chunk({}, "stop"), usage, DONE],
  // Azure starts with the result of its prompt filter, before the first choice.
  "empty choices": [{ ...base, choices: [], prompt_filter_results: [{ prompt_index: 0 }] }, role, ...said("After nothing."), chunk({}, "stop"), usage, DONE],
  "no done": [role, ...said("It ends without a word."), chunk({}, "stop")],
  "no role": [...said("Who is speaking?"), chunk({}, "stop"), DONE],
  "null content": [chunk({ role: "assistant", content: null }), chunk({ content: "" }), ...said("At last."), chunk({ content: null }, "stop"), DONE],
  "finish with the last words": [role, chunk({ content: "All at " }), chunk({ content: "once." }, "stop"), DONE],
  unicode: [role, ...said("Grüße 👋🏽 – 你好 \u2028 end."), chunk({}, "stop"), DONE],
  length: [role, ...said("Cut off in the mid"), chunk({}, "length"), DONE],
  "one call": [role, named(0, "call_1", "get_weather"), more(0, '{"city"'), more(0, ':"Oslo"}'), chunk({}, "tool_calls"), DONE],
  "two calls, interleaved": [
    role, named(0, "call_1", "get_weather"), named(1, "call_2", "get_time"), more(0, '{"city":'), more(1, '{"zone":'),
    more(1, '"CET"}'), more(0, '"Oslo"}'), chunk({}, "tool_calls"), usage, DONE,
  ],
  "words and a call": [role, ...said("Let me look."), named(0, "call_1", "get_weather"), more(0, "{}"), chunk({}, "tool_calls"), DONE],
  "a call at once": [chunk({ role: "assistant", tool_calls: [{ index: 0, id: "call_1", type: "function", function: { name: "get_time", arguments: '{"zone":"UTC"}' } }] }), chunk({}, "tool_calls"), DONE],
  reasoning_content: [role, chunk({ reasoning_content: "Let me " }), chunk({ reasoning_content: "think." }), ...said("Done thinking."), chunk({}, "stop"), DONE],
  reasoning: [role, chunk({ reasoning: "Hmm, " }), chunk({ reasoning: "yes." }), ...said("Yes."), chunk({}, "stop"), DONE],
  "no finish reason": [role, ...said("It ends without a reason."), DONE],
  "cut off": [role, ...said("And then the line")],
  "error in the middle": [role, ...said("I was about to"), { error: { message: "The server had an error", type: "server_error", param: null, code: "oops" } }],
  "slow down": { status: 429, headers: { "retry-after": "11" }, body: { error: { message: "Rate limit reached for org-secret", type: "requests", code: "rate_limit_exceeded" } } },
  "wrong key": { status: 401, body: { error: { message: "Incorrect API key provided: sk-secret", type: "invalid_request_error", code: "invalid_api_key" } } },
};

/** Serves the scene named by `model`; records the requests. */
export async function start() {
  const seen = [];
  const server = http.createServer(async (request, response) => {
    let text = "";
    for await (const bytes of request) text += bytes;
    const body = JSON.parse(text);
    seen.push({ url: request.url, headers: request.headers, body });
    const scene = SCENES[body.model];
    if (!Array.isArray(scene)) {
      response.writeHead(scene.status, { "content-type": "application/json", ...scene.headers }).end(JSON.stringify(scene.body));
      return;
    }
    response.writeHead(200, { "content-type": "text/event-stream; charset=utf-8" });
    for (const frame of scene) {
      const bytes = Buffer.from(`data: ${frame === DONE ? DONE : JSON.stringify(frame)}\n\n`);
      // Split without regard to characters.
      for (let at = 0; at < bytes.length; at += 37) response.write(bytes.subarray(at, at + 37));
      await new Promise(setImmediate);
    }
    response.end();
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}/v1`, seen, close: () => new Promise((resolve) => server.close(resolve)) };
}
