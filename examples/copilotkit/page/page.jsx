// A page with CopilotKit's own components: chat, a tool of the agent, a tool of the page, a question, shared state, threads.

import {
  CopilotChat, CopilotKitProvider, useAgent, useFrontendTool, useInterrupt, useRenderTool, useThreads,
} from "@copilotkit/react-core/v2";
import "@copilotkit/react-core/v2/styles.css";
import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { z } from "zod";

/* global GATEWAY -- start.mjs inserts the gateway's URL here */

const agentId = "demo";

/** What the chat draws and runs besides text. */
function Tools() {
  useRenderTool({
    name: "weather",
    parameters: z.any(),
    agentId,
    render: ({ parameters, result }) => <p className="tool">weather({JSON.stringify(parameters)}) {result && `→ ${result}`}</p>,
  });
  useFrontendTool({
    name: "confirmAction",
    description: "Asks the user for a confirmation",
    parameters: z.object({ action: z.string().optional() }).passthrough(),
    agentId,
    handler: async ({ action }) => ({ confirmed: window.confirm(action ?? "Go on?") }),
  });
  useInterrupt({
    agentId,
    render: ({ interrupt, resolve }) => (
      <div className="question">
        {interrupt?.message ?? interrupt?.reason} <button onClick={() => resolve({ approved: true })}>Approve</button>
      </div>
    ),
  });
  return null;
}

function Side({ threadId, open }) {
  const { agent } = useAgent({ agentId });
  const { threads } = useThreads({ agentId });
  return (
    <aside>
      <button onClick={() => open(crypto.randomUUID())}>New chat</button>
      <ul>
        {threads.map(({ id, name }) => (
          <li key={id} data-active={id === threadId || undefined} onClick={() => open(id)}>{name ?? id}</li>
        ))}
      </ul>
      <h2>State</h2>
      <pre id="state">{JSON.stringify(agent.state, null, 1)}</pre>
    </aside>
  );
}

function Page() {
  const [threadId, setThreadId] = useState((location.hash ||= `#${crypto.randomUUID()}`).slice(1));
  const open = (id) => {
    location.hash = id;
    setThreadId(id);
  };
  useEffect(() => void (document.body.dataset.ready = "yes"), []);
  return (
    <CopilotKitProvider runtimeUrl={`${GATEWAY}/copilotkit`}>
      <Tools />
      <Side threadId={threadId} open={open} />
      <main><CopilotChat agentId={agentId} threadId={threadId} /></main>
    </CopilotKitProvider>
  );
}

createRoot(document.getElementById("root")).render(<Page />);
