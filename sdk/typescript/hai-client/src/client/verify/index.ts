/** Order rules of an event stream. */

import { HaiError } from "../../core/errors";
import type { BaseEvent } from "../../core/events";

/**
 * lenient: RUN_STARTED or RUN_ERROR first, one ending, contents and ends of open ids, steps by name.
 * strict: also nothing else inside an open message or call, as clients of 2025 demand.
 */
export type VerifyMode = "lenient" | "strict" | "off";

const OPEN_KEYS: [string, string][] = [
  ["BUSINESS_DATA_", "messageId"],
  ["AGENT_COLLABORATIVE_MESSAGE_", "messageId"],
  ["TOOL_CALL_", "toolCallId"],
];

export class Verifier {
  private isStarted = false;
  private isEnded = false;
  private readonly open = new Set<string>();
  private readonly steps = new Set<string>();

  constructor(private readonly mode: VerifyMode = "lenient") {}

  /** A new connection may repeat RUN_STARTED and reopen what is open. */
  rejoin(): void {
    this.isStarted = false;
    this.open.clear();
    this.steps.clear();
  }

  /** Continues behind the last event of the connection before. */
  continue(): void {
    this.isStarted = true;
  }

  check(event: BaseEvent): void {
    if (this.mode === "off") return;
    const { type } = event;
    if (this.isEnded) this.fail(`${type} after the end of the run`);
    if (!this.isStarted && type !== "RUN_STARTED" && type !== "RUN_ERROR") {
      this.fail(`expected RUN_STARTED first, found ${type}`);
    }
    if (type === "RUN_STARTED") {
      if (this.isStarted) this.fail("RUN_STARTED twice");
      this.isStarted = true;
      return;
    }
    if (type === "RUN_FINISHED" || type === "RUN_ERROR") {
      this.isEnded = true;
      if (type === "RUN_FINISHED" && this.mode === "strict" && this.open.size > 0) {
        this.fail(`RUN_FINISHED while ${[...this.open].join(", ")} is open`);
      }
      return;
    }
    if (type === "STEP_STARTED" || type === "STEP_FINISHED") {
      const name = String(event.stepName);
      if (type === "STEP_STARTED" ? this.steps.has(name) : !this.steps.delete(name)) {
        this.fail(`${type} of step ${name}, which is ${type === "STEP_STARTED" ? "open already" : "not open"}`);
      }
      if (type === "STEP_STARTED") this.steps.add(name);
      this.refuseInside(event);
      return;
    }
    for (const [prefix, key] of OPEN_KEYS) {
      if (!String(type).startsWith(prefix)) continue;
      const phase = String(type).slice(prefix.length);
      const id = `${prefix}${event[key]}`;
      if (phase === "START") {
        if (this.open.has(id)) this.fail(`${type} of ${event[key]}, which is open already`);
        this.refuseInside(event);
        this.open.add(id);
        return;
      }
      if (phase === "CONTENT" || phase === "ARGS" || phase === "END") {
        if (!this.open.has(id)) this.fail(`${type} of ${event[key]}, which is not open`);
        if (phase === "END") this.open.delete(id);
        else if (this.mode === "strict" && this.open.size > 1) this.refuseInside(event);
        return;
      }
    }
    this.refuseInside(event);
  }

  private refuseInside(event: BaseEvent): void {
    if (this.mode === "strict" && this.open.size > 0) {
      this.fail(`${event.type} while ${[...this.open].join(", ")} is open`);
    }
  }

  private fail(problem: string): never {
    throw new HaiError("PROTOCOL", `the stream breaks the protocol: ${problem}`);
  }
}

/** Checks a complete list of events. */
export function verifyEvents(events: Iterable<BaseEvent>, mode: VerifyMode = "lenient"): void {
  const verifier = new Verifier(mode);
  let last: BaseEvent | undefined;
  for (const event of events) {
    verifier.check(event);
    last = event;
  }
  if (mode !== "off" && last?.type !== "RUN_FINISHED" && last?.type !== "RUN_ERROR") {
    throw new HaiError("PROTOCOL", "the stream breaks the protocol: it ends without RUN_FINISHED or RUN_ERROR");
  }
}
