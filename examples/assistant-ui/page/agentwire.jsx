// Threads and history of an agentwire gateway for assistant-ui. Copy this file into your app.
//
// `gatewayThreads` makes the adapter of `useRemoteThreadListRuntime`, for `useChatRuntime`, `useDataStreamRuntime` and
// `useAgUiRuntime`. The gateway stores the messages, so a page uploads nothing. After a reload it has its conversation
// and the answer that is still being written.

import { useMemo } from "react";
import { ExportedMessageRepository, useAui } from "@assistant-ui/react";
import { fromAgUiMessages } from "@assistant-ui/react-ag-ui"; // only for `agUi`
import { AssistantMessageAccumulator, UIMessageStreamDecoder, createAssistantStream } from "assistant-stream";

/** `base` is the address of the gateway, or that of one agent (`…/agents/NAME`). `headers` go with every request. */
export function gatewayThreads(base, { headers = {}, agUi = false } = {}) {
  const path = (...parts) => `${base}/${parts.map(encodeURIComponent).join("/")}`;
  const call = async (url, method = "GET", body) => {
    const response = await fetch(url, { method, headers: { "content-type": "application/json", ...headers }, ...(body && { body: JSON.stringify(body) }) });
    if (!response.ok) throw new Error(`${method} ${url}: ${response.status} ${await response.text()}`);
    return response;
  };
  const list = async (query) => (await call(`${path("threads")}?${new URLSearchParams(query)}`)).json();
  const find = async (id) => (await list({ query: id })).threads.find((thread) => thread.threadId === id);

  // Threads that the gateway has, and the open responses with their live runs.
  const known = new Set();
  const live = new Map();
  const metadata = ({ threadId, title, archived, updatedAt }) => {
    known.add(threadId);
    return { remoteId: threadId, title: title ?? undefined, status: archived ? "archived" : "regular", lastMessageAt: new Date(updatedAt) };
  };

  /** The messages of a thread, without the one of its live run: that one comes whole with the stream. */
  const messages = async (id) => {
    if (!known.has(id)) return [];
    const stream = await call(path("api", "chat", id, "stream"));
    const found = await (await call(`${path("message_snapshot", id)}?format=ai-sdk@7`)).json();
    if (stream.status !== 200) return found;
    live.set(id, stream);
    return found.at(-1)?.role === "assistant" ? found.slice(0, -1) : found;
  };
  const stop = (id) => call(path("api", "chat", id, "stop"), "POST", {});
  const taken = (id) => {
    const stream = live.get(id);
    live.delete(id);
    return stream;
  };

  /** The history of AG-UI. A run without messages responds with the messages, the state and the live run. */
  const loadAgUi = async (id) => {
    if (!known.has(id)) return { messages: [] };
    const open = (await (await call(path("threads", id, "pending"))).json()).filter(({ kind }) => kind !== "frontend-tool");
    if (open.length === 0) return { messages: [], unstable_resume: true };
    const [{ messages }, state] = await Promise.all(["message_snapshot", "state_snapshot"].map(async (name) => (await call(path(name, id))).json()));
    const shown = fromAgUiMessages(messages);
    const asked = { status: { type: "requires-action", reason: "interrupt" }, metadata: { custom: { agui: { interrupts: open } } } };
    const last = shown.findLastIndex(({ role }) => role === "assistant");
    return { ...ExportedMessageRepository.fromArray(shown.map((it, index) => (index === last ? { ...it, ...asked } : it))), state: state.snapshot };
  };

  const historyOf = (thread) => ({
    load: async () => {
      if (agUi) return loadAgUi(thread());
      const repository = ExportedMessageRepository.fromArray((await messages(thread())).map(toThreadMessage));
      return { ...repository, unstable_resume: live.has(thread()) };
    },
    resume: agUi ? undefined : async function* () {
      const parts = taken(thread()).body.pipeThrough(new UIMessageStreamDecoder()).pipeThrough(new AssistantMessageAccumulator());
      for (const reader = parts.getReader(); ; ) {
        const { done, value } = await reader.read();
        if (done) return;
        yield value;
      }
    },
    append: async () => {},
    // The history of `useChatRuntime`, in messages of the AI SDK.
    withFormat: () => ({
      load: async () => {
        const found = await messages(thread());
        return { headId: found.at(-1)?.id ?? null, messages: found.map((message, index) => ({ parentId: found[index - 1]?.id ?? null, message })) };
      },
      append: async () => {},
    }),
  });

  return {
    list: async ({ after } = {}) => {
      const { threads, next } = await list(after ? { before: after } : {});
      return { threads: threads.map(metadata), nextCursor: next };
    },
    fetch: async (id) => {
      const found = await find(id);
      return found ? metadata(found) : { remoteId: id, status: "regular" };
    },
    initialize: async (id) => ({ remoteId: id }),
    generateTitle: async (id) => createAssistantStream(async (title) => title.appendText((await find(id))?.title ?? "")),
    rename: (id, title) => call(path("threads", id), "PATCH", { title }),
    archive: (id) => call(path("threads", id), "PATCH", { archived: true }),
    unarchive: (id) => call(path("threads", id), "PATCH", { archived: false }),
    delete: (id) => call(path("thread", id), "DELETE"),
    unstable_useAdapters: function useGatewayHistory() {
      const aui = useAui();
      return useMemo(() => ({ history: historyOf(() => aui.threadListItem.getState().remoteId) }), [aui]);
    },
    stop,
    /** Options of `AssistantChatTransport`: the live run is read from its open response, and a stop stops the run. */
    transport: {
      headers,
      fetch: async (url, init) => {
        if (init.method !== "POST") return taken(url) ?? fetch(url, init);
        init.signal?.addEventListener("abort", () => stop(JSON.parse(init.body).id));
        return fetch(url, init);
      },
      resumable: {
        storage: { getStreamId: (id) => (live.has(id) ? id : null), setStreamId() {}, clear: taken },
        resumeApi: (id) => id,
      },
    },
  };
}

/** A message of the AI SDK as one of assistant-ui. */
function toThreadMessage({ id, role, parts }) {
  const content = parts.flatMap((part) => {
    if (part.type === "text" || part.type === "reasoning") return [{ type: part.type, text: part.text }];
    if (part.type === "file") return [{ type: "file", data: part.url, mimeType: part.mediaType, filename: part.filename }];
    if (!part.toolCallId) return [];
    const { toolCallId, input: args, output: result, errorText } = part;
    const toolName = part.toolName ?? part.type.slice("tool-".length);
    return [{ type: "tool-call", toolCallId, toolName, args, result: errorText ?? result, isError: errorText !== undefined }];
  });
  return { id, role, content };
}
