"""Figures and targets, with medians, spreads, and ratios of adjacent runs."""

import statistics
from dataclasses import dataclass, field


@dataclass
class Target:
    """A limit of Drawbridge's figure: absolute, or relative to another subject's."""

    relation: str
    bound: float
    against: str | None = None

    def is_met(self, reached: float) -> bool:
        return reached >= self.bound if self.relation == "≥" else reached <= self.bound


@dataclass
class Figure:
    """One measured quantity: for each subject a value per run, in the order of the runs."""

    key: str
    title: str
    unit: str
    higher_is_better: bool
    values: dict[str, list[float]] = field(default_factory=dict)
    targets: list[Target] = field(default_factory=list)
    #: Remarks on single values, by subject.
    remarks: dict[str, str] = field(default_factory=dict)
    #: Names of subjects that only this figure has.
    titles: dict[str, str] = field(default_factory=dict)

    def add(self, subject: str, value: float):
        self.values.setdefault(subject, []).append(value)

    def median(self, subject: str) -> float:
        return statistics.median(self.values[subject])

    def ratio(self, subject: str, own: str = "drawbridge") -> float:
        """Median of the ratios of adjacent runs, which cancels the drift of the machine's speed."""
        pairs = zip(self.values[own], self.values[subject], strict=False)
        return statistics.median(ours / theirs for ours, theirs in pairs if theirs > 0)

    def reached(self, target: Target, own: str = "drawbridge") -> float | None:
        if own not in self.values or (target.against and target.against not in self.values):
            return None
        return self.ratio(target.against, own) if target.against else self.median(own)


@dataclass
class Growth:
    """One cost of Drawbridge at several sizes. It should not grow with them."""

    title: str
    unit: str
    sizes: dict[str, list[float]] = field(default_factory=dict)

    def add(self, size: str, value: float):
        self.sizes.setdefault(size, []).append(value)

    def medians(self) -> dict[str, float]:
        return {size: statistics.median(values) for size, values in self.sizes.items()}
