/** Requests to the gateway's public routes, with the credential of this tab. */

/** The address under which the gateway is mounted: the page is at `BASE/console`. */
export const BASE = location.pathname.replace(/\/console\/?$/, "");

const TOKEN_KEY = "agentwire.token";

/** An error response of the gateway. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint?: string,
  ) {
    super(message);
  }
}

// Kept for this tab only, and never part of an address.
let token = sessionStorage.getItem(TOKEN_KEY) ?? "";

export function hasToken(): boolean {
  return token !== "";
}

export function setToken(value: string): void {
  token = value.trim();
  if (token) sessionStorage.setItem(TOKEN_KEY, token);
  else sessionStorage.removeItem(TOKEN_KEY);
}

/** Called when a request was refused for want of a credential. */
export const onUnauthenticated: { handler: (error: ApiError) => void } = { handler: () => undefined };

export interface RequestOptions {
  method?: string;
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

/** Sends a request and throws an `ApiError` unless it succeeds. */
export async function request(path: string, options: RequestOptions = {}): Promise<Response> {
  const headers: Record<string, string> = { ...options.headers };
  if (token) headers.authorization = `Bearer ${token}`;
  let body: string | undefined;
  if (options.body !== undefined) {
    headers["content-type"] = "application/json";
    body = JSON.stringify(options.body);
  }
  let response: Response;
  try {
    response = await fetch(`${BASE}${path}`, { method: options.method ?? "GET", headers, body, signal: options.signal, cache: "no-store" });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(0, "NETWORK", "the gateway cannot be reached");
  }
  if (response.ok) return response;
  let code = response.headers.get("agentwire-error-code") ?? `HTTP_${response.status}`;
  let message = response.statusText || `HTTP ${response.status}`;
  let hint: string | undefined;
  try {
    const { error } = await response.json();
    code = error.code ?? code;
    message = error.message ?? message;
    hint = error.hint;
  } catch {
    // Not every response of a proxy is JSON.
  }
  const error = new ApiError(response.status, code, message, hint);
  if (response.status === 401) onUnauthenticated.handler(error);
  throw error;
}

export async function getJson<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await request(path, { signal })).json();
}

/** A part of a path. */
export const part = (text: string): string => encodeURIComponent(text);

/** The base of an agent's routes. */
export const agentPath = (agent: string): string => `/agents/${part(agent)}`;

export interface AgentInfo {
  name: string;
  default: boolean;
  health?: {
    runs: { live: number; started: number; failed: number };
    readers: number;
    firstEventMs: number | null;
    lastError: { code: string; message?: string; at: string } | null;
  };
}

export interface ThreadInfo {
  threadId: string;
  title: string | null;
  named: boolean;
  agent: string;
  status: string;
  createdAt: string;
  updatedAt: string;
  runId?: string;
  cause?: string;
}

export interface RunInfo {
  threadId: string;
  runId: string;
  agent: string;
  status: string;
  createdAt: string;
  updatedAt: string;
  startedAt?: string;
  cause?: string;
  events: number;
}

export interface PendingItem {
  id: string;
  kind: string;
  runId?: string;
  createdAt?: string;
  expiresAt?: string;
  name?: string;
  arguments?: unknown;
  argumentsHash?: string;
  message?: string;
  reason?: string;
  toolCallId?: string;
  responseSchema?: Schema;
  awaitingResult?: boolean;
  answer?: { by: string; at: string; runId: string; content: unknown };
}

export type Schema = { [key: string]: any };

export async function agents(): Promise<AgentInfo[]> {
  return (await getJson<{ agents: AgentInfo[] }>("/agents")).agents;
}

/** Saves text or a response as a file. */
export function download(name: string, content: Blob): void {
  const url = URL.createObjectURL(content);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
