// A scripted server of OpenAI's Responses and Anthropic's Messages that follows the public wire formats. The model's name
// selects the response, which is the same for every client.
//
// `node server.mjs` prints its address and serves until it is ended.

import http from "node:http";
import { pathToFileURL } from "node:url";

const words = (text) => text.match(/\S+\s*/g) ?? [];
const pieces = (text) => text.match(/[\s\S]{1,7}/g) ?? [];

// Anthropic: blocks of a message to its events.

const start = { type: "message_start", message: { id: "msg_e2e", type: "message", role: "assistant", model: "scripted", content: [], container: null, stop_reason: null, stop_sequence: null, stop_details: null, usage: { input_tokens: 9, cache_creation_input_tokens: 20, cache_read_input_tokens: 100, output_tokens: 1, output_tokens_details: null, server_tool_use: null, service_tier: "standard", cache_creation: null, inference_geo: null } } };
const stop = (reason, rest = {}) => [
  { type: "message_delta", delta: { stop_reason: reason, stop_sequence: null, stop_details: null, container: null, ...rest }, usage: { input_tokens: 9, cache_creation_input_tokens: 20, cache_read_input_tokens: 100, output_tokens: 17, output_tokens_details: { thinking_tokens: 3 }, server_tool_use: null } },
  { type: "message_stop" },
];
const deltas = {
  text: (block) => [...words(block.text).map((text) => ({ type: "text_delta", text })), ...(block.citations ?? []).map((citation) => ({ type: "citations_delta", citation }))],
  thinking: (block) => [...words(block.thinking).map((thinking) => ({ type: "thinking_delta", thinking })), { type: "signature_delta", signature: block.signature }],
  tool_use: (block) => pieces(JSON.stringify(block.input)).map((partial_json) => ({ type: "input_json_delta", partial_json })),
};
deltas.server_tool_use = deltas.tool_use;
const empty = {
  text: () => ({ type: "text", text: "", citations: null }),
  thinking: () => ({ type: "thinking", thinking: "", signature: "" }),
  tool_use: (block) => ({ ...block, input: {} }),
};
empty.server_tool_use = empty.tool_use;
const message = (content, reason = "end_turn", rest = {}) => [
  start,
  { type: "ping" },
  ...content.flatMap((block, index) => [
    { type: "content_block_start", index, content_block: empty[block.type]?.(block) ?? block },
    ...(deltas[block.type]?.(block) ?? []).map((delta) => ({ type: "content_block_delta", index, delta })),
    { type: "content_block_stop", index },
  ]),
  ...stop(reason, rest),
];
const text = (text, citations) => ({ type: "text", text, ...(citations && { citations }) });
const thinking = (thinking, signature = "c2lnbmF0dXJl") => ({ type: "thinking", thinking, signature });
const direct = { caller: { type: "direct" } };
const tool = (id, name, input) => ({ type: "tool_use", id, name, input, ...direct });
const search = { type: "server_tool_use", id: "srvtoolu_1", name: "web_search", input: { query: "weather in Oslo" }, ...direct };
const found = { type: "web_search_tool_result", tool_use_id: "srvtoolu_1", content: [{ type: "web_search_result", url: "https://example.org/oslo", title: "Oslo", encrypted_content: "ZW5jcnlwdGVk", page_age: null }], ...direct };
const cited = { type: "web_search_result_location", cited_text: "Sunny.", url: "https://example.org/oslo", title: "Oslo", encrypted_index: "aW5kZXg" };
const overloaded = { type: "error", error: { type: "overloaded_error", message: "Overloaded" }, request_id: "req_1" };

// OpenAI: items of a response to its events.

const head = { id: "resp_e2e", object: "response", created_at: 1790000000, background: false, error: null, incomplete_details: null, instructions: null, metadata: {}, model: "scripted", parallel_tool_calls: true, temperature: 1, tool_choice: "auto", tools: [], top_p: 1, store: false };
const counted = { input_tokens: 36, input_tokens_details: { cached_tokens: 12, cache_write_tokens: 0 }, output_tokens: 17, output_tokens_details: { reasoning_tokens: 3 }, total_tokens: 53 };
const itemEvents = {
  message: (item) => item.content.flatMap((part, content_index) => {
    const kind = part.type === "refusal" ? "refusal" : "output_text";
    const whole = part.refusal ?? part.text;
    const blank = kind === "refusal" ? { type: "refusal", refusal: "" } : { type: "output_text", text: "", annotations: [], logprobs: [] };
    const logprobs = kind === "refusal" ? {} : { logprobs: [] };
    return [
      { type: "response.content_part.added", content_index, part: blank },
      ...words(whole).map((delta) => ({ type: `response.${kind}.delta`, content_index, delta, ...logprobs })),
      ...(part.annotations ?? []).map((annotation, annotation_index) => ({ type: "response.output_text.annotation.added", content_index, annotation_index, annotation })),
      { type: `response.${kind}.done`, content_index, [kind === "refusal" ? "refusal" : "text"]: whole, ...logprobs },
      { type: "response.content_part.done", content_index, part },
    ];
  }),
  reasoning: (item) => item.summary.flatMap((part, summary_index) => [
    { type: "response.reasoning_summary_part.added", summary_index, part: { type: "summary_text", text: "" } },
    ...words(part.text).map((delta) => ({ type: "response.reasoning_summary_text.delta", summary_index, delta })),
    { type: "response.reasoning_summary_text.done", summary_index, text: part.text },
    { type: "response.reasoning_summary_part.done", summary_index, part },
  ]),
  function_call: (item) => [
    ...pieces(item.arguments).map((delta) => ({ type: "response.function_call_arguments.delta", delta })),
    { type: "response.function_call_arguments.done", name: item.name, arguments: item.arguments },
  ],
  web_search_call: () => ["in_progress", "searching", "completed"].map((step) => ({ type: `response.web_search_call.${step}` })),
  code_interpreter_call: (item) => [
    { type: "response.code_interpreter_call.in_progress" },
    ...pieces(item.code).map((delta) => ({ type: "response.code_interpreter_call_code.delta", delta })),
    { type: "response.code_interpreter_call_code.done", code: item.code },
    { type: "response.code_interpreter_call.interpreting" },
    { type: "response.code_interpreter_call.completed" },
  ],
};
const blankItem = {
  message: (item) => ({ ...item, content: [], status: "in_progress" }),
  reasoning: (item) => ({ ...item, summary: [], encrypted_content: "" }),
  function_call: (item) => ({ ...item, arguments: "", status: "in_progress" }),
  code_interpreter_call: (item) => ({ ...item, code: "", outputs: null, status: "in_progress" }),
};
function response(output, status = "completed", rest = {}) {
  const events = [
    { type: "response.created", response: { ...head, status: "in_progress", output: [] } },
    { type: "response.in_progress", response: { ...head, status: "in_progress", output: [] } },
    ...output.flatMap((item, output_index) => [
      { type: "response.output_item.added", output_index, item: blankItem[item.type]?.(item) ?? item },
      ...(itemEvents[item.type]?.(item) ?? []).map((event) => ({ ...event, item_id: item.id, output_index })),
      { type: "response.output_item.done", output_index, item },
    ]),
    { type: `response.${status}`, response: { ...head, status, output, usage: status === "failed" ? null : counted, ...rest } },
  ];
  return events.map((event, sequence_number) => ({ ...event, sequence_number }));
}
const said = (text, annotations = [], rest = {}) => ({ id: "msg_e2e", type: "message", status: "completed", role: "assistant", content: [{ type: "output_text", text, annotations, logprobs: [] }], ...rest });
const thought = (...texts) => ({ id: "rs_e2e", type: "reasoning", summary: texts.map((text) => ({ type: "summary_text", text })), encrypted_content: "gAAAAABe2e" });
const called = (call_id, name, args) => ({ id: `fc_${call_id}`, type: "function_call", status: "completed", call_id, name, arguments: JSON.stringify(args) });
const page = { type: "url_citation", start_index: 0, end_index: 4, url: "https://example.org/oslo", title: "Oslo" };
const searched = { id: "ws_1", type: "web_search_call", status: "completed", action: { type: "search", query: "weather in Oslo", sources: [{ type: "url", url: "https://example.org/oslo" }] } };
const computed = { id: "ci_1", type: "code_interpreter_call", status: "completed", container_id: "cntr_1", code: 'print("é\\n" * 2)\n', outputs: [{ type: "logs", logs: "é\né\n" }] };
const approval = { id: "mcpr_1", type: "mcp_approval_request", server_label: "dice", name: "roll", arguments: '{"dice":"2d4"}' };
const rolled = { id: "mcp_1", type: "mcp_call", status: "completed", server_label: "dice", name: "roll", arguments: '{"dice":"2d4"}', approval_request_id: "mcpr_1", output: "5", error: null };

/** The responses of each model: its events, or a status and a body. A function gets the body of the request. */
export const ANTHROPIC = {
  plain: message([text("The weather in Oslo is fine. Grüße 👋🏽 – 你好 \u2028 end.")]),
  thinking: message([thinking("Let me think about it."), text("Done thinking.")]),
  "hidden thinking": message([thinking(""), text("Yes.")]),
  redacted: message([{ type: "redacted_thinking", data: "cmVkYWN0ZWQ" }, text("Yes.")]),
  "one call": message([text("Let me look."), tool("toolu_1", "get_weather", { city: "Oslo", note: 'a "b" \\ é' })], "tool_use"),
  "two calls": message([tool("toolu_1", "get_weather", { city: "Oslo" }), tool("toolu_2", "get_time", {})], "tool_use"),
  "thinking and a call": (body) => (body.messages.some((turn) => JSON.stringify(turn).includes("tool_result")) ? message([thinking("Now I know.", "c2Vjb25k"), text("It is sunny.")]) : message([thinking("I need a tool.", "Zmlyc3Q"), text("One moment."), tool("toolu_9", "get_weather", { city: "Oslo" })], "tool_use")),
  "web search": message([text("I look it up. "), search, found, text("It is "), text("sunny", [cited]), text(" there.")]),
  "max tokens": message([text("Cut off in the mid")], "max_tokens"),
  refusal: message([text("I ")], "refusal", { stop_details: { type: "refusal", category: "cyber", explanation: "No." } }),
  overloaded: [overloaded],
  "overloaded in the middle": [...message([text("I was about to")]).slice(0, -3), overloaded],
  "cut off": message([text("And then the line")]).slice(0, -3),
  "slow down": { status: 429, headers: { "retry-after": "11" }, body: { type: "error", error: { type: "rate_limit_error", message: "Rate limit of org-secret" } } },
  "wrong key": { status: 401, body: { type: "error", error: { type: "authentication_error", message: "invalid x-api-key sk-secret" } } },
};
export const RESPONSES = {
  plain: response([said("The weather in Oslo is fine. Grüße 👋🏽 – 你好 \u2028 end.")]),
  reasoning: response([thought("**Looking** at it", "Deciding"), said("Done thinking.", [], { phase: "final_answer" })]),
  "hidden reasoning": response([thought(), said("Yes.")]),
  "one call": response([said("Let me look."), called("call_1", "get_weather", { city: "Oslo", note: 'a "b" \\ é' })]),
  "two calls": response([called("call_1", "get_weather", { city: "Oslo" }), called("call_2", "get_time", {})]),
  "reasoning and a call": (body) => ([body.input].flat().some((item) => item.type === "function_call_output") ? response([said("It is sunny.")]) : response([thought("I need a tool"), called("call_9", "get_weather", { city: "Oslo" })])),
  refusal: response([{ ...said(""), content: [{ type: "refusal", refusal: "I cannot help with that." }] }]),
  citations: response([said("Oslo is sunny.", [page, { type: "file_citation", file_id: "file-1", filename: "a.pdf", index: 3 }])]),
  "web search": response([searched, said("Oslo is sunny.", [page])]),
  "code interpreter": response([computed, said("Twice.")]),
  approval: (body) => ([body.input].flat().some((item) => item.type === "mcp_approval_response" && item.approve) ? response([rolled, said("Five.")]) : response([approval])),
  incomplete: response([said("Cut off in the mid")], "incomplete", { incomplete_details: { reason: "max_output_tokens" } }),
  failed: response([said("I was about to")], "failed", { error: { code: "server_error", message: "The model failed." } }),
  "error event": [...response([said("I was about to")]).slice(0, 5), { type: "error", code: "rate_limit_exceeded", message: "Slow down.", param: null, sequence_number: 5 }],
  "cut off": response([said("And then the line")]).slice(0, -3),
  "slow down": { status: 429, headers: { "retry-after": "11" }, body: { error: { message: "Rate limit reached for org-secret", type: "requests", code: "rate_limit_exceeded" } } },
  "wrong key": { status: 401, body: { error: { message: "Incorrect API key provided: sk-secret", type: "invalid_request_error", code: "invalid_api_key" } } },
};

/** Serves the scene named by `model`; records the requests. */
export async function serve() {
  const seen = [];
  const server = http.createServer(async (request, response) => {
    let received = "";
    for await (const bytes of request) received += bytes;
    const body = JSON.parse(received);
    seen.push({ url: request.url, headers: request.headers, body });
    const scenes = request.url.startsWith("/v1/messages") ? ANTHROPIC : RESPONSES;
    const scene = typeof scenes[body.model] === "function" ? scenes[body.model](body) : scenes[body.model];
    if (!Array.isArray(scene)) {
      response.writeHead(scene.status, { "content-type": "application/json", ...scene.headers }).end(JSON.stringify(scene.body));
      return;
    }
    response.writeHead(200, { "content-type": "text/event-stream; charset=utf-8" });
    for (const event of scene) {
      const bytes = Buffer.from(`event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
      // Split without regard to characters.
      for (let at = 0; at < bytes.length; at += 37) response.write(bytes.subarray(at, at + 37));
      await new Promise(setImmediate);
    }
    response.end();
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}`, seen, close: () => new Promise((resolve) => server.close(resolve)) };
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const names = (scenes) => Object.keys(scenes).filter((name) => Array.isArray(scenes[name]));
  console.log(JSON.stringify({ url: (await serve()).url, anthropic: names(ANTHROPIC), responses: names(RESPONSES) }));
}
