"""RESULTS.md: a table of targets, then a table per figure."""

import os
import platform
import re
import subprocess
from datetime import date
from pathlib import Path

from .interference import QUIET
from .notes import note
from .processes import PROJECT
from .results import Figure, Growth, Runs, Target


def number(value: float) -> str:
    """Three significant digits, with thousands separated."""
    if value >= 1000:
        digits = len(str(int(value))) - 3
        return f"{round(value, -digits):,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def quiet(runs: Runs, repeated: int) -> str:
    """The number of quiet runs, as a sentence."""
    return (
        f"{runs.quiet} of {runs.total} runs were quiet: other processes used less than {QUIET:.0%} of the server's "
        f"cores and less than {QUIET:.0%} of the load's. {repeated} further runs were not quiet and were repeated."
    )


def render(figures: list[Figure], growths: list[Growth], cores, titles, absent, quiet, *, is_short, seconds) -> str:
    lines = ["# Results", "", "Written by `make bench`; [README.md](README.md) explains the method.", ""]
    lines += [_machine(cores, is_short, seconds), "", quiet, ""]
    lines += [f"{title} was not measured. It needs {what}.\n" for title, what in absent.items()]
    lines += ["![The main figures as bar charts](results.svg)", ""]
    lines += _targets(figures, growths, titles)
    if growths:
        lines += _growth(growths)
    if figures:
        lines += ["", "## All figures"]
    for figure in figures:
        lines += _section(figure, {**titles, **figure.titles})
    return "\n".join(lines) + "\n"


def judge(figures: list[Figure], growths: list[Growth]) -> tuple[int, int]:
    """Numbers of targets that are met and missed. A target relative to a missing server does not count."""
    pairs = [(target, figure.reached(target)) for figure in figures for target in figure.targets]
    pairs += [(growth.target, growth.ratio()) for growth in growths if growth.target]
    verdicts = [target.is_met(reached) for target, reached in pairs if reached is not None]
    return verdicts.count(True), verdicts.count(False)


def _targets(figures: list[Figure], growths: list[Growth], titles) -> list[str]:
    rows, notes = [], []
    subject = ""
    for figure in figures:
        # The title of a figure may begin with "the same". This table may lack the figure to which it refers, or have it
        # far above.
        subject = subject if figure.title.startswith("the same") else figure.title
        title = figure.title.replace("the same", subject, 1)
        for target in figure.targets:
            reached = figure.reached(target)
            if reached is None:
                continue
            rows.append(_target_row(title, figure, target, reached, {**titles, **figure.titles}))
            text = note(figure.key)
            if not target.is_met(reached) and text and text not in notes:
                notes.append(text)
    for growth in growths:
        if growth.target:
            first, *_, last = growth.values
            title = f"{growth.title}: {last} relative to {first}"
            runs = growth.runs[first] + growth.runs[last]
            rows.append(_row(title, growth.target, f"× {first}", growth.ratio(), "×", runs))
            text = note(growth.key)
            if not growth.target.is_met(growth.ratio()) and text:
                notes.append(text)
    if not rows:
        return []
    lines = [
        "## Targets",
        "",
        "| measure | target | reached | | quiet runs |",
        "| --- | --- | --- | --- | --- |",
        *rows,
    ]
    if notes:
        lines += ["", "Why targets are missed:", "", *(f"- {text}" for text in notes)]
    return lines


def _growth(growths: list[Growth]) -> list[str]:
    """Each row shows one cost at growing sizes. A ratio of 1 means that the cost is constant."""
    most = max(len(growth.values) for growth in growths)
    lines = ["", "## How cost grows", "", f"| {'| ' * most}| ratio of last to first | quiet runs |"]
    lines += [f"| --- {'| ---: ' * most}| ---: | --- |"]
    for growth in growths:
        cells = [f"{size}: {number(value)}" for size, value in growth.medians().items()]
        # The row has fewer sizes than the other rows, and lacks the smallest sizes.
        cells = [""] * (most - len(cells)) + cells
        runs = sum(growth.runs.values(), Runs())
        columns = [f"{growth.title} ({growth.unit})", *cells, f"{number(growth.ratio())} ×", _quiet_runs(runs)]
        lines.append(f"| {' | '.join(columns)} |")
    return lines


def _machine(cores, is_short, seconds) -> str:
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    revision = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=PROJECT, capture_output=True, text=True
    ).stdout.strip()
    return (
        f"{date.today()}, revision {revision}, {'short form, ' if is_short else ''}{seconds / 60:.0f} minutes. "
        f"{model.group(1) if model else platform.processor()}, {os.cpu_count()} cores, Linux {platform.release()}; "
        f"{len(cores.server)} for the server, {len(cores.load)} for the load (clients, upstream), over loopback. "
        "Values are medians of interleaved runs. A ratio is the median of the ratios of adjacent runs, "
        "because the speed of the machine drifts."
    )


def _target_row(title: str, figure: Figure, target: Target, reached: float, titles) -> str:
    runs = figure.runs.get("drawbridge", Runs())
    if target.against:
        runs += figure.runs.get(target.against, Runs())
        return _row(title, target, f"× {titles[target.against]}", reached, "×", runs)
    return _row(title, target, figure.unit, reached, figure.unit, runs)


def _row(title: str, target: Target, wanted: str, reached: float, unit: str, runs: Runs) -> str:
    verdict = "met" if target.is_met(reached) else f"**missed** by {abs(reached / target.bound - 1):.0%}"
    bound = f"{target.relation} {number(target.bound)} {wanted}"
    return f"| {title} | {bound} | {number(reached)} {unit} | {verdict} | {_quiet_runs(runs)} |"


def _quiet_runs(runs: Runs) -> str:
    """Empty for figures that do not depend on other processes, such as memory."""
    return str(runs) if runs.total else ""


def _section(figure: Figure, titles) -> list[str]:
    better = "more is better" if figure.higher_is_better else "less is better"
    lines = ["", f"### {figure.title[0].upper()}{figure.title[1:]} ({figure.unit}, {better})", ""]
    lines += [
        "| | median | minimum – maximum | Drawbridge relative to it | quiet runs | |",
        "| --- | ---: | ---: | ---: | --- | --- |",
    ]
    for name, values in figure.values.items():
        ratio = "" if name == "drawbridge" or "drawbridge" not in figure.values else f"{number(figure.ratio(name))} ×"
        spread = f"{number(min(values))} – {number(max(values))}" if len(values) > 1 else ""
        runs = _quiet_runs(figure.runs.get(name, Runs()))
        cells = [titles[name], number(figure.median(name)), spread, ratio, runs, figure.remarks.get(name, "")]
        lines.append(f"| {' | '.join(cells)} |")
    return lines
