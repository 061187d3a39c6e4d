/** Follows a run: one stream, taken up again where it broke, until its terminal event. */

import { SseDecoder } from "../../../sdk/typescript/hai-client/src/core/sse";
import { ApiError, agentPath, part, request } from "./api";
import type { AgEvent } from "./events";

/** One frame of a stream with the position that its `id:` names. */
export interface Frame {
  /** The number of the event in its run; -1 for frames of a prelude, which have none. */
  seq: number;
  id?: string;
  data: string;
}

export type Connection =
  | { state: "connecting" }
  | { state: "open"; recovery: string; isReconnect: boolean }
  | { state: "waiting"; attempt: number; delayMs: number }
  | { state: "ended" }
  | { state: "failed"; error: ApiError };

export interface FollowOptions {
  agent: string;
  run: string;
  /** The first request; without it, the stream of the run from its start. */
  first?: () => Promise<Response>;
  format?: string;
  onFrame(frame: Frame, event: AgEvent): void;
  onConnection?(connection: Connection): void;
  /** Called with the run that the stream turned out to be about. */
  onRun?(run: string): void;
  /** False for a format whose frames are shown as they are. */
  isParsed?: boolean;
}

/** The most time and frames of one task. */
const PAUSE_MS = 12;
const MAX_FRAMES = 500;

const MAX_DELAY = 10_000;

/** The number in the cursor `run:seq` or `run:seq/k`. */
export function seqOf(id: string | undefined): number {
  const match = id === undefined ? null : /:(\d+)(?:\/\d+)?$/.exec(id);
  return match ? Number(match[1]) : -1;
}

export class Follower {
  private abort = new AbortController();
  private isClosed = false;
  private isCut = false;
  private cursor?: string;
  private run: string;

  constructor(private readonly options: FollowOptions) {
    this.run = options.run;
  }

  /** Leaves the stream; the run goes on. */
  close(): void {
    this.isClosed = true;
    this.abort.abort();
  }

  /** Cuts the connection as a network failure would. */
  cut(): void {
    this.isCut = true;
    this.abort.abort();
  }

  private note(connection: Connection): void {
    if (!this.isClosed) this.options.onConnection?.(connection);
  }

  /** Resolves with true when the terminal event has been read. */
  async start(): Promise<boolean> {
    let attempt = 0;
    let first = this.options.first;
    let isReconnect = false;
    for (;;) {
      this.abort = new AbortController();
      this.isCut = false;
      try {
        this.note({ state: "connecting" });
        const response = first ? await first() : await this.reopen();
        first = undefined;
        const run = response.headers.get("x-run-id");
        if (run) {
          this.run = run;
          this.options.onRun?.(run);
        }
        if (response.status === 204) {
          this.note({ state: "ended" });
          return true;
        }
        const recovery = response.headers.get("agentwire-recovery") ?? "whole";
        this.note({ state: "open", recovery, isReconnect });
        const received = await this.read(response);
        if (received === "ended") {
          this.note({ state: "ended" });
          return true;
        }
        if (received === "some") attempt = 0;
      } catch (error) {
        if (this.isClosed) return false;
        const isFinal = error instanceof ApiError && error.status >= 400 && error.status < 500 && ![408, 425, 429].includes(error.status);
        if (isFinal || (error instanceof ApiError && attempt >= 20)) {
          this.note({ state: "failed", error });
          return false;
        }
        if (error instanceof ApiError && error.status !== 0 && this.cursor === undefined && first) {
          this.note({ state: "failed", error });
          return false;
        }
      }
      if (this.isClosed) return false;
      attempt += 1;
      isReconnect = true;
      const delayMs = this.isCut ? 600 : Math.min(MAX_DELAY, 300 * 2 ** (attempt - 1)) * (0.7 + 0.6 * Math.random());
      this.note({ state: "waiting", attempt, delayMs });
      await new Promise((wake) => setTimeout(wake, delayMs));
      if (this.isClosed) return false;
    }
  }

  private reopen(): Promise<Response> {
    const format = this.options.format ?? "ag-ui@1";
    const headers: Record<string, string> = this.cursor ? { "last-event-id": encodeHeader(this.cursor) } : {};
    const after = this.cursor && !isAscii(this.cursor) ? `&after=${part(this.cursor)}` : "";
    if (after) delete headers["last-event-id"];
    return request(`${agentPath(this.options.agent)}/runs/${part(this.run)}/stream?format=${part(format)}${after}`, { headers, signal: this.abort.signal });
  }

  private async read(response: Response): Promise<"none" | "some" | "ended"> {
    const decoder = new SseDecoder();
    const reader = response.body!.getReader();
    const stop = () => void reader.cancel().catch(() => undefined);
    this.abort.signal.addEventListener("abort", stop);
    let received: "none" | "some" | "ended" = "none";
    let [pauseAt, count] = [performance.now() + PAUSE_MS, 0];
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done || this.isClosed || this.isCut) return received;
        for (const frame of decoder.push(value)) {
          if (frame.data === "") continue;
          if (frame.id !== undefined) this.cursor = frame.id;
          received = received === "ended" ? "ended" : "some";
          let event: AgEvent = { type: "" };
          if (this.options.isParsed !== false) {
            try {
              event = JSON.parse(frame.data);
            } catch {
              event = { type: "RAW", event: frame.data };
            }
            if (event.type === "RUN_FINISHED" || event.type === "RUN_ERROR") received = "ended";
          }
          this.options.onFrame({ seq: seqOf(frame.id), id: frame.id, data: frame.data }, event);
          // A long replay must not occupy the page.
          count += 1;
          if (count >= MAX_FRAMES || performance.now() > pauseAt) {
            await new Promise((wake) => setTimeout(wake));
            [pauseAt, count] = [performance.now() + PAUSE_MS, 0];
            if (this.isClosed || this.isCut) return received;
          }
        }
      }
    } catch (error) {
      if (received === "ended") return received;
      throw error;
    } finally {
      this.abort.signal.removeEventListener("abort", stop);
      stop();
    }
  }
}

const isAscii = (text: string): boolean => /^[\x21-\x7e]*$/.test(text);
const encodeHeader = (text: string): string => text;
