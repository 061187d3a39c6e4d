/** Messages, tools and the request body. */

export interface ToolCall {
  id: string;
  type: "function";
  function: { name: string; arguments: string };
}

interface MessageFields {
  id: string;
  content?: string;
  name?: string;
  timestamp?: number;
  extra?: any;
  [key: string]: any;
}

export interface UserMessage extends MessageFields {
  role: "user";
}
export interface AssistantMessage extends MessageFields {
  role: "assistant";
  toolCalls?: ToolCall[];
}
export interface SystemMessage extends MessageFields {
  role: "system";
}
export interface ToolMessage extends MessageFields {
  role: "tool";
  toolCallId: string;
}
export interface DeveloperMessage extends MessageFields {
  role: "developer";
}

export type Role = "user" | "assistant" | "system" | "tool" | "developer";
/** One message. The five types below narrow it by role. */
export interface Message extends MessageFields {
  role: Role;
  toolCalls?: ToolCall[];
  toolCallId?: string;
}

/** A message that is added: user interfaces also have `contents`, and `content` may be a list of parts. */
export interface InputMessage {
  id?: string;
  role: Role;
  content?: string | any[];
  contents?: any[];
  toolCalls?: ToolCall[];
  toolCallId?: string;
  [key: string]: any;
}

export interface Tool {
  name: string;
  description: string;
  /** JSON Schema of the arguments. */
  parameters?: any;
  [key: string]: any;
}

export interface Context {
  description?: string;
  value?: string;
  [key: string]: any;
}

export type State = any;

export interface RunAgentInput {
  threadId: string;
  runId: string;
  messages: Message[];
  state: State;
  tools: Tool[];
  context: Context[];
  forwardedProps: any;
  resume?: any[];
}
