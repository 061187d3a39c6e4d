/** A thread that is open on this page: its conversation, the stream of its active run, and the requests about it. */

import { ApiError, agentPath, getJson, part, type PendingItem, request, type RunInfo } from "../lib/api";
import { Conversation } from "../lib/fold";
import { type Connection, Follower } from "../lib/follow";
import { newId } from "../lib/ids";
import { tools } from "../lib/tools";
import { type Answer, answerBody } from "../parts/decision";

export class Session {
  conversation = new Conversation();
  connection: Connection = { state: "ended" };
  verdict?: string;
  pending: PendingItem[] = [];
  error?: unknown;
  isGone = false;
  isLoaded = false;
  isSending = false;
  private follower?: Follower;
  private frame = 0;
  private timer?: ReturnType<typeof setTimeout>;
  private isClosed = false;

  constructor(
    readonly agent: string,
    readonly thread: string,
    private readonly onChange: () => void,
    private readonly onRun: (run: string) => void,
  ) {}

  /** Draws once per frame, however many events arrive. */
  private changed(): void {
    if (this.isClosed || this.frame) return;
    const draw = () => {
      this.frame = 0;
      if (!this.isClosed) this.onChange();
    };
    this.frame = document.hidden ? Number(setTimeout(draw, 100)) : requestAnimationFrame(draw);
  }

  close(): void {
    this.isClosed = true;
    this.follower?.close();
    clearTimeout(this.timer);
  }

  private path(rest: string): string {
    return `${agentPath(this.agent)}${rest}`;
  }

  /** Loads the conversation and follows its active run. */
  async open(): Promise<void> {
    this.error = undefined;
    const first = () => request(this.path(`/threads/${part(this.thread)}/stream?format=ag-ui@1`), { headers: { accept: "text/event-stream" } });
    this.follow(first, true);
  }

  private follow(first: () => Promise<Response>, isOpening: boolean): void {
    this.follower?.close();
    const follower = new Follower({
      agent: this.agent,
      run: "",
      first,
      onFrame: (_, event) => {
        if (this.follower !== follower) return;
        this.isLoaded = true;
        this.conversation.apply(event);
        if (event.type === "RUN_STARTED") this.onRun(this.conversation.run);
        if (event.type === "MESSAGES_SNAPSHOT") void this.loadOrder();
        this.changed();
      },
      onConnection: (connection) => {
        if (this.follower !== follower) return;
        this.connection = connection;
        if (connection.state === "open" && connection.isReconnect) this.verdict = connection.recovery;
        if (connection.state === "failed") {
          const code = connection.error.code;
          this.isLoaded = true;
          this.isSending = false;
          // A thread without a run has nothing to show yet.
          if (isOpening && (code === "UNKNOWN_RUN" || code === "UNKNOWN_THREAD")) {
            this.isGone = code === "UNKNOWN_THREAD" && this.conversation.items.length === 0;
            this.connection = { state: "ended" };
          } else {
            this.error = connection.error;
            // A question that this person may not answer stays open.
            void this.loadPending();
          }
        }
        if (connection.state === "open" || connection.state === "ended") this.isSending = false;
        if (connection.state === "ended") {
          void this.loadPending();
          void this.loadOrder();
        }
        this.changed();
      },
    });
    this.follower = follower;
    void follower.start();
    this.changed();
  }

  private post(body: any): void {
    this.error = undefined;
    this.verdict = undefined;
    this.isGone = false;
    this.isSending = true;
    this.pending = [];
    this.follow(() => request(this.path("/"), { method: "POST", body, headers: { accept: "text/event-stream" } }), false);
  }

  send(text: string, parts: any[] = []): void {
    const id = newId("m");
    const content = parts.length > 0 ? [...(text ? [{ type: "text", text }] : []), ...parts] : text;
    this.conversation.addUser(id, text, parts.length > 0 ? parts : undefined);
    this.post({ threadId: this.thread, runId: newId("r"), protocolVersion: "1.0", messages: [{ id, role: "user", content }], tools: tools(), context: [], state: {}, forwardedProps: {} });
  }

  answer(answers: Answer[]): void {
    for (const { message } of answers) if (message) this.conversation.addResult(message.toolCallId, message.content);
    this.post(answerBody(this.thread, answers, tools()));
  }

  cut(): void {
    this.verdict = undefined;
    this.follower?.cut();
  }

  async control(action: "stop" | "pause" | "resume"): Promise<void> {
    try {
      await request(this.path(`/runs/${part(this.conversation.run)}/${action}`), { method: "POST" });
    } catch (error) {
      // The run may have ended in the same moment.
      if (!(error instanceof ApiError && error.status === 409)) this.error = error;
      this.changed();
    }
  }

  /** A snapshot has the text of a HAI message in one piece; the log has its place between the blocks. */
  private async loadOrder(): Promise<void> {
    const { conversation } = this;
    if (!conversation.needsLog()) return;
    try {
      const response = await request(this.path(`/threads/${part(this.thread)}/export`));
      const log = new Conversation();
      let pauseAt = performance.now() + 12;
      for (const line of (await response.text()).split("\n")) {
        if (line) log.apply(JSON.parse(line));
        if (performance.now() > pauseAt) {
          await new Promise((wake) => setTimeout(wake));
          pauseAt = performance.now() + 12;
        }
      }
      if (this.conversation === conversation) conversation.order(log);
    } catch {
      // The order of the snapshot stays.
    }
    this.changed();
  }

  async loadPending(): Promise<void> {
    try {
      this.pending = await getJson<PendingItem[]>(this.path(`/threads/${part(this.thread)}/pending`));
    } catch {
      this.pending = [];
    }
    this.changed();
  }

  /** Another page may have started a run in this thread, or answered its question. */
  async look(): Promise<void> {
    if (!this.conversation.run || this.conversation.isRunning || this.isSending || this.connection.state === "connecting" || this.connection.state === "waiting" || !this.isLoaded) return;
    const { runs } = await getJson<{ runs: RunInfo[] }>(this.path(`/threads/${part(this.thread)}/runs?limit=1`)).catch(() => ({ runs: [] as RunInfo[] }));
    const latest = runs[0];
    if (latest && latest.runId !== this.conversation.run && !this.isClosed && !this.isSending) return this.open();
    if (this.pending.length > 0 && latest && latest.status !== "waiting") await this.loadPending();
  }
}
