// The same calls to a real `langgraph dev` and to the gateway: the responses have the same members.

import assert from "node:assert/strict";
import test from "node:test";
import { Client } from "@langchain/langgraph-sdk";
import { start } from "../langgraph/server.mjs";
import { collect, serve } from "./support.mjs";

/** The members of a value, with those of nested objects and of the first element of lists. Free data is left out. */
function shape(value, free = ["metadata", "kwargs", "config", "args", "values", "additional_kwargs", "response_metadata", "content"]) {
  if (Array.isArray(value)) return value.length ? [shape(value[0], free)] : [];
  if (value === null || typeof value !== "object") return typeof value;
  return Object.fromEntries(Object.keys(value).sort().map((key) => [key, free.includes(key) ? "…" : shape(value[key], free)]));
}

/** The members that the server has and the gateway lacks, as paths; a list or object that is empty here has none. */
function missing(real, own, path = "") {
  if (Array.isArray(real)) return real.length && Array.isArray(own) && own.length ? missing(real[0], own[0], `${path}[]`) : [];
  if (real === null || typeof real !== "object" || own === null || typeof own !== "object") return [];
  return Object.keys(real).flatMap((key) => (key in own ? missing(real[key], own[key], `${path}.${key}`) : [`${path}.${key}`]));
}

/** The calls of a front end, recorded. */
async function record(url, assistant) {
  const client = new Client({ apiUrl: url, apiKey: null });
  const input = { messages: [{ type: "human", content: "tools", id: "h1" }] };
  const created = await client.threads.create({ threadId: undefined });
  const { thread_id } = created;
  const events = await collect(client.runs.stream(thread_id, assistant, { input, streamMode: ["messages-tuple", "values", "updates"], streamResumable: true }));
  const last = (name) => events.filter(({ event }) => event === name).at(-1).data;
  const [run] = await client.runs.list(thread_id);
  const failed = async (promise) => promise.then(() => assert.fail("no error"), (error) => /(\d{3})/.exec(error.message)[1]);
  return {
    created: shape(created),
    metadata: shape(events[0].data),
    chunk: shape(events.find(({ event, data }) => event === "messages" && data[0].type === "AIMessageChunk").data[0]),
    messages: Object.fromEntries(last("values").messages.map((message) => [message.type, shape(message)])),
    thread: shape(await client.threads.get(thread_id)),
    run: shape(run),
    state: shape(await client.threads.getState(thread_id)),
    history: shape(await client.threads.getHistory(thread_id)),
    found: shape(await client.threads.search({ ids: [thread_id] })),
    assistants: shape(await client.assistants.search()),
    hasIds: events.every(({ id }) => Boolean(id)),
    unknownThread: await failed(client.runs.create("00000000-0000-0000-0000-000000000000", assistant, { input })),
    unknownAssistant: await failed(client.runs.create(thread_id, "nobody", { input })),
    badMode: await failed(client.runs.create(thread_id, assistant, { input, streamMode: "bogus" })),
  };
}

test("responses have the members of a real LangGraph Server", async (t) => {
  const server = await start();
  t.after(server.stop);
  const { url } = await serve(t);
  const graph = (await new Client({ apiUrl: server.url, apiKey: null }).assistants.search({ limit: 100 })).map(({ graph_id }) => graph_id);
  const [real, own] = [await record(server.url, graph.includes("tools") ? "tools" : graph[0]), await record(`${url}/langgraph`, "demo")];
  // Figures and names of the provider that an agent does not give; the members of a chunk that are empty there.
  const known = [".run.langsmith_session_name", ".history[].tasks[].result", ".assistants[].config", ".chunk"];
  const lacking = missing(real, own).filter((path) => !known.some((start) => path.startsWith(start)));
  assert.deepEqual(lacking, []);
  assert.deepEqual([own.unknownThread, own.unknownAssistant, own.badMode, own.hasIds], [real.unknownThread, real.unknownAssistant, real.badMode, real.hasIds]);
});
