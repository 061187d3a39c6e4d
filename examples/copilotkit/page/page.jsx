// A chat page with CopilotKit's own components and hooks; `runtimeUrl` is the gateway.

import { CopilotKit } from "@copilotkit/react-core";
import { useFrontendTool, useRenderTool } from "@copilotkit/react-core/v2";
import { CopilotChat } from "@copilotkit/react-ui";
import "@copilotkit/react-ui/styles.css";
import { useEffect } from "react";
import { createRoot } from "react-dom/client";
import { z } from "zod";

/* global GATEWAY -- start.mjs inserts the gateway's URL here */

// The gateway stores the conversation, so the page needs only the thread id.
const threadId = (location.hash ||= `#${crypto.randomUUID()}`).slice(1);

function Tools() {
  // A tool of the agent, drawn by the page.
  useRenderTool({
    name: "weather",
    parameters: z.any(),
    agentId: "demo",
    render: ({ parameters, result }) => <p className="weather">{JSON.stringify(parameters)} {result ? `→ ${result}` : "…"}</p>,
  });
  // A tool that runs in the page.
  useFrontendTool({
    name: "confirmAction",
    description: "Asks the user for a confirmation",
    parameters: z.object({ action: z.string().optional() }),
    agentId: "demo",
    handler: async ({ action }) => ({ confirmed: window.confirm(action) }),
  });
  useEffect(() => void (document.body.dataset.ready = "yes"), []);
  return null;
}

createRoot(document.getElementById("root")).render(
  <CopilotKit runtimeUrl={`${GATEWAY}/copilotkit`} agent="demo" threadId={threadId} showDevConsole={false}>
    <Tools />
    <CopilotChat labels={{ initial: "Say `tools`, `think` or `confirm`." }} />
  </CopilotKit>,
);
