/** Operate: the health of agents, gateway and store. Read-only. */

import { useState } from "preact/hooks";
import { type AgentInfo, ApiError, BASE, agents as loadAgents, getJson, request } from "../lib/api";
import { prose } from "../lib/escape";
import { ago, duration, t, word } from "../lib/i18n";
import { usePolling } from "../lib/store";
import { Problem } from "../parts/common";

interface Metrics {
  value(name: string): number;
  labelled(name: string, label: string): [string, number][];
}

/** The lines of OpenMetrics text that the page shows. */
function parseMetrics(text: string): Metrics {
  const lines = text.split("\n").filter((line) => line && !line.startsWith("#"));
  const parsed = lines.map((line) => {
    const match = /^agentwire_(\w+?)(?:\{(.*)\})? (\S+)$/.exec(line);
    return match ? { name: match[1], labels: match[2] ?? "", value: Number(match[3]) } : undefined;
  });
  const of = (name: string) => parsed.filter((line) => line && (line.name === name || line.name === `${name}_total`));
  return {
    value: (name) => of(name).reduce((sum, line) => sum + line!.value, 0),
    labelled: (name, label) =>
      of(name)
        .map((line): [string, number] => [new RegExp(`${label}="([^"]*)"`).exec(line!.labels)?.[1] ?? "", line!.value])
        .filter(([, value]) => value > 0)
        .sort((one, two) => two[1] - one[1]),
  };
}

export function Operate() {
  const [agents, setAgents] = useState<AgentInfo[]>();
  const [ready, setReady] = useState<{ isReady: boolean; text: string }>();
  const [metrics, setMetrics] = useState<Metrics>();
  const [isForbidden, setForbidden] = useState(false);
  const [version, setVersion] = useState("");
  const [error, setError] = useState<unknown>();
  usePolling(
    async () => {
      try {
        setAgents(await loadAgents());
        setError(undefined);
      } catch (problem) {
        setError(problem);
      }
      await request("/readyz").then(
        async (response) => setReady({ isReady: true, text: (await response.text()).replace(/^ok\n/, "") }),
        (problem) => setReady({ isReady: false, text: problem.message }),
      );
      await request("/metrics").then(
        async (response) => (setMetrics(parseMetrics(await response.text())), setForbidden(false)),
        (problem) => setForbidden(problem instanceof ApiError && problem.status === 403),
      );
      if (!version) setVersion((await getJson<{ info: { version: string } }>("/openapi.json")).info.version);
    },
    3000,
    [version === ""],
  );
  return (
    <div class="page">
      <header class="view-header">
        <h1>{t("operate.title")}</h1>
      </header>
      {error !== undefined && <Problem error={error} />}
      <section class="tiles" aria-label={t("operate.gateway")}>
        <Tile label={t("operate.gateway")} value={ready ? t(ready.isReady ? "operate.ready" : "operate.notready") : "…"} note={ready?.text || (version && t("operate.version", { version }))} isBad={ready?.isReady === false} />
        {metrics && (
          <>
            <Tile label={t("operate.live")} value={metrics.value("runs_live")} />
            <Tile label={t("operate.connections")} value={metrics.value("connections")} />
            <Tile label={t("operate.events")} value={metrics.value("events")} />
            <Tile label={t("operate.store")} value={t(metrics.value("flush_failures") === 0 ? "operate.ready" : "operate.notready")} note={metrics.value("flush_failures") > 0 ? t("operate.writefailures", { count: metrics.value("flush_failures") }) : undefined} isBad={metrics.value("flush_failures") > 0} />
          </>
        )}
      </section>
      <h2>{t("operate.agents")}</h2>
      <section class="agents">
        {agents?.map((agent) => (
          <article key={agent.name} class="card" aria-label={agent.name}>
            <header>
              <h3>{agent.name}</h3>
              <span class={`status status-${agent.health?.lastError ? "failed" : "finished"}`}>{agent.health?.lastError ? t("operate.lasterror") : t("operate.ready")}</span>
            </header>
            {agent.health && (
              <>
                <dl class="figures">
                  <div><dt>{t("operate.live.short")}</dt><dd>{agent.health.runs.live}</dd></div>
                  <div><dt>{t("operate.readers")}</dt><dd>{agent.health.readers}</dd></div>
                  <div><dt>{t("operate.started")}</dt><dd>{agent.health.runs.started}</dd></div>
                  <div><dt>{t("operate.failed")}</dt><dd>{agent.health.runs.failed}</dd></div>
                  <div><dt>{t("operate.first")}</dt><dd>{agent.health.firstEventMs === null ? "–" : duration(agent.health.firstEventMs)}</dd></div>
                </dl>
                {agent.health.lastError ? (
                  <p class="problem">
                    <code>{prose(agent.health.lastError.code)}</code> {prose(agent.health.lastError.message ?? "")} <span class="muted">{ago(agent.health.lastError.at)}</span>
                  </p>
                ) : (
                  <p class="muted">{t("operate.noerror")}</p>
                )}
              </>
            )}
          </article>
        ))}
      </section>
      {isForbidden && <p class="muted">{t("operate.forbidden")}</p>}
      {metrics && (
        <section class="tables">
          <Counts title={t("operate.repairs")} rows={metrics.labelled("repairs", "rule")} />
          <Counts title={t("operate.recoveries")} rows={metrics.labelled("recoveries", "verdict").map(([name, value]) => [word("verdict", name), value])} />
          <Counts title={t("operate.refusals")} rows={metrics.labelled("refusals", "code")} />
        </section>
      )}
      <h2>{t("operate.links")}</h2>
      <p class="links">
        {["/openapi.json", "/metrics", "/readyz", "/livez", "/agents"].map((path) => <a key={path} href={`${BASE}${path}`}>{path}</a>)}
      </p>
    </div>
  );
}

function Tile({ label, value, note, isBad }: { label: string; value: string | number; note?: string; isBad?: boolean }) {
  return (
    <div class={`tile${isBad ? " is-bad" : ""}`}>
      <span class="tile-label">{label}</span>
      <strong>{typeof value === "number" ? value.toLocaleString() : value}</strong>
      {note && <span class="muted">{note}</span>}
    </div>
  );
}

function Counts({ title, rows }: { title: string; rows: [string, number][] }) {
  return (
    <section>
      <h2>{title}</h2>
      {rows.length === 0 ? (
        <p class="muted">{t("operate.none")}</p>
      ) : (
        <table>
          <tbody>
            {rows.map(([name, value]) => (
              <tr key={name}>
                <th scope="row" class="mono">{name}</th>
                <td>{value.toLocaleString()}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}
