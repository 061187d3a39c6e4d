/** Charts by Apache ECharts, a file of its own that is loaded with the first chart. */

import { BarChart, BoxplotChart, CandlestickChart, FunnelChart, GaugeChart, GraphChart, HeatmapChart, LineChart, PieChart, RadarChart, SankeyChart, ScatterChart, TreemapChart } from "echarts/charts";
import { DatasetComponent, GridComponent, LegendComponent, PolarComponent, RadarComponent, TitleComponent, TooltipComponent, VisualMapComponent } from "echarts/components";
import * as echarts from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";

echarts.use([
  BarChart, BoxplotChart, CandlestickChart, FunnelChart, GaugeChart, GraphChart, HeatmapChart, LineChart, PieChart, RadarChart, SankeyChart, ScatterChart, TreemapChart,
  DatasetComponent, GridComponent, LegendComponent, PolarComponent, RadarComponent, TitleComponent, TooltipComponent, VisualMapComponent,
  CanvasRenderer,
]);

// Members that open addresses, draw HTML, or load pictures.
const FORBIDDEN = new Set(["link", "sublink", "target", "subtarget", "toolbox", "graphic", "formatter", "extraCssText", "appendTo", "image", "backgroundImage", "nodeClick", "renderMode"]);

/** A copy of an option without the members that reach beyond the chart. */
function harmless(value: unknown, depth = 0): unknown {
  if (depth > 12) return undefined;
  if (Array.isArray(value)) return value.map((entry) => harmless(entry, depth + 1));
  if (typeof value === "string") return /^image:\/\//i.test(value) ? "circle" : value;
  if (typeof value !== "object" || value === null) return value;
  const isEdge = "source" in value && "target" in value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([name]) => (name === "target" && isEdge) || !FORBIDDEN.has(name))
      .map(([name, member]) => [name, harmless(member, depth + 1)]),
  );
}

/** Draws a chart; the result removes it. */
export function draw(place: HTMLElement, option: any): () => void {
  const dark = getComputedStyle(document.documentElement).colorScheme.includes("dark") && getComputedStyle(document.body).getPropertyValue("--is-dark").trim() === "1";
  const chart = echarts.init(place, dark ? "dark" : undefined, { renderer: "canvas" });
  const reduced = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const safe = harmless(option) as any;
  // Text on the canvas: HTML of a label is never parsed.
  const tooltip = safe.tooltip ? { ...safe.tooltip, renderMode: "richText" } : undefined;
  try {
    chart.setOption({ ...safe, tooltip, backgroundColor: "transparent", animation: !reduced && safe.animation !== false });
  } catch (error) {
    chart.dispose();
    throw error;
  }
  const observer = new ResizeObserver(() => chart.resize());
  observer.observe(place);
  return () => {
    observer.disconnect();
    chart.dispose();
  };
}
