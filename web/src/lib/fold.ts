/** Events → the items of a conversation, as a page draws them. */

import type { AgEvent } from "./events";
import { applyPatch } from "./patch";

interface Common {
  id: string;
  /** Grows with each change, so that a drawing of an unchanged item can be kept. */
  version: number;
  subagent?: string;
  run?: string;
}

export interface TextItem extends Common {
  kind: "user" | "assistant" | "system";
  text: string;
  parts?: any[];
  name?: string;
  /** The message that this is a later part of. */
  of?: string;
  isOpen: boolean;
}
export interface ReasoningItem extends Common {
  kind: "reasoning";
  text: string;
  title?: string;
  isOpen: boolean;
  startedAt?: number;
  endedAt?: number;
  /** Seconds, as the agent counted them. */
  elapsed?: number;
}
export interface ToolItem extends Common {
  kind: "tool";
  name: string;
  args: string;
  result?: string;
  error?: string;
  isOpen: boolean;
  startedAt?: number;
  endedAt?: number;
  parent?: string;
}
export interface ActivityItem extends Common {
  kind: "activity";
  type: string;
  content: any;
  /** The HAI message that it is a block of. */
  message?: string;
}
export interface StepItem extends Common {
  kind: "step";
  name: string;
  isOpen: boolean;
}
export interface SubagentItem extends Common {
  kind: "subagent";
  name: string;
  description?: string;
  isOpen: boolean;
  error?: string;
  parent?: string;
}
export interface ErrorItem extends Common {
  kind: "error";
  code?: string;
  message: string;
}
export interface NoteItem extends Common {
  kind: "note";
  text: "cancelled" | "paused" | "resumed";
}
export type Item = TextItem | ReasoningItem | ToolItem | ActivityItem | StepItem | SubagentItem | ErrorItem | NoteItem;

export class Conversation {
  items: Item[] = [];
  state: unknown = undefined;
  run = "";
  isRunning = false;
  isPaused = false;
  outcome?: { type: string; [key: string]: any };
  usage?: { input?: number; output?: number };
  private byKey = new Map<string, Item>();
  private count = 0;
  /** The HAI messages whose texts and blocks have the order of a snapshot. */
  private unordered = new Set<string>();

  private add<T extends Item>(item: Omit<T, "version">, key: string): T {
    const added = { ...item, version: 0 } as T;
    if (this.run) added.run = this.run;
    this.items.push(added);
    this.byKey.set(key, added);
    return added;
  }

  private find<T extends Item>(key: string): T | undefined {
    return this.byKey.get(key) as T | undefined;
  }

  /** A message that the person has just sent. */
  addUser(id: string, text: string, parts?: any[]): void {
    if (!this.find(`m:${id}`)) this.add<TextItem>({ kind: "user", id, text, parts, isOpen: false }, `m:${id}`);
  }

  /** The result that the person has just given for a call. */
  addResult(call: string, result: string): void {
    this.changed<ToolItem>(`c:${call}`, (it) => {
      it.isOpen = false;
      it.result = result;
    });
  }

  apply(event: AgEvent): void {
    const at = event.timestamp;
    const id = event.messageId ?? "";
    const subagent = event.subagentRunId;
    switch (event.type) {
      case "RUN_STARTED":
        this.run = event.runId ?? this.run;
        this.isRunning = true;
        this.isPaused = false;
        this.outcome = undefined;
        break;
      case "RUN_FINISHED":
        this.close();
        this.outcome = event.outcome ?? { type: "success" };
        this.usage = usageOf(event.usage);
        if (event.outcome?.type === "cancelled") this.add<NoteItem>({ kind: "note", id: `${this.run}:end`, text: "cancelled" }, `n:${this.count++}`);
        break;
      case "RUN_ERROR":
        this.close();
        this.outcome = { type: "error" };
        if (!this.find(`e:${this.run}`)) this.add<ErrorItem>({ kind: "error", id: `${this.run}:error`, code: event.code, message: event.message ?? "" }, `e:${this.run}`);
        break;
      case "TEXT_MESSAGE_START": {
        const known = this.find<TextItem>(`m:${id}`);
        if (known) this.change(known, (it) => (it.isOpen = true));
        else this.add<TextItem>({ kind: roleKind(event.role), id, text: "", name: event.name, isOpen: true, subagent }, `m:${id}`);
        break;
      }
      case "TEXT_MESSAGE_CHUNK":
      case "TEXT_MESSAGE_CONTENT": {
        const message = this.segment(id) ?? this.add<TextItem>({ kind: roleKind(event.role), id, text: "", isOpen: true, subagent }, `m:${id}`);
        this.change(message, (it) => (it.text += event.delta ?? ""));
        break;
      }
      case "TEXT_MESSAGE_END":
        this.changed<TextItem>(`m:${id}`, (it) => (it.isOpen = false));
        this.changed<TextItem>(`m:${id}#`, (it) => (it.isOpen = false));
        break;
      case "REASONING_START":
      case "REASONING_MESSAGE_START":
        this.reasoning(event, at);
        break;
      case "REASONING_MESSAGE_CHUNK":
      case "REASONING_MESSAGE_CONTENT":
        this.change(this.reasoning(event, at), (it) => (it.text += event.delta ?? ""));
        break;
      case "REASONING_MESSAGE_END":
      case "REASONING_END":
        this.changed<ReasoningItem>(`r:${id}`, (it) => {
          it.isOpen = false;
          it.endedAt = at ?? it.endedAt;
          it.elapsed = event.metadata?.hai?.elapsed ?? it.elapsed;
        });
        break;
      case "TOOL_CALL_START":
        this.call(event, at);
        break;
      case "TOOL_CALL_CHUNK":
      case "TOOL_CALL_ARGS":
        this.change(this.call(event, at), (it) => (it.args += typeof event.delta === "string" ? event.delta : JSON.stringify(event.delta ?? "")));
        break;
      case "TOOL_CALL_END":
        this.changed<ToolItem>(`c:${event.toolCallId}`, (it) => (it.isOpen = false));
        break;
      case "TOOL_CALL_RESULT":
        this.change(this.call(event, at), (it) => {
          it.isOpen = false;
          it.result = contentText(event.content);
          it.error = event.error ?? (event.isError ? contentText(event.content) : undefined);
          it.endedAt = at;
        });
        break;
      case "STATE_SNAPSHOT":
        this.state = event.snapshot;
        break;
      case "STATE_DELTA":
        this.state = applyPatch(this.state ?? {}, event.delta).document;
        break;
      case "MESSAGES_SNAPSHOT":
        this.replace(event.messages ?? []);
        break;
      case "ACTIVITY_SNAPSHOT": {
        const known = this.find<ActivityItem>(`a:${id}`);
        if (known && event.replace === false) break;
        if (known) this.change(known, (it) => (it.content = event.content));
        else this.add<ActivityItem>({ kind: "activity", id, type: event.activityType ?? "", content: event.content, message: event.metadata?.hai?.messageId, subagent }, `a:${id}`);
        break;
      }
      case "ACTIVITY_DELTA":
        this.changed<ActivityItem>(`a:${id}`, (it) => (it.content = applyPatch(it.content, event.patch).document));
        break;
      case "STEP_STARTED":
        this.add<StepItem>({ kind: "step", id: `${this.run}:${event.stepName}:${this.count++}`, name: event.stepName ?? "", isOpen: true, subagent }, `s:${event.stepName}`);
        break;
      case "STEP_FINISHED":
        this.changed<StepItem>(`s:${event.stepName}`, (it) => (it.isOpen = false));
        break;
      case "SUBAGENT_STARTED":
        this.add<SubagentItem>(
          { kind: "subagent", id: subagent ?? "", name: event.name ?? "", description: event.description, isOpen: true, parent: event.parentSubagentRunId },
          `g:${subagent}`,
        );
        break;
      case "SUBAGENT_FINISHED":
      case "SUBAGENT_ERROR":
        this.changed<SubagentItem>(`g:${subagent}`, (it) => {
          it.isOpen = false;
          if (event.type === "SUBAGENT_ERROR") it.error = event.message;
        });
        break;
      case "CUSTOM":
        if (event.name === "hai.run_status") this.isPaused = event.value?.status === "paused";
        break;
      default:
        break;
    }
  }

  /** True if a HAI message has text and blocks in the order of a snapshot, which has the text in one piece. */
  needsLog(): boolean {
    return this.items.some((item) => item.kind === "assistant" && this.unordered.has(item.id));
  }

  /** Puts the texts and blocks of HAI messages into the order of the log of their thread. */
  order(log: Conversation): void {
    const groups = new Map<string, Item[]>();
    for (const item of log.items) {
      const message = messageOf(item);
      if (message !== undefined) groups.set(message, [...(groups.get(message) ?? []), item]);
    }
    for (const [message, items] of groups) {
      const mine = this.items.filter((item) => messageOf(item) === message);
      // The log of a live run may be ahead of its stream.
      if (!this.unordered.has(message) || mine.length === 0 || textOf(mine) !== textOf(items) || blockCount(mine) !== blockCount(items)) continue;
      const at = this.items.indexOf(mine[0]);
      const last = mine[mine.length - 1];
      this.items = this.items.filter((item) => messageOf(item) !== message);
      this.items.splice(at, 0, ...items);
      for (const item of items) item.run = last.run;
      for (const key of [`m:${message}`, `m:${message}#`, ...items.map((item) => `a:${item.id}`)]) {
        const item = log.byKey.get(key);
        if (item) this.byKey.set(key, item);
      }
      this.unordered.delete(message);
    }
  }

  /** The place of more text of a message: after a block of the same HAI message, a new part; otherwise the message. */
  private segment(id: string): TextItem | undefined {
    const first = this.find<TextItem>(`m:${id}`);
    const current = this.find<TextItem>(`m:${id}#`) ?? first;
    if (!first || !current) return first;
    const last = this.items[this.items.length - 1];
    if (last === current || last.kind !== "activity" || last.message !== id) return current;
    if (current.text === "" && current.isOpen) {
      // Nothing was written before the block: the message moves behind it.
      this.items.splice(this.items.indexOf(current), 1);
      this.items.push(current);
      return current;
    }
    this.change(current, (it) => (it.isOpen = false));
    return this.add<TextItem>({ kind: first.kind, id: `${id}#${this.count++}`, of: id, text: "", isOpen: true, subagent: first.subagent }, `m:${id}#`);
  }

  private reasoning(event: AgEvent, at: number | undefined): ReasoningItem {
    const key = `r:${event.messageId}`;
    const title = event.metadata?.agentwire?.title;
    return (
      this.find<ReasoningItem>(key) ??
      this.add<ReasoningItem>({ kind: "reasoning", id: event.messageId ?? "", text: "", title, isOpen: true, startedAt: at, subagent: event.subagentRunId }, key)
    );
  }

  private call(event: AgEvent, at: number | undefined): ToolItem {
    const key = `c:${event.toolCallId}`;
    return (
      this.find<ToolItem>(key) ??
      this.add<ToolItem>(
        { kind: "tool", id: event.toolCallId ?? "", name: event.toolCallName ?? "", args: "", isOpen: true, startedAt: at, parent: event.parentMessageId, subagent: event.subagentRunId },
        key,
      )
    );
  }

  private change<T extends Item>(item: T, change: (item: T) => void): void {
    change(item);
    item.version += 1;
  }

  private changed<T extends Item>(key: string, change: (item: T) => void): void {
    const item = this.find<T>(key);
    if (item) this.change(item, change);
  }

  /** The end of a run: nothing is open any more. */
  private close(): void {
    this.isRunning = false;
    this.isPaused = false;
    for (const item of this.items) {
      if ("isOpen" in item && item.isOpen) this.change(item, (it) => ((it as TextItem).isOpen = false));
    }
  }

  /** The whole conversation, as a snapshot has it. Items that only a stream has (steps, subagents, errors) stay in place. */
  private replace(messages: any[]): void {
    const kept = new Map(this.byKey);
    const before = this.items;
    this.items = [];
    this.byKey = new Map();
    const place = <T extends Item>(key: string, item: Omit<T, "version">, merge: (known: T) => void) => {
      const known = kept.get(key) as T | undefined;
      if (known) {
        this.change(known, merge);
        this.items.push(known);
        this.byKey.set(key, known);
      } else {
        const added = { ...item, version: 0 } as T;
        this.items.push(added);
        this.byKey.set(key, added);
      }
    };
    for (const message of messages) {
      const id = String(message.id ?? "");
      if (message.role === "developer" || message.role === "system") continue;
      if (message.role === "tool") {
        const key = `c:${message.toolCallId}`;
        const call = this.find<ToolItem>(key);
        const set = (it: ToolItem) => {
          it.isOpen = false;
          it.result = contentText(message.content);
          it.error = message.error ?? it.error;
        };
        if (call) this.change(call, set);
        else place<ToolItem>(key, { kind: "tool", id: message.toolCallId, name: "", args: "", isOpen: false, result: contentText(message.content), error: message.error }, set);
      } else if (message.role === "reasoning") {
        const text = contentText(message.content);
        place<ReasoningItem>(`r:${id}`, { kind: "reasoning", id, text, isOpen: false }, (it) => (it.text = text || it.text));
      } else if (message.role === "activity") {
        if (message.metadata?.hai?.messageId !== undefined) this.unordered.add(message.metadata.hai.messageId);
        place<ActivityItem>(`a:${id}`, { kind: "activity", id, type: message.activityType, content: message.content, message: message.metadata?.hai?.messageId }, (it) => (it.content = message.content));
      } else {
        const text = contentText(message.content);
        const parts = Array.isArray(message.content) ? message.content : undefined;
        if (text || parts || !message.toolCalls?.length) {
          place<TextItem>(`m:${id}`, { kind: roleKind(message.role), id, text, parts, name: message.name, isOpen: false }, (it) => {
            it.text = text;
            it.parts = parts;
          });
        }
        for (const call of message.toolCalls ?? []) {
          const { name = "", arguments: args = "" } = call.function ?? {};
          place<ToolItem>(`c:${call.id}`, { kind: "tool", id: call.id, name, args, isOpen: false, parent: id }, (it) => {
            it.name = name || it.name;
            it.args = args;
          });
        }
      }
    }
    // An item of the stream follows the item that it followed before.
    before.forEach((item, index) => {
      if (item.kind !== "step" && item.kind !== "subagent" && item.kind !== "error" && item.kind !== "note") return;
      const previous = before.slice(0, index).reverse().find((other) => this.items.includes(other));
      this.items.splice(previous ? this.items.indexOf(previous) + 1 : 0, 0, item);
    });
    for (const [key, item] of kept) if (/^[sgen]:/.test(key)) this.byKey.set(key, item);
  }
}

/** The HAI message that a text or a block belongs to. */
function messageOf(item: Item): string | undefined {
  if (item.kind === "activity") return item.message;
  return item.kind === "assistant" ? (item.of ?? item.id) : undefined;
}

const textOf = (items: Item[]): string => items.map((item) => (item.kind === "assistant" ? item.text : "")).join("");
const blockCount = (items: Item[]): number => items.filter((item) => item.kind === "activity").length;

function roleKind(role: unknown): TextItem["kind"] {
  return role === "user" ? "user" : role === "system" || role === "developer" ? "system" : "assistant";
}

export function contentText(content: unknown): string {
  if (typeof content === "string") return content;
  if (Array.isArray(content)) return content.map((part) => part?.text ?? "").join("");
  return content === undefined || content === null ? "" : JSON.stringify(content);
}

function usageOf(usage: unknown): { input?: number; output?: number } | undefined {
  const list: any[] = Array.isArray(usage) ? usage : usage ? [usage] : [];
  if (list.length === 0) return undefined;
  const sum = (...names: string[]) => list.reduce((total, entry) => total + Number(names.map((name) => entry[name]).find((value) => value !== undefined) ?? 0), 0);
  return { input: sum("inputTokens", "input"), output: sum("outputTokens", "output") };
}
