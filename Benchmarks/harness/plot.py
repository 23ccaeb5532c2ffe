"""results.svg: bar charts of the main figures, written without a plotting library."""

from xml.sax.saxutils import escape

from .results import Figure

# The figures by key, with titles that fit above a panel.
_FIGURES = {
    "post_rate": "POST of 100 bytes",
    "poll_rate": "Short poll for one message",
    "post_cpu": "POST: processor time per request",
    "poll_cpu": "Short poll: processor time per request",
    "connections_rate": "POST on a new connection each",
    "connections_cpu": "POST on a new connection each: processor time per request",
    "held_memory": "Memory per held poll",
    "fanout_cpu": "One push to 10,000 polls: processor time per delivery",
    "streams_cpu": "One push to 10,000 event streams: processor time per delivery",
    "latency_p50_100": "Push to response, median at 100 pushes/s",
    "latency_p99_10000": "Push to response, 99th percentile at 10,000 pushes/s",
    "echo_p50": "POST to the poll with its echo, median at 100/s",
    "echo_p99": "POST to the poll with its echo, 99th percentile at 100/s",
}
# A bar is cut off at this multiple of Drawbridge's bar, so that one large value does not flatten the others.
_LONGEST = 6
_COLOURS = {"drawbridge": "#0b6e6e", "floor": "#c9c9c9"}
_PEER = "#8a9bb0"
_WIDTH, _PANEL, _LABEL, _ROW, _HEAD = 1000, 480, 150, 26, 58


def draw(figures: list[Figure], titles: dict[str, str], number) -> str:
    chosen = [figure for key in _FIGURES for figure in figures if figure.key == key]
    parts, top = [], 20
    for left, right in zip(chosen[::2], [*chosen[1::2], None], strict=False):
        height = _HEAD + _ROW * max(len(figure.values) for figure in (left, right) if figure)
        for figure, x in ((left, 10), (right, 10 + _WIDTH // 2)):
            if figure:
                parts += _panel(figure, x, top, titles, number)
        top += height + 14
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top}" font-family="system-ui, sans-serif">'
        f'<rect width="{_WIDTH}" height="{top}" fill="#ffffff"/>'
    )
    return "\n".join([head, *parts, "</svg>"]) + "\n"


def _panel(figure: Figure, x: int, top: int, titles: dict[str, str], number) -> list[str]:
    better = "longer is better" if figure.higher_is_better else "shorter is better"
    title = escape(_FIGURES[figure.key])
    parts = [
        f'<text x="{x}" y="{top + 16}" font-size="14" font-weight="600" fill="#1b1b1b">{title}</text>',
        f'<text x="{x}" y="{top + 34}" font-size="12" fill="#666666">{escape(figure.unit)}, {better}</text>',
    ]
    medians = {name: figure.median(name) for name in figure.values}
    widest, room = max(medians.values()), _PANEL - _LABEL - 70
    if "drawbridge" in medians:
        widest = min(widest, _LONGEST * medians["drawbridge"])
    order = sorted(medians, key=medians.get, reverse=figure.higher_is_better)
    for row, name in enumerate(order):
        y, length = top + _HEAD - 10 + row * _ROW, max(1.0, min(1, medians[name] / widest) * room)
        colour = _COLOURS.get(name, _PEER)
        weight = "600" if name == "drawbridge" else "400"
        parts += [
            f'<text x="{x + _LABEL - 8}" y="{y + 14}" font-size="13" font-weight="{weight}" fill="#1b1b1b" '
            f'text-anchor="end">{escape(titles.get(name, name))}</text>',
            f'<rect x="{x + _LABEL}" y="{y}" width="{length:.1f}" height="{_ROW - 7}" rx="2" fill="{colour}"/>',
            f'<text x="{x + _LABEL + length + 6:.1f}" y="{y + 14}" font-size="12" fill="#1b1b1b">'
            f"{number(medians[name])}</text>",
        ]
        if medians[name] > widest:
            middle = x + _LABEL + length * 0.8
            parts.append(f'<path d="M{middle:.1f} {y - 1}l6 0l-8 {_ROW - 5}l-6 0z" fill="#ffffff"/>')
    return parts
