/** AG-UI events, as the log of a run has them. */

export interface AgEvent {
  type: string;
  timestamp?: number;
  messageId?: string;
  toolCallId?: string;
  subagentRunId?: string;
  delta?: any;
  rawEvent?: unknown;
  [key: string]: any;
}

/** The groups by which a timeline is filtered. */
export const GROUPS = ["run", "text", "reasoning", "tool", "state", "activity", "agent", "other"] as const;
export type Group = (typeof GROUPS)[number];

export function groupOf(type: string): Group {
  if (type.startsWith("RUN_") || type.startsWith("STEP_")) return "run";
  if (type.startsWith("TEXT_")) return "text";
  if (type.startsWith("REASONING_") || type.startsWith("THINKING_")) return "reasoning";
  if (type.startsWith("TOOL_")) return "tool";
  if (type.startsWith("STATE_") || type.startsWith("MESSAGES_")) return "state";
  if (type.startsWith("ACTIVITY_")) return "activity";
  if (type.startsWith("SUBAGENT_")) return "agent";
  return "other";
}

/** The lane of an event: its call, message, activity or subagent; the run itself otherwise. */
export function laneOf(event: AgEvent): string {
  if (event.type.startsWith("TOOL_") && event.toolCallId) return event.toolCallId;
  if (event.type.startsWith("SUBAGENT_") && event.subagentRunId) return event.subagentRunId;
  if (event.type.startsWith("STATE_")) return "state";
  if (event.type.startsWith("STEP_")) return `step ${event.stepName ?? ""}`;
  return event.messageId ?? event.entityId ?? "run";
}

/** One line about an event. */
export function summaryOf(event: AgEvent): string {
  const text = (value: unknown): string => (typeof value === "string" ? value : value === undefined ? "" : JSON.stringify(value));
  switch (event.type) {
    case "RUN_ERROR":
      return `${event.code ?? ""} ${event.message ?? ""}`.trim();
    case "RUN_FINISHED":
      return event.outcome ? text(event.outcome.type) : "";
    case "TOOL_CALL_START":
      return text(event.toolCallName);
    case "TOOL_CALL_RESULT":
      return text(event.content);
    case "STEP_STARTED":
    case "STEP_FINISHED":
      return text(event.stepName);
    case "SUBAGENT_STARTED":
      return text(event.name);
    case "STATE_SNAPSHOT":
      return text(event.snapshot);
    case "ACTIVITY_SNAPSHOT":
      return `${event.activityType} ${text(event.content)}`;
    case "ACTIVITY_DELTA":
      return text(event.patch);
    case "CUSTOM":
      return `${event.name} ${text(event.value)}`;
    case "RAW":
      return text(event.event);
    case "MESSAGES_SNAPSHOT":
      return `${event.messages?.length ?? 0}`;
    default:
      return text(event.delta);
  }
}
