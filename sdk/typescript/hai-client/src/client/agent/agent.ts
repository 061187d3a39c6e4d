/** An agent: a conversation, its subscribers and its runs, without a transport. */

import { HaiError } from "../../core/errors";
import type { BaseEvent } from "../../core/events";
import { copy, randomId } from "../../core/json";
import type { InputMessage, Message, RunAgentInput, State } from "../../core/types";
import { RunState } from "../apply";
import type { AgentSubscriber } from "./subscriber";
import type { AgentConfig, RunAgentParameters, RunAgentResult } from "./types";

export abstract class AbstractAgent {
  agentId?: string;
  description: string;
  threadId: string;
  messages: Message[];
  state: State;
  debug: boolean;
  subscribers: AgentSubscriber[] = [];
  isRunning = false;
  lastRunId?: string;

  constructor({ agentId, description, threadId, initialMessages, initialState, debug }: AgentConfig = {}) {
    this.agentId = agentId;
    this.description = description ?? "";
    this.threadId = threadId || randomId();
    this.messages = copy(initialMessages ?? []).map(withId);
    this.state = copy(initialState ?? {});
    this.debug = debug ?? false;
  }

  subscribe(subscriber: AgentSubscriber): { unsubscribe(): void } {
    this.subscribers.push(subscriber);
    return {
      unsubscribe: () => {
        this.subscribers = this.subscribers.filter((other) => other !== subscriber);
      },
    };
  }

  /** Sends the conversation to the agent and applies its events until the run ends. */
  async runAgent(parameters: RunAgentParameters = {}, subscriber?: AgentSubscriber): Promise<RunAgentResult> {
    return this.perform(this.prepareInput(parameters), parameters, subscriber);
  }

  /** The events of a run. */
  protected abstract events(input: RunAgentInput, run: RunState, abort: AbortController): AsyncIterable<BaseEvent>;

  protected prepareInput(parameters: RunAgentParameters): RunAgentInput {
    const input: RunAgentInput = {
      threadId: this.threadId,
      runId: parameters.runId ?? randomId(),
      messages: copy(this.messages),
      state: copy(this.state),
      tools: copy(parameters.tools ?? []),
      context: copy(parameters.context ?? []),
      forwardedProps: copy(parameters.forwardedProps ?? {}),
    };
    if (parameters.resume !== undefined) input.resume = copy(parameters.resume);
    return input;
  }

  protected async perform(
    input: RunAgentInput,
    parameters: RunAgentParameters,
    subscriber?: AgentSubscriber,
  ): Promise<RunAgentResult> {
    if (this.isRunning) throw new HaiError("BUSY", "a run of this agent is active; abort it first");
    this.isRunning = true;
    this.agentId ??= randomId();
    this.lastRunId = input.runId;
    const known = new Set(this.messages.map(({ id }) => id));
    const abort = parameters.abortController ?? new AbortController();
    this.onStart(abort);
    const run = new RunState(this, input, () => (subscriber ? [...this.subscribers, subscriber] : this.subscribers));
    try {
      await run.call("onRunInitialized");
      input.messages = copy(this.messages);
      input.state = copy(this.state);
      if (this.debug) console.debug("hai-client: request", input);
      for await (const event of this.events(input, run, abort)) {
        if (this.debug) console.debug("hai-client: event", event);
        try {
          await run.apply(event);
        } catch (cause) {
          // Callbacks cannot throw here: it is the data of the event.
          throw new HaiError("PROTOCOL", `the stream breaks the protocol: ${event.type} has malformed data`, { cause, payload: event });
        }
        if (run.isEnded) break;
      }
      if (run.error) throw run.error;
    } catch (cause) {
      if (!abort.signal.aborted || cause === run.error) {
        const error = cause instanceof HaiError ? cause : new HaiError("NETWORK", String(cause), { cause });
        error.threadId ??= this.threadId;
        error.runId ??= this.lastRunId;
        if (!(await run.call("onRunFailed", { error })).stopPropagation) throw error;
      }
    } finally {
      this.isRunning = false;
      await run.call("onRunFinalized");
    }
    return { result: run.result, newMessages: copy(this.messages.filter(({ id }) => !known.has(id))) };
  }

  /** Called before a run starts. */
  protected onStart(_abort: AbortController): void {}

  /** Ends the active run; its promise resolves. */
  abstract abortRun(): void;

  /** Calls callbacks one after the other, outside of a run. */
  private async notify(...calls: [name: "onMessagesChanged" | "onStateChanged" | "onNewMessage" | "onNewToolCall", extra?: object][]): Promise<void> {
    const input = undefined as unknown as RunAgentInput;
    const run = new RunState(this, input, () => this.subscribers);
    for (const [name, extra] of calls) await run.call(name, extra);
  }

  addMessage(message: InputMessage): void {
    this.addMessages([message]);
  }

  addMessages(messages: InputMessage[]): void {
    const added = copy(messages).map(withId);
    this.messages = [...this.messages, ...added];
    void this.notify(
      ...added.flatMap((message) => [
        ["onNewMessage", { message: copy(message) }] as ["onNewMessage", object],
        ...(message.toolCalls ?? []).map((toolCall) => ["onNewToolCall", { toolCall: copy(toolCall) }] as ["onNewToolCall", object]),
      ]),
      ["onMessagesChanged"],
    );
  }

  setMessages(messages: InputMessage[]): void {
    this.messages = copy(messages).map(withId);
    void this.notify(["onMessagesChanged"]);
  }

  setState(state: State): void {
    this.state = copy(state);
    void this.notify(["onStateChanged"]);
  }

  /** Adds the result of a front-end tool; the next run sends it. Objects become JSON. */
  addToolResult(toolCallId: string, content: unknown): void {
    const text = typeof content === "string" ? content : (JSON.stringify(content) ?? "");
    this.addMessage({ id: randomId(), role: "tool", content: text, toolCallId });
  }

  /** An agent with copies of the conversation and the same settings. */
  clone(): this {
    const twin = Object.assign(Object.create(Object.getPrototypeOf(this)), this);
    twin.messages = copy(this.messages);
    twin.state = copy(this.state);
    twin.subscribers = [...this.subscribers];
    twin.isRunning = false;
    return twin;
  }
}

/** Every message has an id. */
function withId(message: InputMessage): Message {
  return { ...message, id: message.id ?? randomId() } as Message;
}
