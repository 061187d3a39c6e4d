/** Settings, parameters and results of an agent. */

import type { Context, InputMessage, Message, State, Tool } from "../../core/types";
import type { VerifyMode } from "../verify";

export interface AgentConfig {
  agentId?: string;
  description?: string;
  threadId?: string;
  initialMessages?: InputMessage[] | any[];
  initialState?: State;
  debug?: boolean;
}

export interface ReconnectPolicy {
  retries?: number;
  minDelayMs?: number;
  maxDelayMs?: number;
}

export interface HttpAgentConfig extends AgentConfig {
  url: string;
  headers?: Record<string, string>;
  fetch?: typeof fetch;
  /** Asks for the binary form; the response's content type decides. */
  binary?: boolean;
  verify?: VerifyMode;
  reconnect?: ReconnectPolicy | false;
  timeouts?: { connectMs?: number; idleMs?: number };
  credentials?: RequestCredentials;
}

export interface RunAgentParameters {
  runId?: string;
  tools?: Tool[];
  context?: Context[];
  forwardedProps?: any;
  resume?: any[];
  abortController?: AbortController;
}

export interface RunAgentResult {
  result: any;
  newMessages: Message[];
}
