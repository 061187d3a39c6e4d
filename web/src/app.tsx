/** The frame of the page: navigation, settings, sign-in, and the view of the address. */

import { useEffect, useState } from "preact/hooks";
import { type AgentInfo, agents as loadAgents, ApiError, hasToken, onUnauthenticated, request, setToken } from "./lib/api";
import { language, type Language, setLanguage, t } from "./lib/i18n";
import { address, route } from "./lib/route";
import { useValue } from "./lib/store";
import { setTools, toolsText } from "./lib/tools";
import { Dialog, Icon, Problem } from "./parts/common";
import { Decide, forgetPerson, useWaiting, waitingCount } from "./views/decide";
import { Find } from "./views/find";
import { Look } from "./views/look";
import { Offline } from "./views/offline";
import { Operate } from "./views/operate";
import { Talk } from "./views/talk";
import { applyTheme, setTheme, theme } from "./lib/theme";

const NAVIGATION = ["talk", "find", "look", "decide", "operate"] as const;

export function App() {
  const where = useValue(route);
  useValue(language);
  const [agents, setAgents] = useState<AgentInfo[]>();
  const [recordings, setRecordings] = useState(0);
  const [error, setError] = useState<unknown>();
  const [refused, setRefused] = useState<ApiError>();
  const [isSettingsOpen, setSettingsOpen] = useState(false);
  const load = async () => {
    try {
      // `agentwire view` serves recordings and no agents.
      if (route.value.view === "view") {
        const found = await (await request("/view")).json();
        setRecordings(found.recordings);
        setAgents([]);
        return;
      }
      setAgents(await loadAgents());
      setError(undefined);
      setRefused(undefined);
    } catch (problem) {
      setError(problem);
      if (problem instanceof ApiError && problem.status === 0) setTimeout(load, 2000);
    }
  };
  useEffect(() => {
    onUnauthenticated.handler = setRefused;
    applyTheme();
    void load();
  }, []);
  useEffect(() => {
    document.title = `${t(`nav.${where.view}`)} · agentwire`;
  }, [where.view, language.value]);
  const isOffline = recordings > 0;
  const views = isOffline ? [] : NAVIGATION;
  return (
    <div class="app">
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.getElementById("main")?.focus())}>{t("skip")}</a>
      <nav class="nav" aria-label={t("nav.main")}>
        <a class="brand" href={isOffline ? "#/view" : "#/talk"} aria-label="agentwire">
          <Mark /> <span class="wide">agentwire</span>
        </a>
        {views.map((view) => (
          <a key={view} class="nav-link" href={address({ view })} aria-current={where.view === view ? "page" : undefined}>
            <Icon name={view} /> <span class="nav-text">{t(`nav.${view}`)}</span>
            {view === "decide" && <Badge />}
          </a>
        ))}
        <span class="spacer" />
        <button type="button" class="nav-link" aria-label={t("settings")} onClick={() => setSettingsOpen(true)}>
          <Icon name="settings" /> <span class="nav-text">{t("settings")}</span>
        </button>
      </nav>
      <main id="main" tabIndex={-1}>
        {refused ? (
          <SignIn isRefused={hasToken()} onDone={() => (forgetPerson(), setRefused(undefined), setError(undefined), setAgents(undefined), void load())} />
        ) : error !== undefined ? (
          <div class="page"><Problem error={error} onRetry={load} /></div>
        ) : agents === undefined ? (
          <p class="page muted">{t("loading")}</p>
        ) : isOffline ? (
          <Offline count={recordings} />
        ) : (
          <>
            <Watch agents={agents} isFast={where.view !== "decide"} />
            {where.view === "talk" && <Talk route={where} agents={agents} />}
            {where.view === "look" && <Look route={where} agents={agents} />}
            {where.view === "find" && <Find agents={agents} />}
            {where.view === "decide" && <Decide agents={agents} />}
            {where.view === "operate" && <Operate />}
          </>
        )}
      </main>
      {isSettingsOpen && <Settings onClose={() => setSettingsOpen(false)} onSignOut={() => (setSettingsOpen(false), setToken(""), forgetPerson(), setAgents(undefined), void load())} />}
    </div>
  );
}

/** Keeps the number of open questions. */
function Watch({ agents, isFast }: { agents: AgentInfo[]; isFast: boolean }) {
  useWaiting(agents, isFast ? 6000 : 3000);
  return null;
}

function Badge() {
  const count = useValue(waitingCount);
  return count > 0 ? <span class="badge">{count}</span> : null;
}

function Mark() {
  return (
    <svg class="mark" viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="8" />
      <path d="M6 10h7c5 0 4 12 9 12h4M6 16h20M6 22h7c5 0 4-12 9-12h4" />
    </svg>
  );
}

function SignIn({ isRefused, onDone }: { isRefused: boolean; onDone(): void }) {
  return (
    <div class="page narrow">
      <form
        class="card signin"
        onSubmit={(event) => {
          event.preventDefault();
          setToken(String(new FormData(event.currentTarget).get("token") ?? ""));
          onDone();
        }}
      >
        <h1>{t("signin.title")}</h1>
        <p>{t("signin.text")}</p>
        {isRefused && <p class="problem" role="alert">{t("signin.refused")}</p>}
        <div class="field">
          <label for="signin-token">{t("signin.label")}</label>
          <input id="signin-token" name="token" type="password" autocomplete="off" required autofocus />
        </div>
        <div class="actions">
          <button type="submit" class="primary">{t("signin.button")}</button>
        </div>
      </form>
    </div>
  );
}

function Settings({ onClose, onSignOut }: { onClose(): void; onSignOut(): void }) {
  const [problem, setProblem] = useState("");
  const current = useValue(theme);
  const save = (event: SubmitEvent) => {
    event.preventDefault();
    const data = new FormData(event.currentTarget as HTMLFormElement);
    try {
      setTools(String(data.get("tools") ?? ""));
      onClose();
    } catch {
      setProblem(t("decide.badjson"));
    }
  };
  return (
    <Dialog title={t("settings")} onClose={onClose}>
      <form onSubmit={save}>
        <div class="field">
          <label for="settings-language">{t("language")}</label>
          <select id="settings-language" value={language.value} onChange={(event) => setLanguage(event.currentTarget.value as Language)}>
            <option value="en">English</option>
            <option value="zh">中文</option>
          </select>
        </div>
        <div class="field">
          <label for="settings-theme">{t("theme")}</label>
          <select id="settings-theme" value={current} onChange={(event) => setTheme(event.currentTarget.value)}>
            {["auto", "light", "dark"].map((name) => <option key={name} value={name}>{t(`theme.${name}`)}</option>)}
          </select>
        </div>
        <div class="field">
          <label for="settings-tools">{t("settings.tools")}</label>
          <textarea id="settings-tools" name="tools" class="mono" rows={5} spellcheck={false} defaultValue={toolsText()} aria-describedby="settings-tools-hint" />
          <small id="settings-tools-hint">{t("settings.tools.hint")}</small>
          {problem && <small class="problem" role="alert">{problem}</small>}
        </div>
        <div class="actions">
          <button type="submit" class="primary">{t("save")}</button>
          {hasToken() && <button type="button" onClick={onSignOut}>{t("signin.out")}</button>}
        </div>
      </form>
    </Dialog>
  );
}
