/** Callbacks of a run. */

import type * as events from "../../core/events";
import type { HaiError } from "../../core/errors";
import type { Message, RunAgentInput, State, ToolCall } from "../../core/types";
import type { AbstractAgent } from "./agent";

/** The result of a callback: new messages or state, and whether the default handling is skipped. */
export interface AgentStateMutation {
  messages?: Message[];
  state?: State;
  stopPropagation?: boolean;
}

/** The argument of every callback. `messages` and `state` are copies. */
export interface AgentSubscriberParams {
  messages: Message[];
  state: State;
  agent: AbstractAgent;
  input: RunAgentInput;
}

type Mutation = AgentStateMutation | void;
type Callback<Extra = {}> = (params: AgentSubscriberParams & Extra) => Mutation | Promise<Mutation>;
type EventCallback<E, Extra = {}> = Callback<{ event: E } & Extra>;
type Notice<Extra = {}> = (params: Omit<AgentSubscriberParams, "input"> & { input?: RunAgentInput } & Extra) => void | Promise<void>;

export interface AgentSubscriber {
  onRunInitialized?: Callback;
  onRunFailed?: Callback<{ error: HaiError }>;
  onRunFinalized?: Callback;

  /** Called first for every event, also for unknown types. */
  onEvent?: EventCallback<events.BaseEvent>;
  onRunStartedEvent?: EventCallback<events.RunStartedEvent>;
  onRunFinishedEvent?: EventCallback<events.RunFinishedEvent, { result?: any; outcome?: any }>;
  onRunErrorEvent?: EventCallback<events.RunErrorEvent>;
  onStepStartedEvent?: EventCallback<events.StepStartedEvent>;
  onStepFinishedEvent?: EventCallback<events.StepFinishedEvent>;
  onBusinessDataStartEvent?: EventCallback<events.BusinessDataStartEvent>;
  /** `textMessageBuffer` and the last message do not contain the delta of this event. */
  onBusinessDataContentEvent?: EventCallback<events.BusinessDataContentEvent, { textMessageBuffer: string }>;
  onBusinessDataEndEvent?: EventCallback<events.BusinessDataEndEvent, { textMessageBuffer: string }>;
  onAgentCollaborativeMessageStartEvent?: EventCallback<events.AgentCollaborativeMessageStartEvent>;
  onAgentCollaborativeMessageContentEvent?: EventCallback<
    events.AgentCollaborativeMessageContentEvent,
    { textMessageBuffer: string }
  >;
  onAgentCollaborativeMessageEndEvent?: EventCallback<
    events.AgentCollaborativeMessageEndEvent,
    { textMessageBuffer: string }
  >;
  onToolCallStartEvent?: EventCallback<events.ToolCallStartEvent>;
  onToolCallArgsEvent?: EventCallback<
    events.ToolCallArgsEvent,
    { toolCallBuffer: string; toolCallName: string; partialToolCallArgs: any }
  >;
  onToolCallEndEvent?: EventCallback<
    events.ToolCallEndEvent,
    { toolCallBuffer: string; toolCallName: string; toolCallArgs: any }
  >;
  onToolCallResultEvent?: EventCallback<events.ToolCallResultEvent>;
  onStateSnapshotEvent?: EventCallback<events.StateSnapshotEvent>;
  onStateDeltaEvent?: EventCallback<events.StateDeltaEvent>;
  onMessageSnapshotEvent?: EventCallback<events.MessageSnapshotEvent>;
  /** The same as `onMessageSnapshotEvent`, by its name in AG-UI. */
  onMessagesSnapshotEvent?: EventCallback<events.MessageSnapshotEvent>;
  onRawEvent?: EventCallback<events.RawEvent>;
  onCustomEvent?: EventCallback<events.CustomEvent>;

  onMessagesChanged?: Notice;
  onStateChanged?: Notice;
  onNewMessage?: Notice<{ message: Message }>;
  onNewToolCall?: Notice<{ toolCall: ToolCall }>;

  // Extensions of this package.
  onPaused?: Callback;
  onResumed?: Callback;
  onReconnecting?: Callback<{ attempt: number; delayMs: number }>;
  /** `recovery` is `whole`, `snapshot` or `gap`, if the server reports it. */
  onReconnected?: Callback<{ recovery?: string }>;
  /** A patch that does not apply; the state keeps its value. */
  onStateConflict?: EventCallback<events.StateDeltaEvent, { error: unknown }>;
  /** An exception of another callback; it never ends the run. */
  onSubscriberError?: (params: { error: unknown; callback: string }) => void;
}

/** Calls one callback of each subscriber in order and joins their results. */
export async function runSubscribersWithMutation(
  subscribers: readonly AgentSubscriber[],
  initialMessages: Message[],
  initialState: State,
  executor: (subscriber: AgentSubscriber, messages: Message[], state: State) => Mutation | Promise<Mutation>,
): Promise<AgentStateMutation> {
  let messages = initialMessages;
  let state = initialState;
  const result: AgentStateMutation = {};
  for (const subscriber of subscribers) {
    const mutation = await executor(subscriber, messages, state);
    if (!mutation) continue;
    if (mutation.messages !== undefined) result.messages = messages = mutation.messages;
    if (mutation.state !== undefined) result.state = state = mutation.state;
    if (mutation.stopPropagation) {
      result.stopPropagation = true;
      break;
    }
  }
  return result;
}
