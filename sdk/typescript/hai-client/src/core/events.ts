/** The events of HAI. Every event keeps members that this version does not know. */

import type { Message, RunAgentInput } from "./types";

export enum EventType {
  RUN_STARTED = "RUN_STARTED",
  RUN_FINISHED = "RUN_FINISHED",
  RUN_ERROR = "RUN_ERROR",
  STEP_STARTED = "STEP_STARTED",
  STEP_FINISHED = "STEP_FINISHED",
  BUSINESS_DATA_START = "BUSINESS_DATA_START",
  BUSINESS_DATA_CONTENT = "BUSINESS_DATA_CONTENT",
  BUSINESS_DATA_END = "BUSINESS_DATA_END",
  AGENT_COLLABORATIVE_MESSAGE_START = "AGENT_COLLABORATIVE_MESSAGE_START",
  AGENT_COLLABORATIVE_MESSAGE_CONTENT = "AGENT_COLLABORATIVE_MESSAGE_CONTENT",
  AGENT_COLLABORATIVE_MESSAGE_END = "AGENT_COLLABORATIVE_MESSAGE_END",
  TOOL_CALL_START = "TOOL_CALL_START",
  TOOL_CALL_ARGS = "TOOL_CALL_ARGS",
  TOOL_CALL_END = "TOOL_CALL_END",
  TOOL_CALL_RESULT = "TOOL_CALL_RESULT",
  STATE_SNAPSHOT = "STATE_SNAPSHOT",
  STATE_DELTA = "STATE_DELTA",
  MESSAGE_SNAPSHOT = "MESSAGE_SNAPSHOT",
  RAW = "RAW",
  CUSTOM = "CUSTOM",
}

export interface BaseEvent {
  type: EventType | string;
  timestamp?: number;
  rawEvent?: any;
  [key: string]: any;
}

export interface RunStartedEvent extends BaseEvent {
  threadId?: string;
  runId?: string;
  input?: RunAgentInput;
}
export interface RunFinishedEvent extends BaseEvent {
  result?: any;
  outcome?: any;
}
export interface RunErrorEvent extends BaseEvent {
  message: string;
  code?: string;
}
export interface StepStartedEvent extends BaseEvent {
  stepName: string;
}
export interface StepFinishedEvent extends BaseEvent {
  stepName: string;
}
export interface BusinessDataStartEvent extends BaseEvent {
  messageId: string;
}
export interface BusinessDataContentEvent extends BaseEvent {
  messageId: string;
  delta: any;
  blockId?: string;
  style?: any;
}
export interface BusinessDataEndEvent extends BaseEvent {
  messageId: string;
}
export interface AgentCollaborativeMessageStartEvent extends BaseEvent {
  messageId: string;
  from: string;
  to: string;
}
export interface AgentCollaborativeMessageContentEvent extends BaseEvent {
  messageId: string;
  delta: any;
}
export interface AgentCollaborativeMessageEndEvent extends BaseEvent {
  messageId: string;
}
export interface ToolCallStartEvent extends BaseEvent {
  toolCallId: string;
  toolCallName: string;
  parentMessageId?: string;
}
export interface ToolCallArgsEvent extends BaseEvent {
  toolCallId: string;
  delta: string;
}
export interface ToolCallEndEvent extends BaseEvent {
  toolCallId: string;
}
export interface ToolCallResultEvent extends BaseEvent {
  messageId: string;
  toolCallId: string;
  content: string;
}
export interface StateSnapshotEvent extends BaseEvent {
  snapshot: any;
}
export interface StateDeltaEvent extends BaseEvent {
  delta: any[];
}
export interface MessageSnapshotEvent extends BaseEvent {
  messages: Message[];
}
export interface RawEvent extends BaseEvent {
  event: any;
  source?: string;
}
export interface CustomEvent extends BaseEvent {
  name: string;
  value: any;
}
