"""Figures, the targets they are held against, and the arithmetic of both: medians, spreads, and ratios pair by pair."""

import statistics
from dataclasses import dataclass, field


@dataclass
class Target:
    """A bound on Drawbridge's figure: absolute, or as a ratio to another subject's."""

    relation: str
    bound: float
    against: str | None = None

    def is_met(self, reached: float) -> bool:
        return reached >= self.bound if self.relation == "≥" else reached <= self.bound


@dataclass
class Figure:
    """One thing that was measured, for every subject: a value a run, in the order of the runs."""

    key: str
    title: str
    unit: str
    higher_is_better: bool
    values: dict[str, list[float]] = field(default_factory=dict)
    targets: list[Target] = field(default_factory=list)
    #: What a reader must know of single values, by subject.
    remarks: dict[str, str] = field(default_factory=dict)
    #: Names of subjects that only this figure has.
    titles: dict[str, str] = field(default_factory=dict)

    def add(self, subject: str, value: float):
        self.values.setdefault(subject, []).append(value)

    def median(self, subject: str) -> float:
        return statistics.median(self.values[subject])

    def ratio(self, subject: str, own: str = "drawbridge") -> float:
        """Median of the ratios of runs that stood next to each other, so that the machine's drift falls out."""
        pairs = zip(self.values[own], self.values[subject], strict=False)
        return statistics.median(ours / theirs for ours, theirs in pairs if theirs > 0)

    def reached(self, target: Target, own: str = "drawbridge") -> float | None:
        if own not in self.values or (target.against and target.against not in self.values):
            return None
        return self.ratio(target.against, own) if target.against else self.median(own)


@dataclass
class Growth:
    """The same cost of Drawbridge at several sizes of something that should not matter, or should help."""

    title: str
    unit: str
    sizes: dict[str, list[float]] = field(default_factory=dict)

    def add(self, size: str, value: float):
        self.sizes.setdefault(size, []).append(value)

    def medians(self) -> dict[str, float]:
        return {size: statistics.median(values) for size, values in self.sizes.items()}
