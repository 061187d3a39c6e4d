// A chat page with assistant-ui: a list of threads, their history, streaming, tools, approvals, stop.

import {
  ActionBarPrimitive, AssistantRuntimeProvider, ComposerPrimitive, ErrorPrimitive, MessagePrimitive, ThreadListItemPrimitive, ThreadListPrimitive,
  ThreadPrimitive, useAssistantTool, useRemoteThreadListRuntime,
} from "@assistant-ui/react";
import { AssistantChatTransport, useChatRuntime } from "@assistant-ui/react-ai-sdk";
import { lastAssistantMessageIsCompleteWithApprovalResponses, lastAssistantMessageIsCompleteWithToolCalls } from "ai";
import { useEffect, useMemo, useState } from "react";
import { createRoot } from "react-dom/client";

import { gatewayThreads } from "./agentwire.jsx";

/* global GATEWAY -- start.mjs inserts the gateway's URL here */

const threads = gatewayThreads(GATEWAY);

/** The runtime of one thread. */
function useThread() {
  const transport = useMemo(() => new AssistantChatTransport({ api: `${GATEWAY}/api/chat`, ...threads.transport }), []);
  const sendAutomaticallyWhen = (state) => lastAssistantMessageIsCompleteWithToolCalls(state) || lastAssistantMessageIsCompleteWithApprovalResponses(state);
  return useChatRuntime({ transport, sendAutomaticallyWhen });
}

/** A tool that runs in the page. */
function Tools() {
  useAssistantTool({
    toolName: "confirmAction",
    description: "Asks the user for a confirmation",
    parameters: { type: "object", properties: { action: { type: "string" } } },
    execute: async ({ action }) => ({ confirmed: window.confirm(action) }),
  });
  return null;
}

const Tool = ({ toolName, args, result, approval, respondToApproval }) => (
  <div className="tool">
    {toolName}({JSON.stringify(args)}) {result !== undefined && `→ ${JSON.stringify(result)}`}
    {approval && approval.approved === undefined && <button type="button" onClick={() => respondToApproval({ approved: true })}>Approve</button>}
  </div>
);

const parts = { Text: ({ text }) => text, Reasoning: ({ text }) => <p className="reasoning">{text}</p>, tools: { Fallback: Tool } };

const UserMessage = () => <MessagePrimitive.Root className="user"><MessagePrimitive.Parts components={parts} /></MessagePrimitive.Root>;

const AssistantMessage = () => (
  <MessagePrimitive.Root className="assistant">
    <MessagePrimitive.Parts components={parts} />
    <MessagePrimitive.Error><ErrorPrimitive.Root className="error"><ErrorPrimitive.Message /></ErrorPrimitive.Root></MessagePrimitive.Error>
    <ActionBarPrimitive.Root hideWhenRunning><ActionBarPrimitive.Reload>Again</ActionBarPrimitive.Reload></ActionBarPrimitive.Root>
  </MessagePrimitive.Root>
);

const ThreadItem = () => (
  <ThreadListItemPrimitive.Root>
    <ThreadListItemPrimitive.Trigger className="open"><ThreadListItemPrimitive.Title fallback="New chat" /></ThreadListItemPrimitive.Trigger>
    <ThreadListItemPrimitive.Delete>Delete</ThreadListItemPrimitive.Delete>
  </ThreadListItemPrimitive.Root>
);

function Page() {
  const [threadId, setThreadId] = useState(decodeURIComponent(location.hash.slice(1)) || undefined);
  const onThreadIdChange = (id) => {
    location.hash = id ?? "";
    setThreadId(id);
  };
  const runtime = useRemoteThreadListRuntime({ runtimeHook: useThread, adapter: threads, threadId, onThreadIdChange });
  useEffect(() => void (document.body.dataset.ready = "yes"), []);
  return (
    <AssistantRuntimeProvider runtime={runtime}>
      <Tools />
      <nav>
        <ThreadListPrimitive.Root>
          <ThreadListPrimitive.New>New chat</ThreadListPrimitive.New>
          <ThreadListPrimitive.Items components={{ ThreadListItem: ThreadItem }} />
        </ThreadListPrimitive.Root>
      </nav>
      <main>
        <ThreadPrimitive.Root>
          <ThreadPrimitive.Messages components={{ UserMessage, AssistantMessage }} />
          <ComposerPrimitive.Root>
            <ComposerPrimitive.Input id="question" autoFocus />
            <ComposerPrimitive.Send id="send">Send</ComposerPrimitive.Send>
            <ComposerPrimitive.Cancel>Stop</ComposerPrimitive.Cancel>
          </ComposerPrimitive.Root>
        </ThreadPrimitive.Root>
      </main>
    </AssistantRuntimeProvider>
  );
}

createRoot(document.getElementById("root")).render(<Page />);
