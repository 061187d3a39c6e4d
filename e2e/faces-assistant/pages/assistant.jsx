// A page with the components of assistant-ui. The runtime, the address of the gateway and the features come from the query.

import { createRoot } from "react-dom/client";
import { useMemo, useState } from "react";
import {
  ActionBarPrimitive, AssistantRuntimeProvider, AttachmentPrimitive, BranchPickerPrimitive, ComposerPrimitive, ErrorPrimitive, MessagePrimitive,
  SimpleImageAttachmentAdapter, ThreadListItemPrimitive, ThreadListPrimitive, ThreadPrimitive, useAssistantInstructions, useAssistantTool,
  useAssistantToolUI, useAuiState, useRemoteThreadListRuntime,
} from "@assistant-ui/react";
import { AssistantChatTransport, useChatRuntime } from "@assistant-ui/react-ai-sdk";
import { useDataStreamRuntime } from "@assistant-ui/react-data-stream";
import { useAgUiInterrupts, useAgUiRuntime, useAgUiState, useAgUiSubmitInterruptResponses } from "@assistant-ui/react-ag-ui";
import { HttpAgent } from "@ag-ui/client";
import { lastAssistantMessageIsCompleteWithApprovalResponses, lastAssistantMessageIsCompleteWithToolCalls } from "ai";
import { gatewayThreads } from "../../../examples/assistant-ui/page/agentwire.jsx";

const query = new URLSearchParams(location.search);
const base = query.get("gateway");
const kind = query.get("runtime");
const threads = gatewayThreads(base, { agUi: kind === "ag-ui" });
const noteError = (error) => (document.body.dataset.error = `${document.body.dataset.error ?? ""} ${error.message}`);
const adapters = { attachments: new SimpleImageAttachmentAdapter() };

const useRuntime = {
  "ai-sdk": () => {
    const transport = useMemo(() => new AssistantChatTransport({ api: `${base}/api/chat`, ...threads.transport }), []);
    const sendAutomaticallyWhen = (it) => lastAssistantMessageIsCompleteWithToolCalls(it) || lastAssistantMessageIsCompleteWithApprovalResponses(it);
    return useChatRuntime({ transport, adapters, sendAutomaticallyWhen, onError: noteError });
  },
  "data-stream": () => {
    const id = useAuiState((state) => state.threadListItem.id);
    return useDataStreamRuntime({ api: `${base}/api/chat`, body: { id }, adapters, onError: noteError, onCancel: () => threads.stop(id), maxSteps: 5, unstable_humanToolNames: [...(query.get("hitl") ? ["confirmAction"] : []), "interrupt", "pay"] });
  },
  "ag-ui": () => {
    const id = useAuiState((state) => state.threadListItem.id);
    const [agent] = useState(() => new HttpAgent({ url: base, threadId: id }));
    return useAgUiRuntime({ agent, adapters, onError: noteError, onCancel: () => threads.stop(id) });
  },
}[kind];

const empty = { type: "object", properties: {} };

function Features() {
  useAssistantInstructions("You speak like the page wants.");
  useAssistantToolUI({
    toolName: "weather",
    render: ({ args, result, status }) => <div className="weather" data-status={status.type}>{JSON.stringify(args)} {JSON.stringify(result)}</div>,
  });
  useAssistantTool(query.get("hitl")
    ? {
        toolName: "confirmAction", type: "human", description: "Asks the person", parameters: empty,
        render: ({ result, addResult }) => <div className="hitl">{result === undefined ? <button id="confirm" onClick={() => addResult({ confirmed: true })}>yes</button> : "answered"}</div>,
      }
    : {
        toolName: "confirmAction", description: "Confirms", parameters: empty,
        execute: async () => ((document.title = "the tool ran"), "confirmed by the page"),
        render: ({ result }) => <div className="tool">{JSON.stringify(result)}</div>,
      });
  // An open question without a tool call of the agent's own.
  useAssistantToolUI({
    toolName: "interrupt",
    render: ({ args, result, addResult }) => (
      <div className="interrupt">{args?.message}{result === undefined && <button className="approve" onClick={() => addResult({ approved: true })}>approve</button>}</div>
    ),
  });
  return null;
}

function Interrupts() {
  const interrupts = useAgUiInterrupts();
  const submit = useAgUiSubmitInterruptResponses();
  const state = useAgUiState();
  return (
    <>
      <pre id="state">{JSON.stringify(state)}</pre>
      {interrupts.map(({ id, message }) => (
        <div className="interrupt" key={id}>
          {message}
          <button className="approve" onClick={() => submit([{ interruptId: id, status: "resolved", payload: { approved: true } }])}>approve</button>
        </div>
      ))}
    </>
  );
}

function Tool({ toolName, args, result, approval, respondToApproval, addResult }) {
  const isOpen = approval ? approval.approved === undefined : kind === "data-stream" && toolName === "pay" && result === undefined;
  const approve = () => (approval ? respondToApproval({ approved: true }) : addResult({ approved: true }));
  return (
    <div className="call" data-name={toolName}>
      {toolName} {JSON.stringify(args)} {JSON.stringify(result)}
      {isOpen && <button className="approve" onClick={approve}>approve</button>}
    </div>
  );
}

const parts = {
  Text: ({ text }) => <p className="text">{text}</p>,
  Reasoning: ({ text }) => <p className="reasoning">{text}</p>,
  File: ({ mimeType, filename }) => <p className="file">{filename} {mimeType}</p>,
  Image: ({ image }) => <img className="image" alt="" src={image} />,
  tools: { Fallback: Tool },
};

const Branches = () => (
  <BranchPickerPrimitive.Root hideWhenSingleBranch className="branches">
    <BranchPickerPrimitive.Previous className="previous">‹</BranchPickerPrimitive.Previous>
    <BranchPickerPrimitive.Number />/<BranchPickerPrimitive.Count />
    <BranchPickerPrimitive.Next>›</BranchPickerPrimitive.Next>
  </BranchPickerPrimitive.Root>
);

const UserMessage = () => (
  <MessagePrimitive.Root className="user">
    <MessagePrimitive.Parts components={parts} />
    <MessagePrimitive.Attachments components={{ Attachment: () => <AttachmentPrimitive.Root className="attachment"><AttachmentPrimitive.Name /></AttachmentPrimitive.Root> }} />
    <ActionBarPrimitive.Root><ActionBarPrimitive.Edit className="edit">edit</ActionBarPrimitive.Edit></ActionBarPrimitive.Root>
    <Branches />
  </MessagePrimitive.Root>
);

const EditComposer = () => (
  <ComposerPrimitive.Root className="edit-composer">
    <ComposerPrimitive.Input className="edit-input" />
    <ComposerPrimitive.Send className="edit-send">send</ComposerPrimitive.Send>
  </ComposerPrimitive.Root>
);

const AssistantMessage = () => (
  <MessagePrimitive.Root className="assistant">
    <MessagePrimitive.Parts components={parts} />
    <MessagePrimitive.Error><ErrorPrimitive.Root className="error"><ErrorPrimitive.Message /></ErrorPrimitive.Root></MessagePrimitive.Error>
    <ActionBarPrimitive.Root><ActionBarPrimitive.Reload className="reload">again</ActionBarPrimitive.Reload></ActionBarPrimitive.Root>
    <Branches />
  </MessagePrimitive.Root>
);

const ThreadItem = () => (
  <ThreadListItemPrimitive.Root className="thread">
    <ThreadListItemPrimitive.Trigger className="open"><ThreadListItemPrimitive.Title fallback="new" /></ThreadListItemPrimitive.Trigger>
    <ThreadListItemPrimitive.Archive className="archive">archive</ThreadListItemPrimitive.Archive>
    <ThreadListItemPrimitive.Unarchive className="unarchive">unarchive</ThreadListItemPrimitive.Unarchive>
    <ThreadListItemPrimitive.Delete className="delete">delete</ThreadListItemPrimitive.Delete>
  </ThreadListItemPrimitive.Root>
);

function Page() {
  const [threadId, setThreadId] = useState(location.hash.slice(1) || undefined);
  const runtime = useRemoteThreadListRuntime({
    runtimeHook: useRuntime,
    adapter: threads,
    threadId,
    onThreadIdChange: (id) => {
      location.hash = id ?? "";
      setThreadId(id);
    },
  });
  window.runtime = runtime;
  return (
    <AssistantRuntimeProvider runtime={runtime}>
      <Features />
      <ThreadListPrimitive.Root id="threads">
        <ThreadListPrimitive.New id="new">new</ThreadListPrimitive.New>
        <ThreadListPrimitive.Items components={{ ThreadListItem: ThreadItem }} />
        <div id="archived"><ThreadListPrimitive.Items archived components={{ ThreadListItem: ThreadItem }} /></div>
      </ThreadListPrimitive.Root>
      <ThreadPrimitive.Root>
        <ThreadPrimitive.Viewport id="messages">
          <ThreadPrimitive.Messages components={{ UserMessage, AssistantMessage, EditComposer }} />
        </ThreadPrimitive.Viewport>
        {kind === "ag-ui" && <Interrupts />}
        <ComposerPrimitive.Root id="composer">
          <ComposerPrimitive.Attachments components={{ Attachment: () => <span className="pending-attachment"><AttachmentPrimitive.Name /></span> }} />
          <ComposerPrimitive.AddAttachment id="attach">attach</ComposerPrimitive.AddAttachment>
          <ComposerPrimitive.Input id="input" />
          <ComposerPrimitive.Send id="send">send</ComposerPrimitive.Send>
          <ComposerPrimitive.Cancel id="stop">stop</ComposerPrimitive.Cancel>
        </ComposerPrimitive.Root>
      </ThreadPrimitive.Root>
    </AssistantRuntimeProvider>
  );
}

createRoot(document.getElementById("root")).render(<Page />);
