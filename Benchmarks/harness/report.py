"""RESULTS.md: one table of targets, then a table a figure."""

import os
import platform
import re
import subprocess
from datetime import date
from pathlib import Path

from .processes import PROJECT
from .results import Figure, Target


def number(value: float) -> str:
    """Three significant digits, with thousands separated."""
    if value >= 1000:
        digits = len(str(int(value))) - 3
        return f"{round(value, -digits):,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def render(figures: list[Figure], cores, subjects, absent, *, is_short, seconds) -> str:
    titles = {kind.name: kind.title for kind in subjects}
    lines = ["# Results", "", _machine(cores, is_short, seconds), ""]
    lines += [f"{title} is not among them: the machine lacked {what}." for title, what in absent.items()]
    lines += ["", "## Targets", "", "| measure | target | reached | |", "| --- | --- | --- | --- |"]
    for figure in figures:
        for target in figure.targets:
            row = _target_row(figure, target, titles)
            if row:
                lines.append(row)
    for figure in figures:
        lines += _section(figure, titles)
    return "\n".join(lines) + "\n"


def _machine(cores, is_short, seconds) -> str:
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    revision = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=PROJECT, capture_output=True, text=True
    ).stdout.strip()
    return (
        f"{date.today()}, revision {revision}, {'short form, ' if is_short else ''}{seconds / 60:.0f} minutes. "
        f"{model.group(1) if model else platform.processor()}, {os.cpu_count()} cores, Linux {platform.release()}; "
        f"{len(cores.server)} for the server, {len(cores.load)} for the load (clients, upstream), over the loopback. "
        "Medians of interleaved runs. A ratio is the median of the ratios of neighbouring runs: "
        "the machine's speed drifts, and only ratios within one run mean much."
    )


def _target_row(figure: Figure, target: Target, titles) -> str | None:
    reached = figure.reached(target)
    if reached is None:
        return None
    if target.against:
        wanted = f"{target.relation} {number(target.bound)} × {titles[target.against]}"
        got = f"{number(reached)} ×"
    else:
        wanted, got = f"{target.relation} {number(target.bound)} {figure.unit}", f"{number(reached)} {figure.unit}"
    verdict = "met" if target.is_met(reached) else f"**missed** by {abs(reached / target.bound - 1):.0%}"
    return f"| {figure.title} | {wanted} | {got} | {verdict} |"


def _section(figure: Figure, titles) -> list[str]:
    better = "more is better" if figure.higher_is_better else "less is better"
    lines = ["", f"### {figure.title[0].upper()}{figure.title[1:]} ({figure.unit}, {better})", ""]
    lines += ["| | median | least – greatest | Drawbridge to it | |", "| --- | ---: | ---: | ---: | --- |"]
    for name, values in figure.values.items():
        ratio = "" if name == "drawbridge" or "drawbridge" not in figure.values else f"{number(figure.ratio(name))} ×"
        spread = f"{number(min(values))} – {number(max(values))}" if len(values) > 1 else ""
        lines.append(
            f"| {titles.get(name, name)} | {number(figure.median(name))} | {spread} | {ratio} | "
            f"{figure.remarks.get(name, '')} |"
        )
    return lines
