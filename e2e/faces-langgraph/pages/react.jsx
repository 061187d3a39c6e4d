// A page with `useStream` of `@langchain/react`, which speaks protocol v2. The address of the gateway, the agent and the
// thread come from the query.

import { createRoot } from "react-dom/client";
import { useState } from "react";
import { useStream } from "@langchain/react";

const query = new URLSearchParams(location.search);

function Page() {
  const [threadId, setThreadId] = useState(query.get("thread") ?? sessionStorage.getItem("thread") ?? null);
  const [text, setText] = useState("");
  const stream = useStream({
    apiUrl: `${query.get("gateway")}/langgraph`,
    apiKey: null,
    assistantId: query.get("agent") ?? "demo",
    threadId,
    onThreadId: (id) => {
      sessionStorage.setItem("thread", id);
      setThreadId(id);
    },
  });
  const send = (event) => {
    event.preventDefault();
    setText("");
    stream.submit({ messages: [{ type: "human", content: text }] });
  };
  return (
    <main data-loading={stream.isLoading || stream.isThreadLoading}>
      <ol id="messages">
        {stream.messages.map((message) => (
          <li key={message.id} data-type={message.getType()} data-id={message.id}>
            <span className="text">{message.text}</span>
            {(message.tool_calls ?? []).map((call) => <i key={call.id} className="call">{call.name} {JSON.stringify(call.args)}</i>)}
          </li>
        ))}
      </ol>
      <ul id="tools">{stream.toolCalls.map((call) => <li key={call.id} data-status={call.status}>{call.name} {JSON.stringify(call.output)}</li>)}</ul>
      {stream.interrupt && (
        <div className="interrupt">
          {JSON.stringify(stream.interrupt.value)}
          <button id="approve" onClick={() => stream.respond({ approved: true })}>yes</button>
        </div>
      )}
      {stream.error != null && <p id="error">{String(stream.error.message ?? stream.error)}</p>}
      <pre id="values">{JSON.stringify({ ...stream.values, messages: undefined })}</pre>
      <form onSubmit={send}>
        <textarea value={text} onChange={(event) => setText(event.target.value)} onKeyDown={(event) => event.key === "Enter" && send(event)} />
      </form>
      <button id="stop" onClick={() => stream.stop()}>stop</button>
    </main>
  );
}

createRoot(document.querySelector("#root")).render(<Page />);
