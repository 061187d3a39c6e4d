/** Events of a run applied to messages and state, with the callbacks of each event. */

import { applyPatch } from "fast-json-patch";

import { HaiError } from "../../core/errors";
import type { BaseEvent } from "../../core/events";
import { copy, deltaText } from "../../core/json";
import type { Message, RunAgentInput, ToolCall } from "../../core/types";
import type { AbstractAgent } from "../agent/agent";
import type { AgentStateMutation, AgentSubscriber } from "../agent/subscriber";

/** `BUSINESS_DATA_START` → `onBusinessDataStartEvent`. */
function callbackName(type: string): string {
  const words = type.toLowerCase().split("_");
  return `on${words.map((word) => word.charAt(0).toUpperCase() + word.slice(1)).join("")}Event`;
}

function parsed(text: string): any {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

/** The arguments of a call so far: the text closed as JSON, where that is possible. */
function partial(text: string): any {
  const closers: string[] = [];
  let inString = false;
  for (let at = 0; at < text.length; at += 1) {
    const char = text[at];
    if (inString) {
      if (char === "\\") at += 1;
      else if (char === '"') inString = false;
    } else if (char === '"') inString = true;
    else if (char === "{") closers.unshift("}");
    else if (char === "[") closers.unshift("]");
    else if (char === "}" || char === "]") closers.shift();
  }
  const closed = text + (inString ? '"' : "") + closers.join("");
  try {
    return JSON.parse(closed);
  } catch {
    try {
      return JSON.parse(closed.replace(/,?\s*("[^"]*"\s*:?\s*)?([}\]]+)$/, "$2"));
    } catch {
      return {};
    }
  }
}

/**
 * One run: open messages and calls, and the dispatch of callbacks. Messages and their list are replaced, never changed,
 * so that the argument of a callback keeps its values after the callback.
 */
export class RunState {
  /** Text of the open part of a message or hand-over, by id. */
  private readonly buffers = new Map<string, string>();
  /** The calls of a snapshot: a start behind it reopens them with their arguments. */
  private readonly known = new Set<string>();
  isEnded = false;
  result: any;
  error?: HaiError;

  constructor(
    private readonly agent: AbstractAgent,
    readonly input: RunAgentInput,
    private readonly subscribers: () => AgentSubscriber[],
  ) {}

  /** Forgets the open parts: a snapshot follows. */
  reset(): void {
    this.buffers.clear();
  }

  /** Calls one callback of every subscriber; an exception is reported and the next one is called. */
  async call(name: keyof AgentSubscriber, extra: object = {}, lastId?: string): Promise<AgentStateMutation> {
    const { agent, input } = this;
    const result: AgentStateMutation = {};
    for (const subscriber of [...this.subscribers()]) {
      const callback = subscriber[name] as ((params: any) => any) | undefined;
      if (!callback) continue;
      // Copies are made when they are read: most callbacks read one of them or none.
      const [listNow, stateNow] = [agent.messages, agent.state];
      let messages: Message[] | undefined;
      let state: any;
      let hasState = false;
      const params = {
        ...extra,
        agent,
        input,
        get messages() {
          return (messages ??= ordered(copy(listNow), lastId));
        },
        get state() {
          if (!hasState) state = copy(stateNow);
          hasState = true;
          return state;
        },
      };
      try {
        const mutation: AgentStateMutation | void = await callback.call(subscriber, params);
        if (!mutation || typeof mutation !== "object") continue;
        if (mutation.messages !== undefined) agent.messages = result.messages = copy(mutation.messages);
        if (mutation.state !== undefined) agent.state = result.state = copy(mutation.state);
        if (mutation.stopPropagation) {
          result.stopPropagation = true;
          break;
        }
      } catch (error) {
        this.report(error, name);
      }
    }
    if (result.messages !== undefined && name !== "onMessagesChanged") await this.call("onMessagesChanged");
    if (result.state !== undefined && name !== "onStateChanged") await this.call("onStateChanged");
    return result;
  }

  private report(error: unknown, callback: string): void {
    console.error(`hai-client: ${callback} threw`, error);
    for (const { onSubscriberError } of this.subscribers()) {
      try {
        onSubscriberError?.({ error, callback });
      } catch {
        // An error handler that throws changes nothing.
      }
    }
  }

  /** Calls the callbacks of an event, then applies it. */
  async apply(event: BaseEvent): Promise<void> {
    if ((await this.call("onEvent", { event })).stopPropagation) {
      this.note(event);
      return;
    }
    const handler = (this as any)[event.type];
    if (typeof handler === "function" && /^[A-Z_]+$/.test(event.type)) await handler.call(this, event);
    this.note(event);
  }

  /** The end of the run, whatever the callbacks wanted. */
  private note(event: BaseEvent): void {
    if (event.type === "RUN_FINISHED") {
      this.isEnded = true;
      this.result = event.result;
    } else if (event.type === "RUN_ERROR") this.isEnded = true;
  }

  /** The event's own callback; false if the default handling is skipped. */
  private async dispatch(event: BaseEvent, extra: object = {}, lastId?: string): Promise<boolean> {
    const name = callbackName(event.type) as keyof AgentSubscriber;
    return !(await this.call(name, { event, ...extra }, lastId)).stopPropagation;
  }

  private find(id: string): Message | undefined {
    return this.agent.messages.find((message) => message.id === id);
  }

  /** Replaces the message of the same id, or adds it. */
  private put(message: Message): void {
    const list = [...this.agent.messages];
    const at = list.findIndex(({ id }) => id === message.id);
    if (at < 0) list.push(message);
    else list[at] = message;
    this.agent.messages = list;
  }

  private callOf(id: string): { call: ToolCall; message: Message } | undefined {
    for (const message of [...this.agent.messages].reverse()) {
      const call = message.toolCalls?.find((call) => call.id === id);
      if (call) return { call, message };
    }
    return undefined;
  }

  /** Replaces a call of a message, or adds it. */
  private putCall(message: Message, call: ToolCall): void {
    const calls = message.toolCalls ?? [];
    const isKnown = calls.some(({ id }) => id === call.id);
    this.put({ ...message, toolCalls: isKnown ? calls.map((other) => (other.id === call.id ? call : other)) : [...calls, call] });
  }

  private async changed(): Promise<void> {
    await this.call("onMessagesChanged");
  }

  async RUN_STARTED(event: BaseEvent): Promise<void> {
    if (!(await this.dispatch(event))) return;
    if (typeof event.threadId === "string" && event.threadId) this.agent.threadId = event.threadId;
    if (typeof event.runId === "string" && event.runId) this.agent.lastRunId = event.runId;
  }

  async RUN_FINISHED(event: BaseEvent): Promise<void> {
    await this.dispatch(event, { result: event.result, outcome: event.outcome });
  }

  async RUN_ERROR(event: BaseEvent): Promise<void> {
    if (!(await this.dispatch(event))) return;
    const { threadId, lastRunId } = this.agent;
    const code = typeof event.code === "string" && event.code ? event.code : "RUN_ERROR";
    const message = String(event.message ?? "the run failed");
    this.error = new HaiError(code, message, { payload: event, threadId, runId: lastRunId });
  }

  async STEP_STARTED(event: BaseEvent): Promise<void> {
    await this.dispatch(event);
  }

  async STEP_FINISHED(event: BaseEvent): Promise<void> {
    await this.dispatch(event);
  }

  async BUSINESS_DATA_START(event: BaseEvent): Promise<void> {
    // An id that exists is continued; the buffer of the new part is empty.
    this.buffers.set(event.messageId, "");
    if (!(await this.dispatch(event)) || this.find(event.messageId)) return;
    const message = { id: event.messageId, role: event.role ?? "assistant", content: "" } as Message;
    if (event.name !== undefined) message.name = event.name;
    this.put(message);
    await this.changed();
  }

  async BUSINESS_DATA_CONTENT(event: BaseEvent): Promise<void> {
    const buffer = this.buffers.get(event.messageId) ?? "";
    if (!(await this.dispatch(event, { textMessageBuffer: buffer }, event.messageId))) return;
    const text = deltaText(event.delta);
    this.buffers.set(event.messageId, buffer + text);
    const message: Message = this.find(event.messageId) ?? { id: event.messageId, role: "assistant" };
    this.put({ ...message, content: (message.content ?? "") + text });
    await this.changed();
  }

  async BUSINESS_DATA_END(event: BaseEvent): Promise<void> {
    const textMessageBuffer = this.buffers.get(event.messageId) ?? "";
    this.buffers.delete(event.messageId);
    if (!(await this.dispatch(event, { textMessageBuffer }, event.messageId))) return;
    const message = this.find(event.messageId);
    if (message) await this.call("onNewMessage", { message: copy(message) });
  }

  async AGENT_COLLABORATIVE_MESSAGE_START(event: BaseEvent): Promise<void> {
    this.buffers.set(`hand-over ${event.messageId}`, "");
    await this.dispatch(event);
  }

  async AGENT_COLLABORATIVE_MESSAGE_CONTENT(event: BaseEvent): Promise<void> {
    const key = `hand-over ${event.messageId}`;
    const buffer = this.buffers.get(key) ?? "";
    await this.dispatch(event, { textMessageBuffer: buffer });
    this.buffers.set(key, buffer + deltaText(event.delta));
  }

  async AGENT_COLLABORATIVE_MESSAGE_END(event: BaseEvent): Promise<void> {
    const key = `hand-over ${event.messageId}`;
    const textMessageBuffer = this.buffers.get(key) ?? "";
    this.buffers.delete(key);
    await this.dispatch(event, { textMessageBuffer });
  }

  async TOOL_CALL_START(event: BaseEvent): Promise<void> {
    if (!(await this.dispatch(event))) return;
    const { toolCallId: id, toolCallName: name } = event;
    const parent = event.parentMessageId || undefined;
    const open = this.callOf(id);
    const continued = this.known.delete(id) ? (open?.call.function.arguments ?? "") : "";
    const message: Message = (parent === undefined ? open?.message : this.find(parent)) ?? { id: parent ?? id, role: "assistant" };
    this.putCall(message, { id, type: "function", function: { name, arguments: continued } });
    await this.changed();
  }

  async TOOL_CALL_ARGS(event: BaseEvent): Promise<void> {
    const open = this.callOf(event.toolCallId);
    const toolCallBuffer = open?.call.function.arguments ?? "";
    const toolCallName = open?.call.function.name ?? "";
    const extra = { toolCallBuffer, toolCallName, partialToolCallArgs: partial(toolCallBuffer) };
    if (!(await this.dispatch(event, extra))) return;
    // Read again: the callback may have changed the messages.
    const now = this.callOf(event.toolCallId);
    if (!now) return;
    const args = now.call.function.arguments + deltaText(event.delta);
    this.putCall(now.message, { ...now.call, function: { ...now.call.function, arguments: args } });
    await this.changed();
  }

  async TOOL_CALL_END(event: BaseEvent): Promise<void> {
    const call = this.callOf(event.toolCallId)?.call;
    const toolCallBuffer = call?.function.arguments ?? "";
    const toolCallName = call?.function.name ?? "";
    const extra = { toolCallBuffer, toolCallName, toolCallArgs: parsed(toolCallBuffer) };
    if (!(await this.dispatch(event, extra)) || !call) return;
    await this.call("onNewToolCall", { toolCall: copy(call) });
  }

  async TOOL_CALL_RESULT(event: BaseEvent): Promise<void> {
    if (!(await this.dispatch(event))) return;
    const message: Message = {
      id: event.messageId ?? `result-${event.toolCallId}`,
      role: "tool",
      content: deltaText(event.content),
      toolCallId: event.toolCallId,
    };
    this.put(message);
    await this.changed();
    await this.call("onNewMessage", { message: copy(message) });
  }

  async STATE_SNAPSHOT(event: BaseEvent): Promise<void> {
    if (!(await this.dispatch(event))) return;
    this.agent.state = copy(event.snapshot);
    await this.call("onStateChanged");
  }

  async STATE_DELTA(event: BaseEvent): Promise<void> {
    if (!(await this.dispatch(event))) return;
    try {
      const list: any[] = Array.isArray(event.delta) ? event.delta : [event.delta];
      // The standard's builder sends `from` with every operation; JSON Patch has it in `move` and `copy` only.
      const patch = list.map(({ from, ...operation }) =>
        operation.op === "move" || operation.op === "copy" ? { ...operation, from } : operation,
      );
      this.agent.state = applyPatch(copy(this.agent.state) ?? {}, copy(patch) as any, true, false).newDocument;
    } catch (error) {
      console.warn("hai-client: a patch does not apply to the state", error);
      await this.call("onStateConflict", { event, error });
      return;
    }
    await this.call("onStateChanged");
  }

  async MESSAGE_SNAPSHOT(event: BaseEvent): Promise<void> {
    const first = await this.call("onMessageSnapshotEvent", { event });
    const second = first.stopPropagation ? first : await this.call("onMessagesSnapshotEvent", { event });
    if (second.stopPropagation) return;
    this.agent.messages = copy(event.messages ?? []);
    this.known.clear();
    for (const { toolCalls } of this.agent.messages) for (const { id } of toolCalls ?? []) this.known.add(id);
    await this.changed();
  }

  async MESSAGES_SNAPSHOT(event: BaseEvent): Promise<void> {
    await this.MESSAGE_SNAPSHOT(event);
  }

  async RAW(event: BaseEvent): Promise<void> {
    await this.dispatch(event);
  }

  async CUSTOM(event: BaseEvent): Promise<void> {
    if (!(await this.dispatch(event)) || event.name !== "hai.run_status") return;
    if (event.value?.status === "paused") await this.call("onPaused");
    else if (event.value?.status === "running") await this.call("onResumed");
  }
}

/** The list with the message that is being built at its end. */
function ordered(messages: Message[], lastId?: string): Message[] {
  const at = lastId === undefined ? -1 : messages.findIndex(({ id }) => id === lastId);
  if (at >= 0 && at < messages.length - 1) messages.push(...messages.splice(at, 1));
  return messages;
}
