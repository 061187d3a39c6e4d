export { AbstractAgent } from "./agent";
export { HttpAgent } from "./http";
export { runSubscribersWithMutation } from "./subscriber";
export type { AgentStateMutation, AgentSubscriber, AgentSubscriberParams } from "./subscriber";
export type {
  AgentConfig,
  HttpAgentConfig,
  ReconnectPolicy,
  RunAgentParameters,
  RunAgentResult,
} from "./types";
