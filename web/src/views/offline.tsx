/** Offline: recordings of `agentwire view`, alone or side by side with their differences. */

import { useEffect, useRef, useState } from "preact/hooks";
import { chunks } from "../../../sdk/typescript/hai-client/src/core/sse";
import { request } from "../lib/api";
import { prose } from "../lib/escape";
import type { AgEvent } from "../lib/events";
import { t } from "../lib/i18n";
import { Problem } from "../parts/common";
import { type Bytes, type Entry, Timeline } from "./timeline";

/** A line of `/view/N`: the head of a recording, or one of its events. */
type Line =
  | { name: string; format: string; note?: string }
  | { seq: number; event: AgEvent; raw?: string; violation?: string; agUi?: string; hai?: string; aiSdk?: string };

interface Recording {
  name: string;
  format: string;
  note?: string;
  entries: Entry[];
  bytes: Bytes;
  isWhole: boolean;
}

const fresh = (): Recording => ({ name: "", format: "", entries: [], bytes: { "ag-ui": new Map(), hai: new Map(), "ai-sdk": new Map() }, isWhole: false });

async function load(index: number, recording: Recording, changed: () => void): Promise<void> {
  const response = await request(`/view/${index}`);
  const decoder = new TextDecoder();
  let rest = "";
  const read = (text: string) => {
    const line: Line = JSON.parse(text);
    if ("format" in line) Object.assign(recording, line);
    else {
      recording.entries.push({ seq: line.seq, event: line.event, text: JSON.stringify(line.event), raw: line.raw, violation: line.violation });
      for (const [key, bytes] of [["ag-ui", line.agUi], ["hai", line.hai], ["ai-sdk", line.aiSdk]] as const) if (bytes) recording.bytes[key].set(line.seq, bytes);
    }
  };
  for await (const chunk of chunks(response.body!)) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    let pauseAt = performance.now() + 12;
    for (const line of lines) {
      read(line);
      if (performance.now() > pauseAt) {
        changed();
        await new Promise((wake) => setTimeout(wake));
        pauseAt = performance.now() + 12;
      }
    }
    changed();
  }
  if (rest) read(rest);
  recording.isWhole = true;
  changed();
}

/** An event without what differs from run to run: times and ids. */
function essence(event: AgEvent): string {
  const { timestamp: _time, rawEvent: _raw, threadId: _thread, runId: _run, messageId: _message, toolCallId: _call, parentMessageId: _parent, subagentRunId: _subagent, ...rest } = event;
  return JSON.stringify(rest);
}

/** Marks the events that the two lists do not share, by a longest common subsequence within a window. */
function mark(one: Entry[], two: Entry[]): number {
  const [a, b] = [one, two].map((entries) => entries.map((entry) => essence(entry.event)));
  let [i, j, differences] = [0, 0, 0];
  const WINDOW = 200;
  for (const entry of [...one, ...two]) entry.difference = undefined;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      i += 1;
      j += 1;
      continue;
    }
    // The nearest place where both go on alike.
    let best: [number, number] | undefined;
    search: for (let sum = 1; sum <= WINDOW; sum += 1) {
      for (let left = 0; left <= sum; left += 1) {
        if (i + left < a.length && j + sum - left < b.length && a[i + left] === b[j + sum - left]) {
          best = [left, sum - left];
          break search;
        }
      }
    }
    const [left, right] = best ?? [a.length - i, b.length - j];
    for (let at = 0; at < Math.max(left, right); at += 1) {
      const isPair = at < left && at < right;
      if (at < left) one[i + at].difference = isPair ? "different" : "only";
      if (at < right) two[j + at].difference = isPair ? "different" : "only";
      differences += 1;
    }
    i += left;
    j += right;
  }
  return differences;
}

export function Offline({ count }: { count: number }) {
  const recordings = useRef<Recording[]>(Array.from({ length: count }, fresh));
  const [version, setVersion] = useState(0);
  const [differences, setDifferences] = useState<number>();
  const [error, setError] = useState<unknown>();
  const [selected, setSelected] = useState<number>();
  useEffect(() => {
    let frame = 0;
    const changed = () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        setVersion((number) => number + 1);
      });
    };
    Promise.all(recordings.current.map((recording, index) => load(index, recording, changed)))
      .then(() => {
        if (count === 2) setDifferences(mark(recordings.current[0].entries, recordings.current[1].entries));
        // A new list, so that the marks are drawn.
        for (const recording of recordings.current) recording.entries = [...recording.entries];
        changed();
      })
      .catch(setError);
    return () => cancelAnimationFrame(frame);
  }, [count]);
  return (
    <div class="look">
      <header class="view-header">
        <h1>{t("view.title")}</h1>
        {differences !== undefined && <span class={`status status-${differences ? "waiting" : "finished"}`}>{differences ? t("view.differences", { count: differences }) : t("view.same")}</span>}
      </header>
      {error !== undefined && <Problem error={error} />}
      <div class={`recordings recordings-${count}`}>
        {recordings.current.map((recording, index) => {
          const violations = recording.entries.filter((entry) => entry.violation).length;
          return (
            <section key={index} class="recording" aria-label={recording.name}>
              <p class="recording-head">
                <b>{prose(recording.name)}</b> <span class="muted">{t("view.format", { format: recording.format, count: recording.entries.length })}</span> <span class={`status status-${violations ? "failed" : "finished"}`}>{violations ? t("view.violations", { count: violations }) : t("view.clean")}</span>
                {recording.note && <span class="muted"> {prose(recording.note)}</span>}
              </p>
              <Timeline entries={recording.entries} version={version} bytes={recording.bytes} isLive={false} isWhole={recording.isWhole} name={`${index}`} isCompact={count > 1} selected={count > 1 ? selected : undefined} onSelect={setSelected} />
            </section>
          );
        })}
      </div>
    </div>
  );
}
