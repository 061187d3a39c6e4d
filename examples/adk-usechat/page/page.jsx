// A complete chat page with `useChat`, as in the AI SDK's documentation; only the URL is different.

import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport } from "ai";
import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";

/* global GATEWAY -- start.mjs inserts the gateway's URL here */

// The gateway stores the conversation, so the page needs only the thread id.
const id = (location.hash ||= `#${crypto.randomUUID()}`).slice(1);

function Part({ part }) {
  if (part.type === "text") return part.text;
  if (part.type !== "dynamic-tool" && !part.type.startsWith("tool-")) return null;
  const name = part.toolName ?? part.type.slice("tool-".length);
  return (
    <span className="tool">
      {name}({JSON.stringify(part.input)}) {part.state === "output-available" && `→ ${JSON.stringify(part.output)}`}
      {"\n"}
    </span>
  );
}

function Chat({ messages: earlier }) {
  const { messages, sendMessage, status, error } = useChat({
    id,
    messages: earlier,
    // A run that is active while the page is loaded is resumed.
    resume: true,
    transport: new DefaultChatTransport({ api: `${GATEWAY}/api/chat` }),
  });
  const [question, setQuestion] = useState("");
  useEffect(() => void (document.body.dataset.ready = "yes"), []);
  const submit = (event) => {
    event.preventDefault();
    sendMessage({ text: question });
    setQuestion("");
  };
  return (
    <>
      <h1>Weather</h1>
      <ul>
        {messages.map((message) => (
          <li key={message.id} className={message.role}>
            {message.parts.map((part, index) => <Part key={index} part={part} />)}
          </li>
        ))}
      </ul>
      {error && <p className="error" role="alert">{error.message}</p>}
      <form onSubmit={submit}>
        <input id="question" autoComplete="off" value={question} onChange={(event) => setQuestion(event.target.value)} />{" "}
        <button>Send</button>
      </form>
      <p id="status">{status}</p>
    </>
  );
}

// The messages from before the page was loaded.
const answer = await fetch(`${GATEWAY}/message_snapshot/${id}?format=ai-sdk@7`);
createRoot(document.getElementById("root")).render(<Chat messages={answer.ok ? await answer.json() : []} />);
