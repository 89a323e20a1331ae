# SPDX-License-Identifier: Apache-2.0
"""Which sources of a target can be compiled as one.

  unity_groups.py KNOWN SOURCE...: prints "GROUP SOURCE" for each that can be compiled with others, up to eight of them. KNOWN is
  a file with what it printed before, if there is one: a source that is new does not move others, which would be compiled again.

A source that is compiled behind another one sees what that declares for itself, the names in its unnamed namespaces and its
macros, and what headers declare that only the other one includes. So two sources go into one group only where neither, nor a
header that it alone includes, mentions a name that is the other's own, whatever it means there. Sources that compile themselves
once for each SIMD target (Highway) stay alone. Who links an archive gets whole groups, so that sources that need a library which
most do without (LIBRARIES) have groups of their own.
"""
import functools
import os
import re
import sys

MOST = 8
LIBRARIES = {"google", "onnx"}  # folders that headers are included from: those of protobuf and ONNX, and ir/onnx, which calls them
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KEYWORDS = {"auto", "bool", "char", "const", "constexpr", "double", "enum", "float", "inline", "int", "nullptr", "operator",
            "return", "static", "template", "typename", "void"}
IDENTIFIER = r"[A-Za-z_]\w*"


def code(path):
    """The text without comments and literals."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    text = re.sub(r'R"(\w*)\(.*?\)\1"', '""', text, flags=re.S)
    text = re.sub(r"""\"(\\.|[^\"\\\n])*\"|'(\\.|[^'\\\n])'""", '""', text)
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)


def declared(line):
    """The names that a line at the margin of an unnamed namespace may declare, and a few that it only mentions."""
    match = re.match(rf"(?:class|struct|enum class|enum|union)\s+({IDENTIFIER})|using\s+(?:[\w:]*::)?({IDENTIFIER})\s*[=;]"
                     rf"|namespace\s+({IDENTIFIER})", line)
    if match:
        return set(filter(None, match.groups()))
    return set(re.findall(rf"(?<![\w:])({IDENTIFIER})\s*(?=[(={{;\[]|$)", line)) - KEYWORDS


def own_names(text):
    names = set(re.findall(rf"^\s*#\s*define\s+({IDENTIFIER})", text, flags=re.M))
    depth, unnamed = 0, None  # of braces; that of the unnamed namespace
    for line in text.split("\n"):
        if unnamed is None and line.startswith("namespace {"):
            unnamed = depth + 1
        elif line and line[0] not in " #}/)" and (depth == unnamed or line.startswith("static ")):
            names |= declared(line)
        depth += line.count("{") - line.count("}")
        if unnamed is not None and depth < unnamed:
            unnamed = None
    return names


@functools.cache
def words(path):
    return frozenset(re.findall(IDENTIFIER, code(path)))


@functools.cache
def libraries(path):
    """Those of LIBRARIES that a file includes itself."""
    with open(path, encoding="utf-8") as file:
        return LIBRARIES.intersection(re.findall(r'^#include ["<](?:pagefuse/ir/)?(\w+)/', file.read(), flags=re.M))


@functools.cache
def included(path):
    """The project's headers that a file includes, directly or not."""
    with open(path, encoding="utf-8") as file:
        names = re.findall(r'^#include "([^"]+)"', file.read(), flags=re.M)
    found = set()
    for name in names:
        below = name.removeprefix("pagefuse/")
        for header in (os.path.join(ROOT, below), os.path.join(os.path.dirname(path), name)):
            if os.path.isfile(header):
                found |= {header} | included(header)
                break
    return frozenset(found)


class Source:
    def __init__(self, path):
        text = code(path)
        self.path = path
        self.libraries = set().union(*(libraries(used) for used in {path} | included(path)))
        self.own = own_names(text)
        self.alone = "foreach_target.h" in text or "HWY_" in text or re.search(r"^using namespace", text, flags=re.M)

    def sees(self, other):
        """Whether it may take a name of the other one's own for another."""
        mentioned = {self.path} | (included(self.path) - included(other.path))
        return not all(other.own.isdisjoint(words(path)) for path in mentioned)

    def fits(self, group):
        return not self.alone and len(group) < MOST and all(self.libraries == other.libraries and not (self.sees(other) or other.sees(self))
                                         for other in group)


def read_known(path):
    """Source to group, as they were printed."""
    if not os.path.isfile(path):
        return {}
    with open(path, encoding="utf-8") as file:
        pairs = (line.split(maxsplit=1) for line in file.read().splitlines())
        return {source: int(group) for group, source in pairs}


def grouped(sources, known):
    """Number to group: the known groups without what fits no more, and new ones of what is left."""
    groups, left, new = {number: [] for number in known.values()}, [], []
    for source in sources:
        group = groups.get(known.get(source.path))
        if group is not None and source.fits(group):
            group.append(source)
        else:
            left.append(source)
    for source in left:
        if source.alone:
            continue
        group = next((group for group in new if source.fits(group)), None)
        if group is None:
            new.append(group := [])
        group.append(source)
    first = max(groups, default=-1) + 1
    return groups | dict(enumerate((group for group in new if len(group) > 1), first))


def main():
    known, *paths = sys.argv[1:]
    groups = grouped([Source(path) for path in sorted(paths)], read_known(known))
    for number, group in groups.items():
        for member in group if len(group) > 1 else ():
            print(number, member.path)


main()
