"""Figures and targets, with medians, spreads, and ratios of adjacent runs."""

import statistics
from dataclasses import dataclass, field


@dataclass
class Target:
    """A limit on Drawbridge's figure: absolute, or relative to another subject's figure."""

    relation: str
    bound: float
    against: str | None = None

    def is_met(self, reached: float) -> bool:
        return reached >= self.bound if self.relation == "≥" else reached <= self.bound


@dataclass
class Runs:
    """Number of runs behind a median, and the number of quiet runs among them."""

    total: int = 0
    quiet: int = 0

    def __add__(self, other: "Runs") -> "Runs":
        return Runs(self.total + other.total, self.quiet + other.quiet)

    def __str__(self):
        return f"{self.quiet} of {self.total}"


@dataclass
class Series:
    """Values by name, one per run, in the order of the runs."""

    values: dict[str, list[float]] = field(default_factory=dict, kw_only=True)
    runs: dict[str, Runs] = field(default_factory=dict, kw_only=True)

    def add(self, name: str, value: float):
        self.values.setdefault(name, []).append(value)

    def median(self, name: str) -> float:
        return statistics.median(self.values[name])

    def lengths(self) -> dict[str, int]:
        return {name: len(values) for name, values in self.values.items()}

    def forget_since(self, lengths: dict[str, int]):
        """Removes the values that were added since `lengths` was taken."""
        for name, values in self.values.items():
            del values[lengths.get(name, 0) :]

    def count_run_since(self, lengths: dict[str, int], *, is_quiet: bool):
        """Counts a run for each name with a value that was added since `lengths` was taken."""
        for name, values in self.values.items():
            if len(values) > lengths.get(name, 0):
                self.runs[name] = self.runs.get(name, Runs()) + Runs(1, int(is_quiet))


@dataclass
class Figure(Series):
    """One measured quantity, with one value per run for each subject."""

    key: str
    title: str
    unit: str
    higher_is_better: bool
    targets: list[Target] = field(default_factory=list)
    #: Remarks on single values, by subject.
    remarks: dict[str, str] = field(default_factory=dict)
    #: Names of subjects that only this figure has.
    titles: dict[str, str] = field(default_factory=dict)

    def ratio(self, subject: str, own: str = "drawbridge") -> float:
        """Median of the ratios of adjacent runs. It cancels the drift of the machine's speed."""
        pairs = zip(self.values[own], self.values[subject], strict=False)
        return statistics.median(ours / theirs for ours, theirs in pairs if theirs > 0)

    def reached(self, target: Target, own: str = "drawbridge") -> float | None:
        if own not in self.values or (target.against and target.against not in self.values):
            return None
        return self.ratio(target.against, own) if target.against else self.median(own)


@dataclass
class Growth(Series):
    """A cost of Drawbridge at several sizes. The cost should not grow with the size."""

    title: str
    unit: str
    #: Limit on the ratio between the last size and the first size.
    target: Target | None = None
    key: str = ""

    def sort(self) -> "Growth":
        """Sorts the values by size. The name of a size begins with a number."""
        self.values = dict(sorted(self.values.items(), key=lambda item: int(item[0].split()[0].replace(",", ""))))
        return self

    def medians(self) -> dict[str, float]:
        return {size: self.median(size) for size in self.values}

    def ratio(self) -> float:
        """Ratio between the last size and the first size: the median of adjacent runs."""
        first, *_, last = self.values.values()
        return statistics.median(later / earlier for earlier, later in zip(first, last, strict=False))
