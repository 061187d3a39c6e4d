/** An agent behind HTTP: server-sent events or the binary form, with reconnect and the control routes of a gateway. */

import { HaiError } from "../../core/errors";
import type { BaseEvent } from "../../core/events";
import { EXCERPT, SseDecoder, chunks } from "../../core/sse";
import type { RunAgentInput } from "../../core/types";
import { CONTENT_TYPE, ProtoDecoder } from "../../proto";
import type { RunState } from "../apply";
import { Verifier, type VerifyMode } from "../verify";
import { AbstractAgent } from "./agent";
import type { AgentSubscriber } from "./subscriber";
import type { HttpAgentConfig, ReconnectPolicy, RunAgentParameters, RunAgentResult } from "./types";

const RETRIES = 5;
const MIN_DELAY_MS = 500;
const MAX_DELAY_MS = 10_000;
/** Bytes of a response other than a stream that are read, and the time for it. */
const MAX_BODY = 64 * 1024;
const BODY_MS = 5_000;
/** The largest response of a control route. */
const MAX_JSON = 64 * 1024 * 1024;
/** The longest delay that a server can ask for: a page does not wait for hours, and timers overflow. */
const MAX_ASKED_MS = 300_000;

/** The way to a run: its first request, its position, or the same request again. */
type Way = "start" | "cursor" | "again";

interface Received {
  event: BaseEvent;
  id?: string;
  retry?: number;
}

export class HttpAgent extends AbstractAgent {
  url: string;
  headers: Record<string, string>;
  abortController = new AbortController();
  protected readonly config: HttpAgentConfig;

  constructor(config: HttpAgentConfig) {
    super(config);
    this.config = config;
    this.url = config.url;
    this.headers = { ...config.headers };
  }

  /** The init of a run's request. */
  protected requestInit(input: RunAgentInput): RequestInit {
    return {
      method: "POST",
      headers: {
        ...this.headers,
        "Content-Type": "application/json",
        Accept: this.config.binary ? `${CONTENT_TYPE}, text/event-stream;q=0.5` : "text/event-stream",
      },
      body: JSON.stringify(input),
      signal: this.abortController.signal,
    };
  }

  protected override onStart(abort: AbortController): void {
    this.abortController = abort;
  }

  abortRun(): void {
    this.abortController.abort();
  }

  override clone(): this {
    const twin = super.clone();
    twin.headers = { ...this.headers };
    twin.abortController = new AbortController();
    return twin;
  }

  /** Comes back to the conversation of `threadId`, as a fresh page does: the stored messages, and the live run. */
  async reconnect(subscriber?: AgentSubscriber, parameters: RunAgentParameters = {}): Promise<RunAgentResult> {
    const input = this.prepareInput(parameters);
    return this.perform(input, parameters, subscriber, true);
  }

  protected override async perform(
    input: RunAgentInput,
    parameters: RunAgentParameters,
    subscriber?: AgentSubscriber,
    isSync = false,
  ): Promise<RunAgentResult> {
    this.isSync = isSync;
    return super.perform(input, parameters, subscriber);
  }

  private isSync = false;

  protected async *events(input: RunAgentInput, run: RunState, abort: AbortController): AsyncIterable<BaseEvent> {
    // A state would start a run in a thread that the server does not know.
    if (this.isSync) Object.assign(input, { messages: [], state: {} });
    const policy: ReconnectPolicy | false = this.config.reconnect ?? {};
    const verifier = new Verifier((this.config.verify ?? "lenient") as VerifyMode);
    let way: Way = "start";
    let cursor: string | undefined;
    let retryMs: number | undefined;
    let attempt = 0;
    let hasStream = false;
    // Events that were delivered, and the positions of snapshots among them.
    let delivered = 0;
    const snapshots = new Set<number>();
    for (;;) {
      let failure: HaiError;
      try {
        const response = await this.connect(way, input, cursor, abort);
        if (way !== "start") {
          await run.call("onReconnected", { recovery: response.headers.get("agentwire-recovery") ?? undefined });
        }
        hasStream = true;
        let skip = way === "again" ? delivered : 0;
        let index = 0;
        for await (const { event, id, retry } of this.read(response, abort)) {
          if (id !== undefined) cursor = id || undefined;
          if (retry !== undefined) retryMs = retry;
          if (event.type === undefined) continue;
          const isSnapshot = event.type === "MESSAGE_SNAPSHOT" || event.type === "MESSAGES_SNAPSHOT";
          // A snapshot that was not there before replaces everything: nothing behind it is known.
          if (skip > 0 && isSnapshot && !snapshots.has(index)) {
            skip = 0;
            run.reset();
            verifier.rejoin();
            verifier.continue();
          }
          index += 1;
          if (skip > 0) {
            skip -= 1;
            continue;
          }
          // Only a new event is progress: a server that breaks at the same byte each time must not be asked for ever.
          attempt = 0;
          if (way !== "start" && event.type === "RUN_STARTED") {
            run.reset();
            verifier.rejoin();
          }
          verifier.check(event);
          if (isSnapshot) snapshots.add(delivered);
          delivered += 1;
          yield event;
          if (event.type === "RUN_FINISHED" || event.type === "RUN_ERROR") return;
        }
        failure = new HaiError("TRUNCATED", "the stream was closed before the end of the run");
      } catch (cause) {
        if (abort.signal.aborted) throw new HaiError("ABORTED", "the run was aborted", { cause });
        failure = cause instanceof HaiError ? cause : networkError(cause);
      }
      const hasRetry = policy !== false && this.canRetry(failure, way);
      // A stream that broke is a truncated one, whatever the last attempt to resume it met.
      if (hasStream && (failure.code === "NETWORK" || (hasRetry && failure.code === "HTTP_STATUS"))) {
        failure = new HaiError("TRUNCATED", `the stream was closed before the end of the run: ${failure.message}`, {
          cause: failure,
          status: failure.status,
          retryAfter: failure.retryAfter,
        });
      }
      if (policy === false || !hasRetry) throw failure;
      const hasNoRun: boolean = way === "cursor" && (failure.status === 404 || failure.status === 405 || failure.status === 204);
      if (!hasNoRun) attempt += 1;
      if (attempt > (policy.retries ?? RETRIES)) throw failure;
      way = cursor && !hasNoRun ? "cursor" : "again";
      if (hasNoRun) {
        cursor = undefined;
        continue;
      }
      const delayMs = this.delay(policy, attempt, failure.retryAfter === undefined ? retryMs : failure.retryAfter * 1000);
      await run.call("onReconnecting", { attempt, delayMs });
      await sleep(delayMs, abort.signal);
      if (abort.signal.aborted) throw new HaiError("ABORTED", "the run was aborted");
    }
  }

  private canRetry(failure: HaiError, way: Way): boolean {
    switch (failure.code) {
      case "TRUNCATED":
      case "TIMEOUT":
        return true;
      case "NETWORK":
        return way !== "start" || !isRefused(failure.cause);
      case "HTTP_STATUS": {
        const status = failure.status ?? 0;
        if (way === "start") return false;
        return status >= 500 || status === 429 || status === 404 || status === 405 || status === 204;
      }
      default:
        return false;
    }
  }

  private delay(policy: ReconnectPolicy, attempt: number, wanted?: number): number {
    if (wanted !== undefined) wanted = Math.min(wanted, MAX_ASKED_MS);
    const least = wanted ?? policy.minDelayMs ?? MIN_DELAY_MS;
    const most = Math.max(policy.maxDelayMs ?? MAX_DELAY_MS, wanted ?? 0);
    const base = Math.min(most, least * 2 ** (attempt - 1));
    // Jitter, so that many pages do not come back at once; never earlier than the server asks.
    return Math.round(wanted === undefined ? base * (0.5 + Math.random() / 2) : base * (1 + Math.random() / 4));
  }

  private async connect(way: Way, input: RunAgentInput, cursor: string | undefined, abort: AbortController): Promise<Response> {
    const init = this.requestInit(input);
    let url = this.url;
    if (way === "cursor") {
      url = `${this.base()}/runs/${encodeURIComponent(this.lastRunId ?? input.runId)}/stream?format=hai`;
      const headers = new Headers(init.headers);
      headers.delete("Content-Type");
      headers.set("Last-Event-ID", cursor ?? "");
      init.method = "GET";
      init.body = undefined;
      init.headers = headers;
    }
    const response = await this.fetch(url, init, abort);
    if (way === "cursor" && response.status === 204) {
      throw new HaiError("HTTP_STATUS", "HTTP 204: there is nothing behind this position", { status: 204 });
    }
    return response;
  }

  /** Sends a request; a response other than 2xx is an error. */
  private async fetch(url: string, init: RequestInit, abort?: AbortController): Promise<Response> {
    const connect = new AbortController();
    const forward = () => connect.abort();
    abort?.signal.addEventListener("abort", forward);
    if (abort?.signal.aborted) connect.abort();
    const connectMs = this.config.timeouts?.connectMs;
    let isLate = false;
    const timer = connectMs === undefined ? undefined : setTimeout(() => ((isLate = true), connect.abort()), connectMs);
    const send = this.config.fetch ?? globalThis.fetch;
    const credentials = this.config.credentials;
    let response: Response;
    try {
      response = await send(url, { ...init, signal: connect.signal, ...(credentials ? { credentials } : {}) });
    } catch (cause) {
      if (isLate) throw new HaiError("TIMEOUT", `no response within ${connectMs} ms`, { cause });
      throw networkError(cause);
    } finally {
      clearTimeout(timer);
      // The body has its own way to be aborted.
      abort?.signal.removeEventListener("abort", forward);
    }
    if (response.ok) return response;
    const text = await this.excerpt(response, abort);
    let payload: any = text;
    try {
      payload = JSON.parse(text);
    } catch {
      // Not every server responds with JSON.
    }
    const reason = payload?.message ?? payload?.error?.message ?? payload?.error ?? text.slice(0, EXCERPT);
    const after = secondsOf(response.headers.get("retry-after"));
    throw new HaiError("HTTP_STATUS", `HTTP ${response.status}: ${typeof reason === "string" ? reason : JSON.stringify(reason)}`, {
      status: response.status,
      payload,
      ...(after === undefined ? {} : { retryAfter: after }),
    });
  }

  /** The events of a response. */
  private async *read(response: Response, abort: AbortController): AsyncGenerator<Received> {
    const type = (response.headers.get("content-type") ?? "none").split(";")[0].trim().toLowerCase();
    const isBinary = type === CONTENT_TYPE;
    if (!response.body || (!isBinary && type !== "text/event-stream")) {
      const text = await this.excerpt(response, abort);
      throw new HaiError("BAD_CONTENT_TYPE", `expected text/event-stream, found ${type}: ${text.slice(0, EXCERPT)}`);
    }
    const bodies = this.watched(chunks(response.body), abort, this.config.timeouts?.idleMs);
    if (isBinary) {
      const decoder = new ProtoDecoder();
      for await (const bytes of bodies) for (const event of decoder.push(bytes)) yield { event };
      return;
    }
    const decoder = new SseDecoder();
    let number = 0;
    for await (const bytes of bodies) {
      for (const frame of decoder.push(bytes)) {
        number += 1;
        yield { event: frame.data === "" ? ({} as BaseEvent) : eventOf(frame.data, frame.event, number), id: frame.id, retry: frame.retry };
      }
    }
  }

  /** The beginning of a body that is no stream; it may never end. */
  private async excerpt(response: Response, abort = new AbortController()): Promise<string> {
    if (!response.body) return "";
    const decoder = new TextDecoder();
    const deadline = Date.now() + BODY_MS;
    let text = "";
    try {
      for await (const bytes of this.watched(chunks(response.body), abort, BODY_MS)) {
        text += decoder.decode(bytes, { stream: true });
        if (text.length >= MAX_BODY || Date.now() > deadline) break;
      }
    } catch {
      // A body that breaks is shown as far as it came.
    }
    return text.slice(0, MAX_BODY);
  }

  /** The chunks, with a timeout for each. */
  private async *watched(source: AsyncGenerator<Uint8Array, void, undefined>, abort: AbortController, idleMs?: number): AsyncGenerator<Uint8Array, void, undefined> {
    try {
      for (;;) {
        let timer: ReturnType<typeof setTimeout> | undefined;
        let onAbort: (() => void) | undefined;
        const interrupted = new Promise<never>((_, reject) => {
          onAbort = () => reject(new HaiError("ABORTED", "the run was aborted"));
          abort.signal.addEventListener("abort", onAbort);
          if (abort.signal.aborted) onAbort();
          if (idleMs !== undefined) {
            timer = setTimeout(() => reject(new HaiError("TIMEOUT", `no byte within ${idleMs} ms`)), idleMs);
          }
        });
        try {
          const next = await Promise.race([source.next(), interrupted]);
          if (next.done) return;
          yield next.value;
        } finally {
          clearTimeout(timer);
          abort.signal.removeEventListener("abort", onAbort!);
        }
      }
    } finally {
      void source.return(undefined).catch(() => undefined);
    }
  }

  /** The URL without its HAI path: the root of the control routes. */
  private base(): string {
    return this.url.replace(/[?#].*$/, "").replace(/\/+$/, "").replace(/\/(awp|chat)$/, "");
  }

  private async ask(method: string, path: string, body?: unknown): Promise<any> {
    const init: RequestInit = { method, headers: { ...this.headers, Accept: "application/json" } };
    if (body !== undefined) {
      init.body = JSON.stringify(body);
      init.headers = { ...init.headers, "Content-Type": "application/json" } as Record<string, string>;
    }
    const response = await this.fetch(`${this.base()}${path}`, init);
    const text = await this.text(response);
    try {
      return text === "" ? undefined : JSON.parse(text);
    } catch (cause) {
      const type = response.headers.get("content-type") ?? "none";
      throw new HaiError("BAD_CONTENT_TYPE", `expected JSON, found ${type}: ${text.slice(0, EXCERPT)}`, { cause, status: response.status });
    }
  }

  /** A whole body, within limits. */
  private async text(response: Response): Promise<string> {
    if (!response.body) return "";
    const decoder = new TextDecoder();
    let text = "";
    try {
      for await (const bytes of this.watched(chunks(response.body), new AbortController(), this.config.timeouts?.idleMs)) {
        text += decoder.decode(bytes, { stream: true });
        if (text.length > MAX_JSON) throw new HaiError("BAD_FRAME", `the response is larger than ${MAX_JSON} characters`);
      }
    } catch (cause) {
      throw networkError(cause);
    }
    return text;
  }

  private runPath(action = ""): string {
    if (!this.lastRunId) throw new HaiError("NO_RUN", "this agent has not run yet");
    return `/runs/${encodeURIComponent(this.lastRunId)}${action}`;
  }

  /** The status of the last run. */
  async status(): Promise<any> {
    return this.ask("GET", this.runPath());
  }
  async pause(): Promise<any> {
    return this.ask("POST", this.runPath("/pause"));
  }
  async resume(): Promise<any> {
    return this.ask("POST", this.runPath("/resume"));
  }
  async stop(): Promise<any> {
    return this.ask("POST", this.runPath("/stop"));
  }
  /** Gateway: stores an evaluation. */
  async feedback(feedback: { messageId?: string; toolCallId?: string; rating: any; score?: number; tags?: string[]; comment?: string }): Promise<any> {
    const runId = this.lastRunId;
    return this.ask("POST", "/feedback", { threadId: this.threadId, ...(runId ? { runId } : {}), ...feedback });
  }
  /** Gateway: the open items of the thread. */
  async pending(): Promise<any> {
    return this.ask("GET", `/threads/${encodeURIComponent(this.threadId)}/pending`);
  }
  /** Gateway: the stored messages of the thread, as a HAI snapshot. */
  async history(): Promise<any> {
    return this.ask("GET", `/message_snapshot/${encodeURIComponent(this.threadId)}?format=hai`);
  }
}

/** The event in a frame's data. The standard's own sample frames some data twice. */
function eventOf(data: string, type: string | undefined, number: number): BaseEvent {
  let value: any;
  try {
    value = JSON.parse(data);
    if (typeof value === "string" && value.startsWith("data:")) value = JSON.parse(value.slice(5).trim());
  } catch (cause) {
    throw new HaiError("BAD_FRAME", `frame ${number} is not JSON: ${data.slice(0, EXCERPT)}`, { cause });
  }
  if (value === null || typeof value !== "object" || Array.isArray(value)) {
    throw new HaiError("BAD_FRAME", `frame ${number} is no event: ${data.slice(0, EXCERPT)}`);
  }
  if (value.type === undefined && type !== undefined) value.type = type;
  if (typeof value.type !== "string") {
    throw new HaiError("BAD_FRAME", `frame ${number} has no type: ${data.slice(0, EXCERPT)}`);
  }
  return value;
}

function networkError(cause: unknown): HaiError {
  if (cause instanceof HaiError) return cause;
  const reason = (cause as any)?.cause?.message ?? (cause as any)?.message ?? String(cause);
  return new HaiError("NETWORK", `the connection failed: ${reason}`, { cause });
}

/** A `Retry-After` in seconds: a number or a time. */
function secondsOf(header: string | null): number | undefined {
  if (!header) return undefined;
  const seconds = /^\d+$/.test(header.trim()) ? Number(header) : (Date.parse(header) - Date.now()) / 1000;
  return Number.isFinite(seconds) ? Math.max(0, seconds) : undefined;
}

/** True if the request certainly never reached a server. */
function isRefused(cause: unknown): boolean {
  const code = (cause as any)?.cause?.code ?? (cause as any)?.code;
  return ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "ERR_INVALID_URL"].includes(code);
}

function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((wake) => {
    // An abort before the wait has no event any more.
    if (signal.aborted) return wake();
    const timer = setTimeout(done, ms);
    function done() {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      wake();
    }
    signal.addEventListener("abort", done);
  });
}
