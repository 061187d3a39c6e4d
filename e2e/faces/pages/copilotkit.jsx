// A page with CopilotKit's own components and hooks. The address of the gateway, the agent, the thread and the transport
// come from the query.

import { createRoot } from "react-dom/client";
import { useEffect, useState } from "react";
import { z } from "zod";
import { CopilotKit } from "@copilotkit/react-core";
import { CopilotChat } from "@copilotkit/react-ui";
import {
  CopilotChat as CopilotChatV2, CopilotKitProvider, useAgent, useFrontendTool, useHumanInTheLoop, useInterrupt, useRenderTool, useThreads,
} from "@copilotkit/react-core/v2";

const query = new URLSearchParams(location.search);
const runtimeUrl = `${query.get("gateway")}/copilotkit`;
const agentId = query.get("agent") ?? "demo";
const threadId = query.get("thread") ?? undefined;
const single = query.get("single");
const version = query.get("version") ?? "1";

window.states = [];

const planRenderer = {
  activityType: "demo.plan",
  content: z.any(),
  render: ({ content }) => <div className="plan">{JSON.stringify(content)}</div>,
};
function Features() {
  const { agent } = useAgent({ agentId });
  const [, redraw] = useState(0);
  useEffect(() => {
    if (Object.keys(agent.state ?? {}).length) window.states.push(structuredClone(agent.state));
    const { unsubscribe } = agent.subscribe({
      onStateChanged: ({ state }) => {
        // Every state that the page has had; it may draw only the last one of several.
        window.states.push(structuredClone(state));
        redraw((n) => n + 1);
      },
    });
    return unsubscribe;
  }, [agent]);
  useRenderTool({
    name: "weather",
    parameters: z.any(),
    agentId,
    render: ({ status, parameters, result }) => (
      <div className="weather" data-status={status}>{JSON.stringify(parameters)} {String(result ?? "")}</div>
    ),
  });
  if (query.get("hitl")) {
    useHumanInTheLoop({
      name: "confirmAction",
      description: "Asks the user",
      parameters: z.object({}).passthrough(),
      agentId,
      render: ({ status, respond }) => (
        <div className="hitl" data-status={status}>
          {status === "executing" && <button id="confirm" onClick={() => respond({ confirmed: true })}>yes</button>}
        </div>
      ),
    });
  } else {
    useFrontendTool({
      name: "confirmAction",
      description: "Confirms",
      parameters: z.object({}).passthrough(),
      agentId,
      handler: async () => {
        document.title = "the tool ran";
        return "confirmed by the page";
      },
    });
  }
  useInterrupt({
    agentId,
    render: ({ interrupt, resolve }) => (
      <div className="interrupt">
        {interrupt?.message ?? interrupt?.reason}
        <button id="approve" onClick={() => resolve({ approved: true })}>approve</button>
      </div>
    ),
  });
  const send = () => agent.setState({ ...agent.state, fromPage: "seen" });
  return (
    <div>
      <pre id="state">{JSON.stringify(agent.state)}</pre>
      <button id="set-state" onClick={send}>set state</button>
    </div>
  );
}

function Threads() {
  const { threads, renameThread, archiveThread, deleteThread, error } = useThreads({ agentId });
  return (
    <ul id="threads" data-error={error ? String(error) : ""}>
      {threads.map((thread) => (
        <li key={thread.id} data-id={thread.id}>
          <span>{thread.name ?? thread.id}</span>
          <button className="rename" onClick={() => renameThread(thread.id, "renamed in the page")}>rename</button>
          <button className="archive" onClick={() => archiveThread(thread.id)}>archive</button>
          <button className="delete" onClick={() => deleteThread(thread.id)}>delete</button>
        </li>
      ))}
    </ul>
  );
}

const common = { runtimeUrl, renderActivityMessages: [planRenderer] };
const noteError = (event) => (document.body.dataset.error = `${document.body.dataset.error ?? ""} ${event?.error?.message ?? event?.message ?? JSON.stringify(event)}`);

function Page() {
  if (version === "2") {
    return (
      <CopilotKitProvider {...common} {...(single === null ? {} : { useSingleEndpoint: single === "true" })} onError={noteError}>
        <Features />
        {query.get("list") && <Threads />}
        <CopilotChatV2 agentId={agentId} threadId={threadId} />
      </CopilotKitProvider>
    );
  }
  return (
    <CopilotKit {...common} agent={agentId} threadId={threadId} showDevConsole={false} onError={noteError} {...(single === null ? {} : { useSingleEndpoint: single === "true" })}>
      <Features />
      {query.get("list") && <Threads />}
      <CopilotChat instructions="none" />
    </CopilotKit>
  );
}

createRoot(document.getElementById("root")).render(<Page />);
