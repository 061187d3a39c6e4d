// A chat page with `useChat`: streaming, tools of the agent and of the page, approvals, history, stop.

import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses, lastAssistantMessageIsCompleteWithToolCalls } from "ai";
import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";

/* global GATEWAY -- start.mjs inserts the gateway's URL here */

const id = (location.hash ||= `#${crypto.randomUUID()}`).slice(1);

/** A tool that runs in the page. */
const tools = [{ name: "confirmAction", description: "Asks the user for a confirmation", parameters: { type: "object", properties: { action: { type: "string" } } } }];

function Part({ part, approve }) {
  if (part.type === "text") return part.text;
  if (part.type === "reasoning") return <p className="reasoning">{part.text}</p>;
  if (part.toolCallId === undefined) return null;
  return (
    <div className="tool">
      {part.toolName ?? part.type.slice("tool-".length)}({JSON.stringify(part.input)}) {part.output !== undefined && `→ ${JSON.stringify(part.output)}`}
      {part.state === "approval-requested" && <button onClick={() => approve(part.approval.id)}>Approve</button>}
    </div>
  );
}

function Chat({ messages: earlier }) {
  const [question, setQuestion] = useState("");
  const { messages, sendMessage, addToolOutput, addToolApprovalResponse, status, error } = useChat({
    id,
    messages: earlier,
    // An answer that is still being written goes on after a reload.
    resume: true,
    transport: new DefaultChatTransport({ api: `${GATEWAY}/api/chat`, body: { tools } }),
    onToolCall: ({ toolCall: { toolName: tool, toolCallId, input } }) => {
      if (tool === "confirmAction") addToolOutput({ tool, toolCallId, output: { confirmed: window.confirm(input.action) } });
    },
    sendAutomaticallyWhen: (state) => lastAssistantMessageIsCompleteWithToolCalls(state) || lastAssistantMessageIsCompleteWithApprovalResponses(state),
  });
  useEffect(() => void (document.body.dataset.ready = "yes"), []);
  const submit = (event) => {
    event.preventDefault();
    sendMessage({ text: question });
    setQuestion("");
  };
  return (
    <>
      <h1>Any agent with useChat</h1>
      {messages.map((message) => (
        <div key={message.id} className={`message ${message.role}`}>
          {message.parts.map((part, index) => <Part key={index} part={part} approve={(id) => addToolApprovalResponse({ id, approved: true })} />)}
        </div>
      ))}
      {error && <p className="error" role="alert">{error.message}</p>}
      <form onSubmit={submit}>
        <input id="question" autoComplete="off" value={question} onChange={(event) => setQuestion(event.target.value)} />
        <button id="send">Send</button>
        {/* `stop()` of the hook only leaves the stream; the run goes on. */}
        {status === "streaming" && <button type="button" onClick={() => fetch(`${GATEWAY}/api/chat/${id}/stop`, { method: "POST" })}>Stop</button>}
      </form>
      <p id="status">{status}</p>
    </>
  );
}

// The messages from before the page was loaded.
const answer = await fetch(`${GATEWAY}/message_snapshot/${id}?format=ai-sdk@7`);
createRoot(document.getElementById("root")).render(<Chat messages={answer.ok ? await answer.json() : []} />);
