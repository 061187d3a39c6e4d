"""Bar charts as SVG, without a plotting library."""

from xml.sax.saxutils import escape

WIDTH, LEFT, BAR, GAP, TOP = 760, 190, 22, 8, 78
INK, GREY, OURS, THEIRS = "#1f2933", "#7b8794", "#2f6f4f", "#b8bec6"


def text(x, y, words, size=13, colour=INK, anchor="start", weight="normal"):
    style = f'font-size="{size}" fill="{colour}" text-anchor="{anchor}" font-weight="{weight}"'
    return f'<text x="{x:.0f}" y="{y:.0f}" {style}>{escape(words)}</text>'


def panel(y, title, unit, rows, digits):
    """The bars of one group, scaled to the longest; returns the elements and the y position of their end."""
    out = [text(16, y, title, 14, weight="bold"), text(WIDTH - 16, y, unit, 12, GREY, "end")]
    largest = max(value for _, value in rows)
    y += 12
    for name, value in rows:
        length = max((WIDTH - LEFT - 90) * value / largest, 2)
        colour = OURS if name.startswith("agentwire") else THEIRS
        out.append(text(LEFT - 10, y + BAR - 6, name, anchor="end"))
        out.append(f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" rx="3" fill="{colour}"/>')
        out.append(text(LEFT + length + 8, y + BAR - 6, f"{value:,.{digits}f}", colour=GREY))
        y += BAR + GAP
    return out, y + 26


def svg(rows, rate):
    out = [
        text(16, 30, "The same recorded stream through agentwire and through the frameworks' own AG-UI endpoints", 15, weight="bold"),
        text(16, 50, "Shorter is better. One run on one machine by bench/upstreams/run; its README says what is counted.", 12, GREY),
    ]
    y = TOP
    for kind, title in [("langgraph", "LangGraph"), ("adk", "Google ADK")]:
        of = lambda wanted: [row for row in rows if row["kind"] == kind and row["rate"] == wanted]
        for part, unit, values, digits in [
            ("CPU, as fast as it goes", "µs of processor time per event", [(row["name"], row["cpu_us"]) for row in of(0)], 1),
            (f"CPU at {rate} events/s", "µs of processor time per event", [(row["name"], row["cpu_us"]) for row in of(rate)], 1),
            ("added latency, p99", "ms from the server's write to the client's read", [(row["name"], row["p99"]) for row in of(rate)], 2),
        ]:
            drawn, y = panel(y, f"{title}: {part}", unit, values, digits)
            out += drawn
    style = 'font-family="system-ui, sans-serif"'
    size = f'width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}"'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style} role="img">', '<rect width="100%" height="100%" fill="#ffffff"/>', *out, "</svg>", ""])
