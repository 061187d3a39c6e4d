// A chat page with LangGraph's `useStream`; the agent need not be a graph.

import { useStream } from "@langchain/langgraph-sdk/react";
import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";

/* global GATEWAY -- start.mjs inserts the gateway's URL here */

const text = (content) => (typeof content === "string" ? content : content.map((block) => block.text ?? "").join(""));

const Message = ({ message }) => (
  <div className={`message ${message.type}`}>
    {message.type === "tool" ? <span className="tool">→ {text(message.content)}</span> : text(message.content)}
    {(message.tool_calls ?? []).map(({ id, name, args }) => <div key={id} className="tool">{name}({JSON.stringify(args)})</div>)}
  </div>
);

function Page() {
  // The gateway stores the conversation; the page keeps the id of the thread.
  const [threadId, setThreadId] = useState(location.hash.slice(1) || null);
  const [question, setQuestion] = useState("");
  const stream = useStream({
    apiUrl: `${GATEWAY}/langgraph`,
    assistantId: "demo",
    threadId,
    onThreadId: (id) => {
      location.hash = id;
      setThreadId(id);
    },
    reconnectOnMount: true,
  });
  useEffect(() => void (document.body.dataset.ready = "yes"), []);
  const submit = (event) => {
    event.preventDefault();
    stream.submit({ messages: [{ type: "human", content: question }] });
    setQuestion("");
  };
  return (
    <>
      <h1>Any agent with useStream</h1>
      {stream.messages.map((message) => <Message key={message.id} message={message} />)}
      {stream.interrupt?.value && (
        <p>
          {stream.interrupt.value.message ?? "The agent asks."}{" "}
          <button onClick={() => stream.submit(undefined, { command: { resume: { approved: true } } })}>Approve</button>
        </p>
      )}
      {stream.error && <p className="error" role="alert">{String(stream.error.message ?? stream.error)}</p>}
      <form onSubmit={submit}>
        <input id="question" autoComplete="off" value={question} onChange={(event) => setQuestion(event.target.value)} />
        <button id="send">Send</button>
        {stream.isLoading && <button type="button" onClick={() => stream.stop()}>Stop</button>}
      </form>
    </>
  );
}

createRoot(document.getElementById("root")).render(<Page />);
