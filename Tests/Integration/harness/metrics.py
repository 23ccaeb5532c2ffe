"""The text format of Prometheus, read strictly: a malformed line fails the test that reads it."""

import re

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'
_SAMPLE = re.compile(rf"({_NAME})(?:\{{((?:{_LABEL}(?:,{_LABEL})*)?)\}})? (NaN|[+-]Inf|[-+0-9.eE]+)(?: \d+)?")
_COMMENT = re.compile(rf"# (?:HELP ({_NAME}) .+|TYPE ({_NAME}) (?:counter|gauge|histogram|summary|untyped))")


class Metrics:
    """Samples by name and labels, without `session="default"`; `metrics["name"]` is the sum over all label values."""

    def __init__(self, text):
        assert text.endswith("\n"), "the last line must end with a line feed"
        self.samples = {}
        self.types = set()
        for line in text.splitlines():
            if not line:
                continue
            if line.startswith("#"):
                comment = _COMMENT.fullmatch(line)
                assert comment, f"neither HELP nor TYPE: {line!r}"
                if comment[2]:
                    assert comment[2] not in self.types, f"two TYPE lines for {comment[2]}"
                    self.types.add(comment[2])
                continue
            sample = _SAMPLE.fullmatch(line)
            assert sample, f"not a sample: {line!r}"
            labels = (sample[2] or "").removeprefix('session="default"').removeprefix(",")
            key = (sample[1], labels)
            assert key not in self.samples, f"the same sample twice: {line!r}"
            self.samples[key] = float(sample[3])

    def __getitem__(self, name):
        found = [value for (sample, _), value in self.samples.items() if sample == name]
        if not found:
            raise KeyError(f"{name}; there are {sorted({sample for sample, _ in self.samples})}")
        return sum(found)
