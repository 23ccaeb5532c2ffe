"""The cases of the Autobahn TestSuite for Python 3, from its package on PyPI.

The suite is written for Python 2.7, whose strings are bytes. Its sources are therefore read as Latin-1, so that each
character of a string is the original byte. The substitutions below replace expressions that differ in Python 3. The
project contains no copy of the suite, and does not alter it on disk.
"""

import importlib
import importlib.abc
import importlib.util
import re
import sys
import types
from pathlib import Path

_SUBSTITUTIONS = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        # Self-tests of the suite print; its cases do not.
        (r"(?m)^( *)print\b.*$", r"\1pass"),
        # In Python 3, every class is an `object`.
        (r"\(object, Case, \)", "(Case, )"),
        (r"\bxrange\b", "range"),
        (r"\bbinascii\.b2a_hex\(", "hexadecimal("),
        (r"(?m)\bv\.validate\((.*)\)$", r"v.validate(octets(\1))"),
        # In Python 2, a division of integers results in an integer.
        (r"len\(self\.payload\) / ", "len(self.payload) // "),
        # Names of the 'autobahn' library that have changed.
        (r"\b(accept|request)NoContextTakeover\b", r"\1_no_context_takeover"),
        (r"\b(accept|request)MaxWindowBits\b", r"\1_max_window_bits"),
        # The module is not among the cases, and needs Twisted.
        (r"(?m)^from case9_9_1 import \*$", ""),
    )
]


def octets(string):
    """The bytes of a string of the suite."""
    return string if isinstance(string, bytes) else string.encode("latin-1")


def string(octets):
    """The string that the suite uses for these bytes."""
    return octets.decode("latin-1")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the suite's modules, which import each other by their bare names."""

    def __init__(self, folder):
        self._folder = folder

    def _file(self, name):
        return self._folder / f"{'__init__' if name == 'cases' else name}.py"

    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self) if self._file(name).exists() else None

    def exec_module(self, module):
        file = self._file(module.__name__)
        source = file.read_text(encoding="latin-1")
        for pattern, replacement in _SUBSTITUTIONS:
            source = pattern.sub(replacement, source)
        module.octets = octets
        module.hexadecimal = lambda string: octets(string).hex()
        exec(compile(source, file, "exec"), module.__dict__)


def load():
    """The suite's cases by their numbers."""
    # The package is found but not imported, since an import works on Python 2 only.
    suite = Path(importlib.util.find_spec("autobahntestsuite").origin).parent
    # The suite uses one function of setuptools, which is not needed otherwise.
    resources = types.ModuleType("pkg_resources")
    resources.resource_filename = lambda package, name: str(suite / name)
    sys.modules["pkg_resources"] = resources
    sys.meta_path.insert(0, _Finder(suite / "case"))
    cases = importlib.import_module("cases")
    # The suite compares pickles. They differ if equal strings are not the same object.
    cases.Case.compare = lambda self, first, second: first == second
    return {case.__name__.removeprefix("Case").replace("_", "."): case for case in cases.Cases}
