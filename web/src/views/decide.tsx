/** Decide: everything that waits for a person, across threads and agents, and the decisions of the past. */

import { useState } from "preact/hooks";
import { agentPath, type AgentInfo, ApiError, getJson, part, type PendingItem, request, type ThreadInfo } from "../lib/api";
import { prose, shownJson, visible } from "../lib/escape";
import { ago, t } from "../lib/i18n";
import { address } from "../lib/route";
import { Observable, usePolling } from "../lib/store";
import { tools } from "../lib/tools";
import { Empty, Problem } from "../parts/common";
import { type Answer, Decisions, sendAnswers } from "../parts/decision";

interface Waiting {
  agent: string;
  thread: ThreadInfo;
  items: PendingItem[];
}

/** An entry of `GET /approvals`: a call behind the approval gate that this person may decide. */
interface Approval extends PendingItem {
  agent: string;
  thread: string;
  run: string;
  tool: string;
  requester: string;
  votes: number;
  needed: number;
}

/** The number of items, for the badge of the navigation. */
export const waitingCount = new Observable(0);

/** The threads of this person; none for somebody who may decide and not read. */
async function threadsOf(agent: AgentInfo, query: string): Promise<{ threads: ThreadInfo[] }> {
  try {
    return await getJson<{ threads: ThreadInfo[] }>(`${agentPath(agent.name)}/threads?${query}`);
  } catch (error) {
    if (error instanceof ApiError && error.status === 403) return { threads: [] };
    throw error;
  }
}

async function waiting(agents: AgentInfo[]): Promise<Waiting[]> {
  const lists = await Promise.all(
    agents.map(async (agent) => {
      const page = await threadsOf(agent, "status=waiting&limit=50");
      return Promise.all(
        page.threads.map(async (thread) => ({
          agent: agent.name,
          thread,
          items: await getJson<PendingItem[]>(`${agentPath(agent.name)}/threads/${part(thread.threadId)}/pending`).catch(() => []),
        })),
      );
    }),
  );
  const seen = new Set<string>();
  return lists.flat().filter((entry) => {
    const key = `${entry.thread.agent}\n${entry.thread.threadId}`;
    return entry.items.length > 0 && !seen.has(key) && seen.add(key);
  });
}

let hasApprovals = true;

/** Asks for approvals again, because another person has signed in. */
export function forgetPerson(): void {
  hasApprovals = true;
  waitingCount.set(0);
}

/** Approvals of other people's runs; not everybody may decide, and an older gateway has no such route. */
async function approvals(): Promise<Approval[]> {
  if (!hasApprovals) return [];
  try {
    const found = await getJson<Approval[]>("/approvals");
    return found.map((item) => ({ ...item, kind: "approval", name: item.tool, expiresAt: item.expiresAt ?? undefined }));
  } catch (error) {
    if (error instanceof ApiError && [403, 404].includes(error.status)) {
      hasApprovals = false;
      return [];
    }
    throw error;
  }
}

/** The items of this person that are no approvals: those are decided by votes, even one's own. */
function withoutApprovals(own: Waiting[], all: Approval[]): Waiting[] {
  const isVoted = (entry: Waiting, item: PendingItem) => all.some((it) => it.thread === entry.thread.threadId && it.run === item.runId && it.tool === item.name && it.argumentsHash === item.argumentsHash);
  return own.map((entry) => ({ ...entry, items: entry.items.filter((item) => !isVoted(entry, item)) })).filter((entry) => entry.items.length > 0);
}

export function useWaiting(agents: AgentInfo[], everyMs: number): void {
  usePolling(
    async () => {
      const [own, others] = await Promise.all([waiting(agents), approvals()]);
      waitingCount.set(withoutApprovals(own, others).reduce((sum, entry) => sum + entry.items.length, 0) + others.length);
    },
    everyMs,
    [agents.length],
  );
}

export function Decide({ agents }: { agents: AgentInfo[] }) {
  const [list, setList] = useState<Waiting[]>();
  const [others, setOthers] = useState<Approval[]>([]);
  const [past, setPast] = useState<(PendingItem & { agent: string; thread: ThreadInfo })[]>([]);
  const [busy, setBusy] = useState<string>();
  const [error, setError] = useState<unknown>();
  const [note, setNote] = useState("");
  const load = async () => {
    try {
      const [own, all] = await Promise.all([waiting(agents), approvals()]);
      setList(withoutApprovals(own, all));
      setOthers(all);
      const recent = await Promise.all(agents.map((agent) => threadsOf(agent, "limit=15").then((page) => page.threads.map((thread) => ({ agent: agent.name, thread })))));
      const decided = await Promise.all(
        recent.flat().map(async ({ agent, thread }) => (await getJson<PendingItem[]>(`${agentPath(agent)}/threads/${part(thread.threadId)}/pending?all=true`).catch(() => [])).filter((item) => item.answer).map((item) => ({ ...item, agent, thread }))),
      );
      setPast(decided.flat().sort((one, two) => two.answer!.at.localeCompare(one.answer!.at)).slice(0, 30));
      setError((known: unknown) => (known instanceof ApiError && known.status !== 0 ? known : undefined));
    } catch (problem) {
      setError(problem);
    }
  };
  usePolling(load, 3000, [agents.length]);
  const send = async (key: string, work: () => Promise<unknown>) => {
    setBusy(key);
    setNote("");
    try {
      await work();
      setError(undefined);
    } catch (problem) {
      if (problem instanceof ApiError && problem.status === 409) setNote(t("decide.changed"));
      else setError(problem);
    }
    // The run that the answer starts changes the list in a moment.
    setTimeout(() => void load().finally(() => setBusy(undefined)), 300);
  };
  const decideOther = (item: Approval, [given]: Answer[]) => {
    const payload = (given.resume?.payload ?? {}) as { approved?: boolean; editedArgs?: unknown };
    const body = { decision: payload.approved ? "approve" : "deny", argumentsHash: item.argumentsHash, ...(payload.editedArgs !== undefined && { editedArgs: payload.editedArgs }) };
    void send(item.id, () => request(`/approvals/${part(item.id)}`, { method: "POST", body }));
  };
  const isEmpty = list?.length === 0 && others.length === 0;
  return (
    <div class="page">
      <header class="view-header">
        <h1>{t("decide.title")}</h1>
      </header>
      <div class="column">
        {error !== undefined && <Problem error={error} onRetry={load} />}
        {note && <p class="note" role="status">{note}</p>}
        {list === undefined && error === undefined && <p class="muted">{t("loading")}</p>}
        {isEmpty && <Empty title={t("decide.empty.title")} text={t("decide.empty.text")} />}
        {others.map((item) => (
          <section key={item.id} class="waiting">
            <p class="muted">
              {t("decide.requester", { user: prose(item.requester) })}
              {item.needed > 1 && <> · {t("decide.votes", { votes: item.votes, needed: item.needed })}</>}
            </p>
            <Decisions items={[item]} agent={item.agent} isBusy={busy === item.id} onAnswer={(answers) => decideOther(item, answers)} />
          </section>
        ))}
        {list?.map(({ agent, thread, items }) => (
          <section key={`${agent}/${thread.threadId}`} class="waiting">
            <p class="muted">
              <a href={address({ view: "talk", agent, thread: thread.threadId })}>{prose(thread.title ?? thread.threadId)}</a>
            </p>
            <Decisions key={items.map((item) => item.id).join()} items={items} agent={agent} isBusy={busy === thread.threadId} onAnswer={(answers) => send(thread.threadId, () => sendAnswers(agent, thread.threadId, answers, tools()))} />
          </section>
        ))}
        {past.length > 0 && (
          <section aria-labelledby="decide-past">
            <h2 id="decide-past">{t("decide.past")}</h2>
            <ul class="past">
              {past.map((item) => (
                <li key={`${item.runId}/${item.id}`}>
                  <b>{prose(item.message ?? item.name ?? item.kind)}</b> <span class="status status-finished">{verdictOf(item)}</span>
                  <div class="muted">
                    {t("decide.by", { user: prose(item.answer!.by), time: ago(item.answer!.at) })} · <a href={address({ view: "look", agent: item.agent, thread: item.thread.threadId, run: item.answer!.runId })}>{t("nav.look")}</a>
                  </div>
                  <details>
                    <summary>{t("decide.answer")}</summary>
                    <pre tabIndex={0}>{shownJson(item.answer!.content)}</pre>
                    {item.argumentsHash && <p class="hash muted">{t("decide.hash")}: <code>{visible(item.argumentsHash)}</code></p>}
                  </details>
                </li>
              ))}
            </ul>
          </section>
        )}
      </div>
    </div>
  );
}

function verdictOf(item: PendingItem): string {
  const content: any = item.answer?.content;
  const payload = content?.payload ?? content;
  if (payload?.approved === true || payload === true || payload === "true") return t("decide.approved");
  if (payload?.approved === false || payload === false || payload === "false") return t("decide.denied");
  return t("decide.answered");
}
