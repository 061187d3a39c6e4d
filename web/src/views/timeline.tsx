/** The timeline of a run or a recording: lanes, events, and one event in three protocols. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { BASE, agentPath, download, part } from "../lib/api";
import { shownJson, visible } from "../lib/escape";
import { type AgEvent, GROUPS, type Group, groupOf, laneOf, summaryOf } from "../lib/events";
import { duration, t } from "../lib/i18n";
import { applyPatch, type Change } from "../lib/patch";
import { CopyButton, Empty } from "../parts/common";
import { Long } from "../parts/long";
import { VirtualList } from "../parts/virtual";

/** An event with everything that is known of it. */
export interface Entry {
  seq: number;
  event: AgEvent;
  /** The event as JSON, as it stands in the log or the recording. */
  text: string;
  ids?: string;
  raw?: string;
  violation?: string;
  difference?: "only" | "different";
}

/** The bytes of each protocol by event number. */
export type Bytes = Record<"ag-ui" | "hai" | "ai-sdk", Map<number, string>>;

export const PROTOCOLS = [
  ["ag-ui", "AG-UI"],
  ["hai", "HAI"],
  ["ai-sdk", "AI SDK"],
] as const;

const ROW = 28;
const GAP_MS = 1000;

export interface TimelineProps {
  entries: Entry[];
  /** Grows with the entries, which are changed in place. */
  version: number;
  bytes: Bytes;
  isLive: boolean;
  /** True once the bytes of all protocols have arrived. */
  isWhole: boolean;
  name: string;
  where?: { agent: string; run: string };
  selected?: number;
  onSelect?(index: number): void;
  isCompact?: boolean;
}

export function Timeline(props: TimelineProps) {
  const { entries, version, bytes, isLive, isWhole, name, where, isCompact } = props;
  const [own, setOwn] = useState(-1);
  const selectedSeq = props.selected ?? own;
  const [groups, setGroups] = useState<Set<Group>>(new Set(GROUPS));
  const [query, setQuery] = useState("");
  const [reveal, setReveal] = useState<{ index: number }>();
  const shown = useMemo(() => {
    const wanted = query.trim().toLowerCase();
    if (groups.size === GROUPS.length && wanted === "") return entries;
    return entries.filter((entry) => groups.has(groupOf(entry.event.type)) && (wanted === "" || entry.text.toLowerCase().includes(wanted)));
  }, [version, entries, groups, query]);
  const index = selectedSeq < 0 ? -1 : shown.findIndex((entry) => entry.seq === selectedSeq);
  const entry = index >= 0 ? shown[index] : selectedSeq < 0 ? undefined : entries.find((it) => it.seq === selectedSeq);
  const select = (at: number) => {
    const found = shown[at];
    if (!found) return;
    setOwn(found.seq);
    props.onSelect?.(found.seq);
    setReveal({ index: at });
  };
  const jump = (isWanted: (entry: Entry) => boolean) => {
    const next = shown.findIndex((it, at) => at > index && isWanted(it));
    const found = next >= 0 ? next : shown.findIndex(isWanted);
    if (found >= 0) select(found);
  };
  const startedAt = entries[0]?.event.timestamp;
  const { lanes, hasError, hasDifference } = digestOf(entries);
  return (
    <div class={`timeline${isCompact ? " is-compact" : ""}`}>
      <div class="timeline-list">
        <div class="toolbar" role="toolbar" aria-label={t("look.filter")}>
          <label class="visually-hidden" for={`search-${name}`}>{t("look.search")}</label>
          <input id={`search-${name}`} type="search" placeholder={t("look.search")} value={query} onInput={(event) => setQuery(event.currentTarget.value)} />
          <details class="menu">
            <summary>{t("look.filter")}</summary>
            <div class="menu-body">
              {GROUPS.map((group) => (
                <label key={group} class="check">
                  <input
                    type="checkbox"
                    checked={groups.has(group)}
                    onChange={(event) => {
                      const next = new Set(groups);
                      if (event.currentTarget.checked) next.add(group);
                      else next.delete(group);
                      setGroups(next);
                    }}
                  />
                  {group}
                </label>
              ))}
            </div>
          </details>
          {hasError && <button type="button" onClick={() => jump(isError)}>{t("look.error")}</button>}
          {hasDifference && <button type="button" onClick={() => jump((it) => it.difference !== undefined)}>{t("view.next")}</button>}
          <span class="muted" data-count={shown.length}>{t("look.events", { count: shown.length })}</span>
          {!isCompact && <button type="button" onClick={() => download(`${name}.jsonl`, new Blob(entries.map((it) => `${it.text}\n`), { type: "application/jsonl" }))}>{t("look.download")}</button>}
        </div>
        {!isCompact && <Lanes lanes={[...lanes.values()].slice(0, MAX_LANES)} more={Math.max(0, lanes.size - MAX_LANES)} entries={entries} onPick={(seq) => select(shown.findIndex((it) => it.seq === seq))} />}
        {shown.length === 0 && entries.length > 0 ? (
          <Empty title={t("look.none.title")} text={t("find.nothing.text")} />
        ) : (
          <VirtualList
            count={shown.length}
            rowHeight={ROW}
            selected={index}
            label={t("look.list")}
            isFollowing={isLive && index < 0}
            reveal={reveal}
            onSelect={select}
            row={(at) => {
              const it = shown[at];
              const before = at > 0 ? shown[at - 1].event.timestamp : undefined;
              const now = it.event.timestamp;
              const gap = before !== undefined && now !== undefined && now - before >= GAP_MS ? now - before : 0;
              const lane = laneOf(it.event);
              return (
                <div class={`event event-${groupOf(it.event.type)}${isError(it) ? " is-error" : ""}${it.difference ? ` is-${it.difference}` : ""}`} title={gap ? t("look.gap", { time: duration(gap) }) : undefined}>
                  <span class="seq">{it.seq}</span>
                  <span class="time">{now !== undefined && startedAt !== undefined ? `+${duration(Math.max(0, now - startedAt))}` : ""}</span>
                  <span class={`lane lane-${(lanes.get(lane)?.index ?? 0) % 6}`} title={lane}>
                    <span class="lane-mark" aria-hidden="true" />
                  </span>
                  <span class="type">{it.event.type}</span>
                  <span class="summary">{visible(summaryOf(it.event).slice(0, 160))}</span>
                  {gap > 0 && <span class="gap">{duration(gap)}</span>}
                  {it.difference && <span class="tag">{t(`view.${it.difference}`)}</span>}
                  {it.violation && <span class="tag is-error">{t("look.violation")}</span>}
                </div>
              );
            }}
          />
        )}
      </div>
      {!(isCompact && !entry) && <Detail entry={entry} entries={entries} bytes={bytes} isWhole={isWhole} where={where} />}
    </div>
  );
}

const isError = (it: Entry): boolean => it.event.type === "RUN_ERROR" || it.event.type === "SUBAGENT_ERROR" || it.event.isError === true || it.violation !== undefined;

interface Lane {
  id: string;
  index: number;
  label: string;
  first: number;
  last: number;
  seq: number;
}

const MAX_LANES = 12;

/** The facts about a list of events that its drawing needs. */
interface Digest {
  count: number;
  lanes: Map<string, Lane>;
  hasError: boolean;
  hasDifference: boolean;
}

const digests = new WeakMap<Entry[], Digest>();

/** A lane per message, call, activity, subagent, step; the run and the state have one each. Only new events are read. */
function digestOf(entries: Entry[]): Digest {
  const digest = digests.get(entries) ?? { count: 0, lanes: new Map(), hasError: false, hasDifference: false };
  digests.set(entries, digest);
  for (; digest.count < entries.length; digest.count += 1) {
    const entry = entries[digest.count];
    const { event, seq } = entry;
    const id = laneOf(event);
    const at = event.timestamp ?? seq;
    let lane = digest.lanes.get(id);
    if (!lane) digest.lanes.set(id, (lane = { id, index: digest.lanes.size, label: "", first: at, last: at, seq }));
    lane.last = Math.max(lane.last, at);
    lane.label ||= event.toolCallName ?? (event.type.startsWith("SUBAGENT_") ? event.name : undefined) ?? event.activityType ?? (event.type.startsWith("REASONING") ? t("thought.plain") : undefined) ?? event.stepName ?? id;
    digest.hasError ||= isError(entry);
    digest.hasDifference ||= entry.difference !== undefined;
  }
  return digest;
}

function Lanes({ lanes, more, entries, onPick }: { lanes: Lane[]; more: number; entries: Entry[]; onPick(seq: number): void }) {
  if (entries.length === 0) return null;
  const start = Math.min(...lanes.map((lane) => lane.first));
  const end = Math.max(...lanes.map((lane) => lane.last), start + 1);
  const percent = (at: number) => ((at - start) / (end - start)) * 100;
  return (
    <section class="lanes" aria-label={t("look.lanes")}>
      {lanes.map((lane, index) => (
        <button key={lane.id} type="button" class="lane-row" title={`${lane.label} · ${lane.id}`} onClick={() => onPick(lane.seq)}>
          <span class="lane-label">{visible(String(lane.label)).slice(0, 40)}</span>
          <span class="lane-track" aria-hidden="true">
            <span class={`lane-bar lane-${index % 6}`} style={{ left: `${percent(lane.first)}%`, width: `max(4px, ${percent(lane.last) - percent(lane.first)}%)` }} />
          </span>
        </button>
      ))}
      {more > 0 && <span class="muted">+ {more}</span>}
    </section>
  );
}

function Detail({ entry, entries, bytes, isWhole, where }: { entry?: Entry; entries: Entry[]; bytes: Bytes; isWhole: boolean; where?: { agent: string; run: string } }) {
  const state = useStateAt(entries, entry);
  if (!entry) {
    return (
      <div class="timeline-detail">
        <Empty title={t("look.select")} text={t("look.select.text")} />
      </div>
    );
  }
  const raw = entry.raw ?? (entry.event.rawEvent !== undefined ? shownJson(entry.event.rawEvent) : undefined);
  const curl = () => {
    const after = entry.seq > 0 ? `&after=${part(`${where!.run}:${entry.seq - 1}`)}` : "";
    return `curl -N '${location.origin}${BASE}${agentPath(where!.agent)}/runs/${part(where!.run)}/stream?format=ag-ui@1${after}'`;
  };
  return (
    <div class="timeline-detail" aria-live="polite">
      <header>
        <h2>
          <span class="muted">{entry.seq}</span> {entry.event.type}
        </h2>
        {where && <CopyButton label={t("look.curl")} text={curl} />}
        <CopyButton text={entry.text} />
      </header>
      {entry.violation && (
        <div class="problem-box">
          <b>{t("look.violation")}</b> {visible(entry.violation)}
        </div>
      )}
      <h3>{t("look.formats")}</h3>
      <div class="protocols">
        {PROTOCOLS.map(([key, label]) => (
          <section key={key} aria-label={label}>
            <h4>{label}</h4>
            {bytes[key].has(entry.seq) ? (
              <pre tabIndex={0} data-protocol={key}><Long text={clip(visible(bytes[key].get(entry.seq)!))} /></pre>
            ) : (
              <p class="muted" data-protocol={key}>{t(isWhole || maxKey(bytes[key]) > entry.seq ? "look.none" : "look.waiting")}</p>
            )}
          </section>
        ))}
      </div>
      <div class="detail-columns">
        <section>
          <h3>{t("look.canonical")}</h3>
          <pre tabIndex={0}><Long text={clip(shownJson(entry.event))} /></pre>
        </section>
        <section>
          <h3>{t("look.raw")}</h3>
          {raw === undefined ? <p class="muted">{t("look.raw.none")}</p> : <pre tabIndex={0}><Long text={clip(visible(raw))} /></pre>}
        </section>
        {state && (
          <section>
            <h3>{t("look.state")}</h3>
            {state.changes.length > 0 && (
              <ul class="diff" aria-label={t("look.diff")}>
                {state.changes.slice(0, 100).map((change, at) => (
                  <li key={at}>
                    <code>
                      {visible(change.op)} {visible(change.path || "/")}
                    </code>
                    {change.error ? <span class="problem"> {change.error}</span> : null}
                    {change.before !== undefined && <del>{clip(shownJson(change.before, 0), 300)}</del>}
                    {change.after !== undefined && <ins>{clip(shownJson(change.after, 0), 300)}</ins>}
                  </li>
                ))}
              </ul>
            )}
            <pre tabIndex={0}><Long text={clip(shownJson(state.document))} /></pre>
          </section>
        )}
      </div>
    </div>
  );
}

const clip = (text: string, limit = 20_000): string => (text.length > limit ? `${text.slice(0, limit)}\n… ${text.length - limit}` : text);

const maxima = new WeakMap<Map<number, string>, { size: number; max: number }>();
function maxKey(map: Map<number, string>): number {
  const known = maxima.get(map);
  if (known?.size === map.size) return known.max;
  let max = -1;
  for (const key of map.keys()) max = Math.max(max, key);
  maxima.set(map, { size: map.size, max });
  return max;
}

/** The state after an event, and the changes that the event made. */
function useStateAt(entries: Entry[], entry: Entry | undefined): { document: unknown; changes: Change[] } | undefined {
  // Every 200th state is kept, so that a click on a late event does not apply all patches again.
  const kept = useRef<{ entries: Entry[]; states: Map<number, unknown> }>({ entries, states: new Map() });
  useEffect(() => {
    kept.current = { entries, states: new Map() };
  }, [entries]);
  return useMemo(() => {
    if (!entry) return undefined;
    const end = entries.indexOf(entry);
    let from = -1;
    let document: unknown;
    for (const [at, state] of kept.current.states) if (at <= end - 1 && at > from) [from, document] = [at, state];
    let isKnown = from >= 0 && document !== undefined;
    let changes: Change[] = [];
    for (let at = from + 1; at <= end; at += 1) {
      const { event } = entries[at];
      changes = [];
      if (event.type === "STATE_SNAPSHOT") {
        changes = [{ op: "replace", path: "", before: document, after: event.snapshot }];
        document = event.snapshot;
        isKnown = true;
      } else if (event.type === "STATE_DELTA") {
        const applied = applyPatch(document ?? {}, event.delta);
        document = applied.document;
        changes = applied.changes;
        isKnown = true;
      }
      if (at % 200 === 0 && at < end) kept.current.states.set(at, document);
    }
    return isKnown ? { document, changes } : undefined;
  }, [entries, entry]);
}
