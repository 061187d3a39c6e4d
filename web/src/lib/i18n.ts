/** Texts in English and Chinese. The choice is kept; without one, the browser decides. */

import { Observable } from "./store";

export type Language = "en" | "zh";

const LANGUAGE_KEY = "agentwire.language";

const TEXTS: Record<string, [en: string, zh: string]> = {
  "nav.talk": ["Talk", "对话"],
  "nav.look": ["Timeline", "时间线"],
  "nav.find": ["Threads", "会话"],
  "nav.decide": ["Decisions", "审批"],
  "nav.operate": ["Operations", "运行状况"],
  "nav.view": ["Recording", "录制文件"],
  "nav.main": ["Main", "主导航"],
  "skip": ["Skip to the content", "跳到内容"],
  "settings": ["Settings", "设置"],
  "language": ["Language", "语言"],
  "theme": ["Appearance", "外观"],
  "theme.auto": ["As the system", "跟随系统"],
  "theme.light": ["Light", "浅色"],
  "theme.dark": ["Dark", "深色"],
  "close": ["Close", "关闭"],
  "cancel": ["Cancel", "取消"],
  "save": ["Save", "保存"],
  "retry": ["Try again", "重试"],
  "copy": ["Copy", "复制"],
  "copied": ["Copied", "已复制"],
  "loading": ["Loading…", "加载中…"],
  "more": ["Show more", "显示更多"],
  "agent": ["Agent", "智能体"],
  "thread": ["Thread", "会话"],
  "run": ["Run", "运行"],
  "status": ["Status", "状态"],
  "status.queued": ["queued", "排队中"],
  "status.running": ["running", "运行中"],
  "status.paused": ["paused", "已暂停"],
  "status.waiting": ["waiting for a person", "等待处理"],
  "status.finished": ["finished", "已完成"],
  "status.failed": ["failed", "失败"],
  "status.stopped": ["stopped", "已停止"],
  "status.new": ["new", "新建"],
  "talk.empty.title": ["Ask {agent} something", "向 {agent} 提问"],
  "talk.empty.text": ["Write a message, or choose a word below. The answer appears as the agent writes it.", "输入消息，或点选下面的词。智能体的回答会逐字显示。"],
  "talk.placeholder": ["Message", "消息"],
  "talk.send": ["Send", "发送"],
  "talk.new": ["New thread", "新会话"],
  "talk.attach": ["Attach files", "添加附件"],
  "talk.remove": ["Remove {name}", "移除 {name}"],
  "talk.earlier": ["Show {count} earlier items", "显示之前的 {count} 项"],
  "talk.latest": ["Go to the latest", "回到最新"],
  "talk.suggestions": ["Suggestions", "建议"],
  "talk.conversation": ["Conversation", "对话内容"],
  "talk.gone.title": ["This thread is not here", "找不到该会话"],
  "talk.gone.text": ["It was deleted, its time is over, or it belongs to somebody else.", "它已被删除、已过期，或属于其他用户。"],
  "talk.noagent.title": ["No agent yet", "还没有智能体"],
  "talk.noagent.text": ["Name an agent in agentwire.toml, or start the gateway without a file to get the demo agent.", "请在 agentwire.toml 中配置智能体；不带配置文件启动网关即可使用演示智能体。"],
  "you": ["You", "你"],
  "thinking": ["Thinking… {seconds} s", "思考中… {seconds} 秒"],
  "thought": ["Thought for {seconds} s", "思考了 {seconds} 秒"],
  "thought.plain": ["Reasoning", "思考过程"],
  "tool.arguments": ["Arguments", "参数"],
  "tool.result": ["Result", "结果"],
  "tool.error": ["Error", "错误"],
  "tool.running": ["running", "执行中"],
  "tool.done": ["done", "完成"],
  "tool.failed": ["failed", "失败"],
  "tool.waiting": ["waiting", "等待"],
  "step": ["Step {name}", "步骤 {name}"],
  "subagent": ["Subagent {name}", "子智能体 {name}"],
  "source": ["Source", "来源"],
  "source.unsafe": ["address not shown as a link: {address}", "该地址不显示为链接：{address}"],
  "media.foreign": ["{name} on {host}: open", "{host} 上的 {name}：打开"],
  "media.unsafe": ["{name}: this kind of media is not shown", "{name}：此类媒体不予显示"],
  "media.file": ["Download {name}", "下载 {name}"],
  "activity": ["Activity", "活动"],
  "handover": ["{from} → {to}", "{from} → {to}"],
  "run.error": ["The run failed", "运行失败"],
  "run.cancelled": ["Stopped", "已停止"],
  "run.paused": ["Paused", "已暂停"],
  "run.usage": ["Tokens: {input} in, {output} out", "输入 {input}，输出 {output} 个词元"],
  "control.stop": ["Stop", "停止"],
  "control.pause": ["Pause", "暂停"],
  "control.resume": ["Resume", "继续"],
  "control.cut": ["Cut my connection", "断开我的连接"],
  "control.cut.why": ["Cuts this page's connection as a network failure would. The run goes on; the page comes back.", "像网络故障一样断开本页的连接。运行不受影响，页面会自动恢复。"],
  "control.timeline": ["Timeline", "时间线"],
  "control.state": ["State", "状态"],
  "connection.connecting": ["connecting", "连接中"],
  "connection.open": ["live", "实时"],
  "connection.waiting": ["connection lost, attempt {attempt}", "连接中断，第 {attempt} 次重连"],
  "connection.ended": ["ended", "已结束"],
  "connection.failed": ["no connection", "无连接"],
  "verdict": ["reconnected: {verdict}", "已重连：{verdict}"],
  "verdict.whole": ["whole", "完整"],
  "verdict.snapshot": ["snapshot", "快照"],
  "verdict.gap": ["gap", "有缺口"],
  "state.title": ["Shared state", "共享状态"],
  "state.empty": ["The agent has set no state.", "智能体尚未设置状态。"],
  "judge.up": ["Good", "好"],
  "judge.down": ["Bad", "不好"],
  "judge.comment": ["Comment", "评论"],
  "judge.score": ["Score, 0 to 1", "评分，0 到 1"],
  "judge.send": ["Send feedback", "提交反馈"],
  "judge.thanks": ["Recorded", "已记录"],
  "judge.run": ["This run", "本次运行"],
  "look.title": ["Timeline", "时间线"],
  "look.pick.title": ["Choose a run", "选择一次运行"],
  "look.pick.text": ["Open a thread and choose its timeline, or pick one of these runs.", "打开会话并进入时间线，或选择下面的运行。"],
  "look.events": ["{count} events", "{count} 个事件"],
  "look.list": ["Events", "事件"],
  "look.search": ["Search events", "搜索事件"],
  "look.filter": ["Filter", "筛选"],
  "look.error": ["Next error", "下一个错误"],
  "look.next": ["Next", "下一个"],
  "look.curl": ["Copy as curl", "复制为 curl"],
  "look.download": ["Download", "下载"],
  "look.canonical": ["Canonical event", "规范事件"],
  "look.raw": ["Raw frame of the agent", "智能体的原始帧"],
  "look.raw.none": ["Not kept for this event.", "该事件没有保留原始帧。"],
  "look.formats": ["The same event in three protocols", "同一事件的三种协议"],
  "look.none": ["No bytes of its own: this protocol expresses the event with others, or not at all.", "没有单独的字节：该协议用其他事件表达它，或无法表达。"],
  "look.waiting": ["Waiting for the bytes…", "等待数据…"],
  "look.state": ["State here", "此处的状态"],
  "look.diff": ["Changes by this event", "此事件的更改"],
  "look.lanes": ["Lanes", "泳道"],
  "look.gap": ["{time} without an event", "{time} 内没有事件"],
  "look.select": ["Choose an event", "选择一个事件"],
  "look.select.text": ["Its canonical form and its bytes in AG-UI, HAI and the AI SDK appear here.", "这里会显示它的规范形式，以及在 AG-UI、HAI 和 AI SDK 中的字节。"],
  "look.none.title": ["No event matches", "没有匹配的事件"],
  "look.violation": ["Violation", "违规"],
  "find.title": ["Threads", "会话"],
  "find.search": ["Search by id, title or text", "按编号、标题或内容搜索"],
  "find.all": ["All agents", "所有智能体"],
  "find.anystatus": ["Any status", "任意状态"],
  "find.empty.title": ["No thread yet", "还没有会话"],
  "find.empty.text": ["Threads appear here after the first message.", "发送第一条消息后，会话会显示在这里。"],
  "find.nothing.title": ["Nothing found", "没有找到"],
  "find.nothing.text": ["Try fewer words, another agent or another status.", "请减少关键词，或更换智能体、状态。"],
  "find.open": ["Open", "打开"],
  "find.rename": ["Rename", "重命名"],
  "find.delete": ["Delete", "删除"],
  "find.export": ["Export", "导出"],
  "find.runs": ["Runs", "运行记录"],
  "find.updated": ["Last change", "最近更改"],
  "find.name": ["Title", "标题"],
  "find.actions": ["Actions", "操作"],
  "find.delete.ask": ["Delete “{title}” with all its runs? This cannot be undone.", "删除“{title}”及其全部运行？此操作无法撤销。"],
  "decide.title": ["Decisions", "审批"],
  "decide.empty.title": ["Nothing waits for you", "没有待处理的事项"],
  "decide.empty.text": ["Questions of agents and approvals appear here as they come.", "智能体的提问和审批请求会显示在这里。"],
  "decide.approve": ["Approve", "批准"],
  "decide.deny": ["Deny", "拒绝"],
  "decide.edit": ["Edit arguments", "修改参数"],
  "decide.edited": ["Approve with these arguments", "按修改后的参数批准"],
  "decide.answer": ["Answer", "回答"],
  "decide.asked": ["Asked by {agent}, {time}", "{agent} 提出，{time}"],
  "decide.requester": ["Started by {user}", "由 {user} 发起"],
  "decide.votes": ["{votes} of {needed} votes", "已有 {votes}/{needed} 票"],
  "decide.expires": ["Expires {time}", "{time} 到期"],
  "decide.hash": ["SHA-256 of the arguments", "参数的 SHA-256"],
  "decide.open": ["Open the thread", "打开会话"],
  "decide.past": ["Decided", "已处理"],
  "decide.by": ["{user}, {time}", "{user}，{time}"],
  "decide.together": ["{count} questions of this run are answered together.", "本次运行的 {count} 个问题需一起回答。"],
  "decide.sendall": ["Send all answers", "提交全部回答"],
  "decide.others": ["Somebody else has to decide this.", "此事须由他人决定。"],
  "decide.changed": ["Somebody else has decided, or the arguments have changed. This list is up to date now.", "已有他人处理，或参数已更改。列表现已更新。"],
  "decide.question": ["The agent asks", "智能体提问"],
  "decide.tool": ["Result of the tool", "工具结果"],
  "decide.confirm": ["Confirm", "确认"],
  "decide.refuse": ["Refuse", "拒绝"],
  "decide.importance": ["Importance: {level}", "重要程度：{level}"],
  "decide.json": ["JSON", "JSON"],
  "decide.badjson": ["This is no valid JSON.", "不是有效的 JSON。"],
  "decide.approved": ["approved", "已批准"],
  "decide.denied": ["denied", "已拒绝"],
  "decide.answered": ["answered", "已回答"],
  "operate.title": ["Operations", "运行状况"],
  "operate.gateway": ["Gateway", "网关"],
  "operate.ready": ["ready", "就绪"],
  "operate.notready": ["not ready", "未就绪"],
  "operate.version": ["Version {version}", "版本 {version}"],
  "operate.live": ["Live runs", "活动运行"],
  "operate.connections": ["Connections", "连接"],
  "operate.events": ["Events logged", "已记录事件"],
  "operate.store": ["Store", "存储"],
  "operate.writefailures": ["{count} failed writes", "{count} 次写入失败"],
  "operate.agents": ["Agents", "智能体"],
  "operate.started": ["started", "已启动"],
  "operate.failed": ["failed", "失败"],
  "operate.live.short": ["live", "活动"],
  "operate.readers": ["readers", "读者"],
  "operate.first": ["first event", "首个事件"],
  "operate.lasterror": ["Last error", "最近错误"],
  "operate.noerror": ["No error since the start", "启动以来没有错误"],
  "operate.repairs": ["Repairs by rule", "按规则的修复"],
  "operate.recoveries": ["Reconnects by verdict", "按结果的重连"],
  "operate.refusals": ["Refusals by code", "按代码的拒绝"],
  "operate.none": ["none", "无"],
  "operate.links": ["For machines", "供程序使用"],
  "operate.forbidden": ["Your credential has no scope for the metrics.", "你的凭证没有查看指标的权限。"],
  "signin.title": ["Sign in", "登录"],
  "signin.text": ["This gateway asks for a credential. Paste an API key or a token; it stays in this tab.", "该网关需要凭证。请粘贴 API 密钥或令牌；它只保存在本标签页中。"],
  "signin.label": ["API key or token", "API 密钥或令牌"],
  "signin.button": ["Sign in", "登录"],
  "signin.out": ["Sign out", "退出登录"],
  "signin.refused": ["The gateway refused this credential.", "网关拒绝了该凭证。"],
  "settings.tools": ["Front-end tools (JSON list)", "前端工具（JSON 列表）"],
  "settings.tools.hint": ["confirmAction is always offered. Each entry has a name, a description and a JSON Schema as parameters.", "confirmAction 始终可用。每一项包含名称、描述和作为参数的 JSON Schema。"],
  "view.title": ["Recording", "录制文件"],
  "view.format": ["{format}, {count} events", "{format}，{count} 个事件"],
  "view.violations": ["{count} violations", "{count} 处违规"],
  "view.clean": ["no violation", "没有违规"],
  "view.differences": ["{count} differences", "{count} 处差异"],
  "view.same": ["the same events", "事件相同"],
  "view.only": ["only here", "仅在此处"],
  "view.different": ["different", "不同"],
  "view.next": ["Next difference", "下一处差异"],
  "blocks.unknown": ["Block of an unknown type: {type}", "未知类型的内容块：{type}"],
  "blocks.chart": ["Chart", "图表"],
  "blocks.series": ["Series", "数据系列"],
  "blocks.side": ["Details of {name}", "{name} 的详情"],
  "error.title": ["This did not work", "操作未成功"],
  "error.network": ["The gateway cannot be reached. It may be restarting; the page tries again by itself.", "无法连接网关。它可能正在重启，页面会自动重试。"],
  "error.forbidden": ["Your credential does not allow this.", "你的凭证不允许此操作。"],
  "just.now": ["just now", "刚刚"],
};

function initial(): Language {
  const kept = localStorage.getItem(LANGUAGE_KEY);
  if (kept === "en" || kept === "zh") return kept;
  return navigator.languages.some((name) => name.toLowerCase().startsWith("zh")) && !navigator.language.toLowerCase().startsWith("en") ? "zh" : "en";
}

export const language = new Observable<Language>(initial());

function apply(): void {
  document.documentElement.lang = language.value === "zh" ? "zh-CN" : "en";
}
apply();

export function setLanguage(value: Language): void {
  localStorage.setItem(LANGUAGE_KEY, value);
  language.set(value);
  apply();
}

/** The text of a key in the current language, with `{name}` replaced. */
export function t(key: string, values: Record<string, string | number> = {}): string {
  const texts = TEXTS[key];
  const text = texts ? texts[language.value === "zh" ? 1 : 0] : key;
  return text.replace(/\{(\w+)\}/g, (_, name) => String(values[name] ?? ""));
}

/** A word of the gateway in the current language; words without a translation stay. */
export function word(prefix: string, name: string): string {
  return TEXTS[`${prefix}.${name}`] ? t(`${prefix}.${name}`) : name;
}

/** A time relative to now. */
export function ago(iso: string | undefined): string {
  if (!iso) return "";
  const seconds = (Date.parse(iso) - Date.now()) / 1000;
  if (Number.isNaN(seconds)) return iso;
  if (Math.abs(seconds) < 10) return t("just.now");
  const format = new Intl.RelativeTimeFormat(language.value, { numeric: "auto" });
  for (const [unit, size] of [["day", 86400], ["hour", 3600], ["minute", 60]] as const) {
    if (Math.abs(seconds) >= size) return format.format(Math.round(seconds / size), unit);
  }
  return format.format(Math.round(seconds), "second");
}

export function duration(ms: number): string {
  if (ms < 1000) return `${ms > 0 && ms < 1 ? "<1" : Math.round(ms)} ms`;
  return ms < 60_000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
}
