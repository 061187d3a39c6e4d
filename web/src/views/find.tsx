/** Find: the threads of the caller, with search, rename, delete and export. */

import { useEffect, useRef, useState } from "preact/hooks";
import { agentPath, type AgentInfo, download, getJson, part, request, type RunInfo, type ThreadInfo } from "../lib/api";
import { prose } from "../lib/escape";
import { ago, t, word } from "../lib/i18n";
import { address } from "../lib/route";
import { usePolling } from "../lib/store";
import { Dialog, Empty, Problem, Status } from "../parts/common";

interface Row extends ThreadInfo {
  via: string;
}

const STATUSES = ["running", "paused", "waiting", "finished", "failed", "stopped"];

export function Find({ agents }: { agents: AgentInfo[] }) {
  const [query, setQuery] = useState("");
  const [agent, setAgent] = useState("");
  const [status, setStatus] = useState("");
  const [rows, setRows] = useState<Row[]>();
  const [next, setNext] = useState<Record<string, string>>({});
  const [error, setError] = useState<unknown>();
  const [renaming, setRenaming] = useState<Row>();
  const [deleting, setDeleting] = useState<Row>();
  const [runsOf, setRunsOf] = useState<Row>();
  const asked = useRef(0);
  const names = agent ? [agent] : agents.map((it) => it.name);

  const load = async (before: Record<string, string> = {}, isMore = false) => {
    const number = ++asked.current;
    const search = new URLSearchParams({ limit: "50", ...(query && { query }), ...(status && { status }) });
    try {
      const pages = await Promise.all(
        names
          .filter((name) => !isMore || before[name])
          .map(async (name) => {
            let cursor: string | undefined = before[name];
            let found: ThreadInfo[] = [];
            // A page of a search may be empty although more threads follow.
            do {
              const page: { threads: ThreadInfo[]; next?: string } = await getJson(`${agentPath(name)}/threads?${search}${cursor ? `&before=${cursor}` : ""}`);
              found = found.concat(page.threads);
              cursor = page.next;
            } while (cursor && found.length === 0 && number === asked.current);
            return { name, found: found.map((thread) => ({ ...thread, via: name })), cursor };
          }),
      );
      if (number !== asked.current) return;
      const seen = new Set<string>();
      const all = [...(isMore ? (rows ?? []) : []), ...pages.flatMap((page) => page.found)].filter((row) => {
        // Agents of a group list the same threads.
        const key = `${row.agent}\n${row.threadId}`;
        return !seen.has(key) && seen.add(key);
      });
      setRows(all.sort((one, two) => two.updatedAt.localeCompare(one.updatedAt)));
      setNext(Object.fromEntries(pages.flatMap((page) => (page.cursor ? [[page.name, page.cursor]] : []))));
      setError(undefined);
    } catch (problem) {
      if (number === asked.current) setError(problem);
    }
  };
  useEffect(() => {
    const timer = setTimeout(() => load(), rows ? 200 : 0);
    return () => clearTimeout(timer);
  }, [query, agent, status, agents.length]);
  usePolling(() => (Object.keys(next).length === 0 && !renaming && !deleting && rows ? load() : undefined), 5000, [query, agent, status, renaming, deleting, rows === undefined]);

  const exportThread = async (row: Row) => {
    try {
      const response = await request(`${agentPath(row.via)}/threads/${part(row.threadId)}/export`);
      download(`${row.threadId.replace(/[^\w.-]/g, "_")}.jsonl`, await response.blob());
    } catch (problem) {
      setError(problem);
    }
  };
  const remove = async (row: Row) => {
    setDeleting(undefined);
    try {
      await request(`${agentPath(row.via)}/thread/${part(row.threadId)}`, { method: "DELETE" });
      await load();
    } catch (problem) {
      setError(problem);
    }
  };
  const rename = async (row: Row, title: string) => {
    setRenaming(undefined);
    try {
      await request(`${agentPath(row.via)}/threads/${part(row.threadId)}`, { method: "PATCH", body: { title: title.trim() || null } });
      await load();
    } catch (problem) {
      setError(problem);
    }
  };
  const isFiltered = query !== "" || agent !== "" || status !== "";
  const titleOf = (row: Row) => prose(row.title ?? row.threadId);
  return (
    <div class="page">
      <header class="view-header">
        <h1>{t("find.title")}</h1>
        <span class="spacer" />
        <label class="visually-hidden" for="find-query">{t("find.search")}</label>
        <input id="find-query" type="search" placeholder={t("find.search")} value={query} maxLength={200} onInput={(event) => setQuery(event.currentTarget.value)} />
        <label class="visually-hidden" for="find-agent">{t("agent")}</label>
        <select id="find-agent" value={agent} onChange={(event) => setAgent(event.currentTarget.value)}>
          <option value="">{t("find.all")}</option>
          {agents.map((it) => <option key={it.name}>{it.name}</option>)}
        </select>
        <label class="visually-hidden" for="find-status">{t("status")}</label>
        <select id="find-status" value={status} onChange={(event) => setStatus(event.currentTarget.value)}>
          <option value="">{t("find.anystatus")}</option>
          {STATUSES.map((it) => <option key={it} value={it}>{word("status", it)}</option>)}
        </select>
      </header>
      {error !== undefined && <Problem error={error} onRetry={() => load()} />}
      {rows === undefined && error === undefined && <p class="muted">{t("loading")}</p>}
      {rows?.length === 0 && <Empty title={t(isFiltered ? "find.nothing.title" : "find.empty.title")} text={t(isFiltered ? "find.nothing.text" : "find.empty.text")} />}
      {rows && rows.length > 0 && (
        <table class="threads">
          <thead>
            <tr>
              <th scope="col">{t("find.name")}</th>
              <th scope="col">{t("agent")}</th>
              <th scope="col">{t("status")}</th>
              <th scope="col">{t("find.updated")}</th>
              <th scope="col"><span class="visually-hidden">{t("find.actions")}</span></th>
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <tr key={`${row.via}/${row.threadId}`}>
                <td>
                  <a href={address({ view: "talk", agent: row.via, thread: row.threadId })}>{titleOf(row)}</a>
                  <div class="muted mono id">{prose(row.threadId)}</div>
                </td>
                <td>{row.agent}</td>
                <td>
                  <Status status={row.status} />
                  {row.cause && row.status === "failed" && <div class="muted mono id">{prose(row.cause).slice(0, 60)}</div>}
                </td>
                <td title={row.updatedAt}>{ago(row.updatedAt)}</td>
                <td class="row-actions">
                  <button type="button" onClick={() => setRunsOf(row)}>{t("find.runs")}</button>
                  <button type="button" onClick={() => setRenaming(row)}>{t("find.rename")}</button>
                  <button type="button" onClick={() => exportThread(row)}>{t("find.export")}</button>
                  <button type="button" class="danger" onClick={() => setDeleting(row)}>{t("find.delete")}</button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {Object.keys(next).length > 0 && <button type="button" onClick={() => load(next, true)}>{t("more")}</button>}
      {renaming && (
        <Dialog title={t("find.rename")} onClose={() => setRenaming(undefined)}>
          <form
            onSubmit={(event) => {
              event.preventDefault();
              void rename(renaming, String(new FormData(event.currentTarget).get("title") ?? ""));
            }}
          >
            <div class="field">
              <label for="rename-title">{t("find.name")}</label>
              <input id="rename-title" name="title" defaultValue={renaming.title ?? ""} maxLength={200} autofocus />
            </div>
            <div class="actions">
              <button type="submit" class="primary">{t("save")}</button>
              <button type="button" onClick={() => setRenaming(undefined)}>{t("cancel")}</button>
            </div>
          </form>
        </Dialog>
      )}
      {deleting && (
        <Dialog title={t("find.delete")} onClose={() => setDeleting(undefined)}>
          <p>{t("find.delete.ask", { title: titleOf(deleting) })}</p>
          <div class="actions">
            <button type="button" class="primary danger" onClick={() => remove(deleting)}>{t("find.delete")}</button>
            <button type="button" onClick={() => setDeleting(undefined)}>{t("cancel")}</button>
          </div>
        </Dialog>
      )}
      {runsOf && <Runs row={runsOf} onClose={() => setRunsOf(undefined)} />}
    </div>
  );
}

function Runs({ row, onClose }: { row: Row; onClose(): void }) {
  const [runs, setRuns] = useState<RunInfo[]>();
  const [error, setError] = useState<unknown>();
  useEffect(() => {
    getJson<{ runs: RunInfo[] }>(`${agentPath(row.via)}/threads/${part(row.threadId)}/runs?limit=200`).then((page) => setRuns(page.runs), setError);
  }, [row]);
  return (
    <Dialog title={t("find.runs")} onClose={onClose}>
      {error !== undefined && <Problem error={error} />}
      <ul class="picks">
        {runs?.map((run) => (
          <li key={run.runId}>
            <a href={address({ view: "look", agent: row.via, thread: row.threadId, run: run.runId })} onClick={onClose}>{prose(run.runId)}</a> <Status status={run.status} /> <span class="muted">{t("look.events", { count: run.events })} · {ago(run.createdAt)}</span>
          </li>
        ))}
      </ul>
    </Dialog>
  );
}
