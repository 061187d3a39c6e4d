/** Talk: a chat with an agent, with everything that its protocol can carry. */

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { AgentInfo } from "../lib/api";
import { t, word } from "../lib/i18n";
import { newId } from "../lib/ids";
import { address, go, type Route } from "../lib/route";
import { usePolling } from "../lib/store";
import { Announce, Empty, Icon, Problem } from "../parts/common";
import { Decisions } from "../parts/decision";
import { Json } from "../hai-blocks";
import { FoldView, grouped, type ItemContext, ItemView } from "../parts/items";
import { Judge } from "../parts/judge";
import { Session } from "./session";

/** Items that are drawn at once; earlier ones on demand. */
const SHOWN = 200;

/** New items that one frame draws; the others follow in the next ones. */
const STEP = 25;

/** The words of the demo agent. */
const DEMO_WORDS = ["hello", "think", "tools", "tool error", "state", "steps", "subagent", "plan", "media", "confirm", "approve", "long 200", "slow", "fail"];

export function Talk({ route, agents }: { route: Route; agents: AgentInfo[] }) {
  const agent = route.agent || agents.find((it) => it.default)?.name || agents[0]?.name || "";
  const fresh = useMemo(() => newId("t"), [route.agent, route.thread === ""]);
  const thread = route.thread || fresh;
  if (!agent) return <Empty title={t("talk.noagent.title")} text={t("talk.noagent.text")} />;
  return <Chat key={`${agent}\n${thread}`} agent={agent} thread={thread} isNew={route.thread === ""} agents={agents} />;
}

function Chat({ agent, thread, isNew, agents }: { agent: string; thread: string; isNew: boolean; agents: AgentInfo[] }) {
  const [, redraw] = useState(0);
  const wasNew = useRef(isNew);
  const session = useMemo(
    () =>
      new Session(
        agent,
        thread,
        () => redraw((count) => count + 1),
        (run) => go({ view: "talk", agent, thread, run }, true),
      ),
    [agent, thread],
  );
  if (wasNew.current) session.isLoaded = true;
  const [shown, setShown] = useState(SHOWN);
  const [isStateOpen, setStateOpen] = useState(false);
  const scroller = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  const [isAway, setAway] = useState(false);

  useEffect(() => {
    if (!wasNew.current) void session.open();
    return () => session.close();
  }, [session]);
  usePolling(() => session.look(), 2000, [session]);

  const { conversation } = session;
  const context = useMemo<ItemContext>(
    () => ({
      subagentName: (id) => {
        const found = id === undefined ? undefined : conversation.items.find((item) => item.kind === "subagent" && item.id === id);
        return found?.kind === "subagent" ? found.name : undefined;
      },
      onSay: (text) => session.send(text),
      judge: (target) => ({ ...target, agent, threadId: thread }),
    }),
    [session],
  );

  // Stays at the end while text streams, unless the person has scrolled up.
  useLayoutEffect(() => {
    const place = scroller.current;
    if (place && isAtEnd.current) place.scrollTop = place.scrollHeight;
  });
  const lastTop = useRef(0);
  const onScroll = () => {
    const place = scroller.current!;
    const isNear = place.scrollHeight - place.scrollTop - place.clientHeight < 60;
    // Content that grows is no reason to leave the end; only a person scrolls up.
    if (isNear) isAtEnd.current = true;
    else if (place.scrollTop < lastTop.current - 2) isAtEnd.current = false;
    lastTop.current = place.scrollTop;
    setAway(!isAtEnd.current);
  };

  const all = grouped(conversation.items);
  const first = useFirstDrawn(all.length, shown);
  const visibleItems = all.slice(first);
  const hidden = Math.max(0, all.length - shown);
  const isDemo = agent === "demo";
  const say = (text: string, parts?: any[]) => {
    isAtEnd.current = true;
    session.send(text, parts);
  };
  const isEmpty = conversation.items.length === 0;
  return (
    <div class="talk">
      <header class="view-header">
        <label class="visually-hidden" for="talk-agent">{t("agent")}</label>
        <select id="talk-agent" value={agent} onChange={(event) => go({ view: "talk", agent: event.currentTarget.value })}>
          {agents.map((it) => <option key={it.name}>{it.name}</option>)}
        </select>
        <RunBar session={session} agent={agent} thread={thread} />
        <span class="spacer" />
        <button type="button" aria-pressed={isStateOpen} onClick={() => setStateOpen(!isStateOpen)}>{t("control.state")}</button>
        {conversation.run && <a class="button" href={address({ view: "look", agent, thread, run: conversation.run })}>{t("control.timeline")}</a>}
        <a class="button" href={address({ view: "talk", agent })}>
          <Icon name="plus" /> <span class="wide">{t("talk.new")}</span>
        </a>
      </header>
      <div class="talk-body">
        <div class="talk-main">
          <div class="scroller" ref={scroller} onScroll={onScroll} tabIndex={0} role="log" aria-live="off" aria-label={t("talk.conversation")} aria-busy={conversation.isRunning}>
            <div class="column">
              {session.isGone && <Empty title={t("talk.gone.title")} text={t("talk.gone.text")} />}
              {isEmpty && session.isLoaded && !session.isGone && !conversation.isRunning && <Empty title={t("talk.empty.title", { agent })} text={t("talk.empty.text")} />}
              {isEmpty && !session.isLoaded && <p class="muted">{t("loading")}</p>}
              {hidden > 0 && first === hidden && <button type="button" class="link" onClick={() => setShown(shown + 500)}>{t("talk.earlier", { count: hidden })}</button>}
              {visibleItems.map((item) =>
                item.kind === "blocks" ? (
                  <FoldView key={`fold:${item.id}`} items={item.items} version={item.version} context={context} />
                ) : (
                  <ItemView key={`${item.kind}:${item.id}`} item={item} version={item.version} context={context} />
                ),
              )}
              {session.pending.length > 0 && !conversation.isRunning && (
                <Decisions items={session.pending} agent={agent} isBusy={session.isSending} onAnswer={(answers) => session.answer(answers)} />
              )}
              {session.error !== undefined && <Problem error={session.error} onRetry={() => session.open()} />}
              {!conversation.isRunning && conversation.run && !isEmpty && (
                <footer class="run-footer">
                  <Judge label={t("judge.run")} target={{ agent, threadId: thread, runId: conversation.run }} />
                  {conversation.usage && <span class="muted">{t("run.usage", { input: conversation.usage.input ?? 0, output: conversation.usage.output ?? 0 })}</span>}
                </footer>
              )}
            </div>
          </div>
          {isAway && (
            <button type="button" class="latest" onClick={() => ((isAtEnd.current = true), (scroller.current!.scrollTop = scroller.current!.scrollHeight))}>
              {t("talk.latest")}
            </button>
          )}
          <Composer isDemo={isDemo} isEmpty={isEmpty} isBusy={conversation.isRunning || session.isSending} onSend={say} />
        </div>
        {isStateOpen && (
          <aside class="state-pane" aria-label={t("state.title")}>
            <h2>{t("state.title")}</h2>
            {conversation.state === undefined ? <p class="muted">{t("state.empty")}</p> : <Json value={conversation.state} />}
          </aside>
        )}
      </div>
      <Announce text={conversation.isRunning ? word("status", conversation.isPaused ? "paused" : "running") : conversation.outcome ? t(conversation.outcome.type === "error" ? "run.error" : "status.finished") : ""} />
    </div>
  );
}

/** The index of the first item to draw. A frame draws the last items first, and earlier ones up to `shown` in the next frames. */
function useFirstDrawn(count: number, shown: number): number {
  const drawn = useRef({ first: 0, count: 0 });
  const [, again] = useState(0);
  const wanted = Math.max(0, count - shown);
  const added = Math.max(0, count - drawn.current.count);
  const first = Math.max(wanted, added >= STEP ? count - STEP : Math.min(drawn.current.first, count) - (STEP - added));
  drawn.current = { first, count };
  useEffect(() => {
    if (first <= wanted) return undefined;
    const frame = requestAnimationFrame(() => again((value) => value + 1));
    return () => cancelAnimationFrame(frame);
  });
  return first;
}

function RunBar({ session, agent }: { session: Session; agent: string; thread: string }) {
  const { conversation, connection, verdict } = session;
  const isLive = conversation.isRunning;
  const label =
    connection.state === "waiting" ? t("connection.waiting", { attempt: connection.attempt }) : isLive ? t(conversation.isPaused ? "run.paused" : `connection.${connection.state}`) : "";
  return (
    <div class="run-bar" role="group" aria-label={t("run")} data-agent={agent}>
      {label && <span class={`status status-${connection.state === "waiting" ? "failed" : conversation.isPaused ? "paused" : "running"}`} data-connection={connection.state}>{label}</span>}
      {verdict && <span class="status status-finished" data-verdict={verdict}>{t("verdict", { verdict: word("verdict", verdict) })}</span>}
      {isLive && (
        <>
          <button type="button" onClick={() => session.control("stop")}>
            <Icon name="stop" /> <span class="wide">{t("control.stop")}</span>
          </button>
          <button type="button" onClick={() => session.control(conversation.isPaused ? "resume" : "pause")}>
            <Icon name={conversation.isPaused ? "play" : "pause"} /> <span class="wide">{t(conversation.isPaused ? "control.resume" : "control.pause")}</span>
          </button>
          <button type="button" title={t("control.cut.why")} onClick={() => session.cut()}>
            <Icon name="cut" /> <span class="wide">{t("control.cut")}</span>
          </button>
        </>
      )}
    </div>
  );
}

interface Attachment {
  name: string;
  mimeType: string;
  value: string;
}

/** The largest sum of attachments; the gateway limits the body as well. */
const MAX_ATTACHED = 8 << 20;

function Composer({ isDemo, isEmpty, isBusy, onSend }: { isDemo: boolean; isEmpty: boolean; isBusy: boolean; onSend(text: string, parts?: any[]): void }) {
  const [text, setText] = useState("");
  const [attached, setAttached] = useState<Attachment[]>([]);
  const [problem, setProblem] = useState<unknown>();
  const area = useRef<HTMLTextAreaElement>(null);
  const file = useRef<HTMLInputElement>(null);
  const send = () => {
    if (isBusy || (text.trim() === "" && attached.length === 0)) return;
    const parts = attached.map(({ name, mimeType, value }) => ({ type: /^(image|audio|video)\//.test(mimeType) ? mimeType.split("/")[0] : "document", source: { type: "data", value, mimeType }, metadata: { filename: name } }));
    onSend(text.trim(), parts);
    setText("");
    setAttached([]);
    area.current?.focus();
  };
  const attach = async (files: FileList | null) => {
    const read = [...(files ?? [])].map(
      (entry) =>
        new Promise<Attachment>((resolve, reject) => {
          const reader = new FileReader();
          reader.onload = () => resolve({ name: entry.name, mimeType: entry.type || "application/octet-stream", value: String(reader.result).split(",")[1] ?? "" });
          reader.onerror = () => reject(reader.error);
          reader.readAsDataURL(entry);
        }),
    );
    try {
      const all = [...attached, ...(await Promise.all(read))];
      if (all.reduce((sum, entry) => sum + entry.value.length, 0) > MAX_ATTACHED) throw new Error("8 MiB");
      setAttached(all);
      setProblem(undefined);
    } catch (error) {
      setProblem(error);
    }
    file.current!.value = "";
  };
  return (
    <div class="composer">
      {isDemo && isEmpty && (
        <div class="suggestions" role="group" aria-label={t("talk.suggestions")}>
          {DEMO_WORDS.map((entry) => (
            <button key={entry} type="button" class="chip" disabled={isBusy} onClick={() => onSend(entry)}>
              {entry}
            </button>
          ))}
        </div>
      )}
      {attached.length > 0 && (
        <ul class="attached">
          {attached.map((entry, index) => (
            <li key={index}>
              {entry.name}
              <button type="button" class="icon-button" aria-label={t("talk.remove", { name: entry.name })} onClick={() => setAttached(attached.filter((_, at) => at !== index))}>
                <Icon name="close" />
              </button>
            </li>
          ))}
        </ul>
      )}
      {problem !== undefined && <Problem error={problem} />}
      <form
        class="composer-row"
        onSubmit={(event) => {
          event.preventDefault();
          send();
        }}
      >
        <button type="button" class="icon-button" aria-label={t("talk.attach")} title={t("talk.attach")} onClick={() => file.current?.click()}>
          <Icon name="attach" />
        </button>
        <input ref={file} type="file" multiple hidden aria-label={t("talk.attach")} onChange={(event) => attach(event.currentTarget.files)} />
        <label class="visually-hidden" for="composer-text">{t("talk.placeholder")}</label>
        <textarea
          id="composer-text"
          ref={area}
          rows={1}
          value={text}
          placeholder={t("talk.placeholder")}
          onInput={(event) => setText(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
              event.preventDefault();
              send();
            }
          }}
        />
        {isDemo && !isEmpty && (
          <select class="word-select" aria-label={t("talk.suggestions")} value="" disabled={isBusy} onChange={(event) => event.currentTarget.value && onSend(event.currentTarget.value)}>
            <option value="">…</option>
            {DEMO_WORDS.map((entry) => <option key={entry}>{entry}</option>)}
          </select>
        )}
        <button type="submit" class="primary icon-button" aria-label={t("talk.send")} disabled={isBusy || (text.trim() === "" && attached.length === 0)}>
          <Icon name="send" />
        </button>
      </form>
    </div>
  );
}
