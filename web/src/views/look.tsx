/** Look: the timeline of one run, followed in three protocols at once. */

import { useEffect, useRef, useState } from "preact/hooks";
import { agentPath, type AgentInfo, getJson, part, type RunInfo, type ThreadInfo } from "../lib/api";
import { type Connection, Follower, type Frame } from "../lib/follow";
import { ago, t } from "../lib/i18n";
import { address, go, type Route } from "../lib/route";
import { Empty, Problem, Status } from "../parts/common";
import { Judge } from "../parts/judge";
import { type Bytes, type Entry, Timeline } from "./timeline";

export function Look({ route, agents }: { route: Route; agents: AgentInfo[] }) {
  if (!route.agent || !route.run) return <Pick agents={agents} />;
  return <RunTimeline key={`${route.agent}\n${route.run}`} route={route} />;
}

/** A choice of the latest runs. */
function Pick({ agents }: { agents: AgentInfo[] }) {
  const [threads, setThreads] = useState<(ThreadInfo & { via: string })[]>();
  useEffect(() => {
    void Promise.all(agents.map((agent) => getJson<{ threads: ThreadInfo[] }>(`${agentPath(agent.name)}/threads?limit=10`).then((page) => page.threads.map((thread) => ({ ...thread, via: agent.name })), () => []))).then((all) =>
      setThreads(all.flat().filter((thread) => thread.runId).sort((one, two) => two.updatedAt.localeCompare(one.updatedAt)).slice(0, 20)),
    );
  }, [agents.length]);
  return (
    <div class="page">
      <Empty title={t("look.pick.title")} text={t("look.pick.text")} />
      <ul class="picks">
        {threads?.map((thread) => (
          <li key={`${thread.via}/${thread.threadId}`}>
            <a href={address({ view: "look", agent: thread.via, thread: thread.threadId, run: thread.runId })}>{thread.title ?? thread.threadId}</a> <Status status={thread.status} /> <span class="muted">{thread.agent} · {ago(thread.updatedAt)}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}

const empty = (): Bytes => ({ "ag-ui": new Map(), hai: new Map(), "ai-sdk": new Map() });

function RunTimeline({ route }: { route: Route }) {
  const { agent, run, thread } = route;
  const entries = useRef<Entry[]>([]);
  const bytes = useRef<Bytes>(empty());
  const [version, setVersion] = useState(0);
  const [connection, setConnection] = useState<Connection>({ state: "connecting" });
  const [whole, setWhole] = useState(0);
  const [runs, setRuns] = useState<RunInfo[]>([]);
  useEffect(() => {
    let frame = 0;
    const changed = () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        setVersion((count) => count + 1);
      });
    };
    const add = (protocol: keyof Bytes, { seq, id, data }: Frame) => {
      if (seq < 0) return;
      const text = `data: ${data}\nid: ${id}\n`;
      const known = bytes.current[protocol].get(seq);
      bytes.current[protocol].set(seq, known ? `${known}\n${text}` : text);
    };
    const follow = (protocol: keyof Bytes, format: string) =>
      new Follower({
        agent,
        run,
        format,
        isParsed: protocol === "ag-ui",
        onFrame: (received, event) => {
          add(protocol, received);
          if (protocol === "ag-ui") entries.current.push({ seq: received.seq < 0 ? entries.current.length : received.seq, event, text: received.data });
          changed();
        },
        onConnection: protocol === "ag-ui" ? setConnection : undefined,
      });
    const first = follow("ag-ui", "ag-ui@1");
    const others = [follow("hai", "hai"), follow("ai-sdk", "ai-sdk@7")];
    void first.start().then(changed);
    // The bytes of the other protocols end when the run does; their last frames differ by protocol.
    for (const other of others) void other.start();
    const watch = setInterval(async () => {
      const status = await getJson<RunInfo>(`${agentPath(agent)}/runs/${part(run)}`).catch(() => undefined);
      if (status && !["queued", "running", "paused"].includes(status.status) && entries.current.length >= status.events) {
        clearInterval(watch);
        setTimeout(() => {
          others.forEach((other) => other.close());
          setWhole((count) => count + 1);
        }, 1500);
      }
    }, 500);
    if (thread) void getJson<{ runs: RunInfo[] }>(`${agentPath(agent)}/threads/${part(thread)}/runs?limit=50`).then((page) => setRuns(page.runs), () => undefined);
    return () => {
      clearInterval(watch);
      first.close();
      others.forEach((other) => other.close());
      cancelAnimationFrame(frame);
    };
  }, [agent, run]);
  const isLive = connection.state === "open" || connection.state === "connecting" || connection.state === "waiting";
  return (
    <div class="look">
      <header class="view-header">
        <h1>{t("look.title")}</h1>
        {runs.length > 0 && (
          <>
            <label class="visually-hidden" for="look-run">{t("run")}</label>
            <select id="look-run" value={run} onChange={(event) => go({ view: "look", agent, thread, run: event.currentTarget.value })}>
              {runs.map((it) => <option key={it.runId} value={it.runId}>{`${it.runId.slice(0, 24)} · ${it.status} · ${it.events}`}</option>)}
            </select>
          </>
        )}
        <span class={`status status-${isLive ? "running" : "finished"}`}>{t(`connection.${connection.state}`, connection.state === "waiting" ? { attempt: connection.attempt } : {})}</span>
        <span class="spacer" />
        <Judge target={{ agent, threadId: thread, runId: run }} label={t("judge.run")} />
        <a class="button" href={address({ view: "talk", agent, thread })}>{t("nav.talk")}</a>
      </header>
      {connection.state === "failed" ? (
        <Problem error={connection.error} />
      ) : (
        <Timeline entries={entries.current} version={version} bytes={bytes.current} isLive={isLive} isWhole={whole > 0} name={run} where={{ agent, run }} />
      )}
    </div>
  );
}
