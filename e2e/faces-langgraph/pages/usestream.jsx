// A page with `useStream` of `@langchain/langgraph-sdk`. The address of the gateway, the agent, the thread and the transport
// come from the query.

import { createRoot } from "react-dom/client";
import { useMemo, useState } from "react";
import { Client } from "@langchain/langgraph-sdk";
import { FetchStreamTransport, useStream } from "@langchain/langgraph-sdk/react";

const query = new URLSearchParams(location.search);
const apiUrl = `${query.get("gateway")}/langgraph`;
const assistantId = query.get("agent") ?? "demo";

const textOf = ({ content }) => (typeof content === "string" ? content : content.map((block) => block.text ?? "").join(""));

function Chat({ stream, canBranch }) {
  const [text, setText] = useState("");
  const send = (event) => {
    event.preventDefault();
    const message = { type: "human", content: text };
    setText("");
    stream.submit({ messages: [message] }, { optimisticValues: (prev) => ({ ...prev, messages: [...(prev.messages ?? []), { ...message, id: "sending" }] }) });
  };
  return (
    <main data-loading={stream.isLoading}>
      <ol id="messages">
        {stream.messages.map((message, index) => {
          const metadata = canBranch ? stream.getMessagesMetadata(message, index) : undefined;
          const checkpoint = metadata?.firstSeenState?.parent_checkpoint ?? undefined;
          return (
            <li key={message.id ?? index} data-type={message.type ?? message.getType()} data-id={message.id}>
              <span className="text">{textOf(message)}</span>
              {(message.tool_calls ?? []).map((call) => <i key={call.id} className="call">{call.name} {JSON.stringify(call.args)}</i>)}
              {message.additional_kwargs?.reasoning_content && <em>{message.additional_kwargs.reasoning_content}</em>}
              {checkpoint && (message.type ?? message.getType()) === "human" && (
                <button className="edit" onClick={() => stream.submit({ messages: [{ type: "human", content: "long 3" }] }, { checkpoint })}>edit</button>
              )}
              {checkpoint && (message.type ?? message.getType()) === "ai" && (
                <button className="regenerate" onClick={() => stream.submit(undefined, { checkpoint })}>again</button>
              )}
              {metadata?.branchOptions?.length > 1 && (
                <span className="branches">
                  {metadata.branchOptions.indexOf(metadata.branch) + 1}/{metadata.branchOptions.length}
                  <button onClick={() => stream.setBranch(metadata.branchOptions[0])}>first</button>
                </span>
              )}
            </li>
          );
        })}
      </ol>
      {stream.interrupt && (
        <div className="interrupt">
          {JSON.stringify(stream.interrupt.value)}
          <button id="approve" onClick={() => stream.submit(undefined, { command: { resume: { approved: true } } })}>yes</button>
        </div>
      )}
      {stream.error != null && <p id="error">{String(stream.error.message ?? stream.error)}</p>}
      <pre id="values">{JSON.stringify({ ...stream.values, messages: undefined, __interrupt__: undefined })}</pre>
      <form onSubmit={send}>
        <textarea value={text} onChange={(event) => setText(event.target.value)} onKeyDown={(event) => event.key === "Enter" && send(event)} />
      </form>
      <button id="stop" onClick={() => stream.stop()}>stop</button>
    </main>
  );
}

function Classic() {
  const [threadId, setThreadId] = useState(query.get("thread") ?? sessionStorage.getItem("thread") ?? null);
  const keep = (id) => {
    sessionStorage.setItem("thread", id);
    setThreadId(id);
  };
  const stream = useStream({
    apiUrl, apiKey: null, assistantId, threadId, onThreadId: keep, reconnectOnMount: query.get("reconnect") !== "0", fetchStateHistory: true,
  });
  return <><Threads /><Chat stream={stream} canBranch /></>;
}

function Custom() {
  const transport = useMemo(() => new FetchStreamTransport({ apiUrl: `${apiUrl}/stream/${assistantId}` }), []);
  // Without a `threadId` of the page the hook keeps the id that it made; with `null` every turn would be a new thread.
  const thread = query.get("thread");
  const stream = useStream(thread === null ? { transport } : { transport, threadId: thread });
  return <Chat stream={stream} />;
}

function Threads() {
  const [threads, setThreads] = useState([]);
  const client = useMemo(() => new Client({ apiUrl, apiKey: null }), []);
  const load = async () => setThreads(await client.threads.search({ metadata: { graph_id: assistantId } }));
  return (
    <nav>
      <button id="list" onClick={load}>threads</button>
      <ul id="threads">{threads.map(({ thread_id, status, values }) => (
        <li key={thread_id} data-status={status}>{values.messages?.[0] ? textOf(values.messages[0]) : ""}</li>
      ))}</ul>
    </nav>
  );
}

createRoot(document.querySelector("#root")).render(query.get("transport") === "fetch" ? <Custom /> : <Classic />);
