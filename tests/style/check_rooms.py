#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the includes of the product to the order of its rooms.

    check_rooms.py [ROOT [ROOMS]]

ROOT is a checkout, ROOMS the list of rooms from the ground up (rooms.txt beside this file): a file includes files of its own room and
of rooms above it in the list. Every source of the product lies in a room of the list, every room of the list has a source, and
"pagefuse/X" is the file X. Prints each line that breaks this; exit status 1 if there is one."""
import os, re, subprocess, sys

INCLUDE = re.compile(r'\s*#\s*include\s+"([^"]+)"')
# The C header of plug-ins is installed as it lies, and so has an include root of its own.
OTHER_ROOTS = {'pagefuse/plugin.h': 'plugin/include/pagefuse/plugin.h'}


def rooms_of(path):
    lines = (line.split('#')[0].split() for line in open(path))
    return [line[0] for line in lines if line]


def target_of(include, known):
    """The file of the project that is included; None for one of a library; '' where there is no such file."""
    if include in OTHER_ROOTS: return OTHER_ROOTS[include]
    if include.startswith('pagefuse/'):
        path = include.removeprefix('pagefuse/')
        return path if path in known else ''
    return include if include in known else None


def broken_lines(root, rooms):
    listing = subprocess.run(['git', '-C', root, 'ls-files', '-co', '--exclude-standard', '*.cc', '*.cu', '*.h', '*.inc'], capture_output=True,
                             text=True, check=True).stdout
    known = {path for path in listing.split() if os.path.exists(os.path.join(root, path))}
    place = {room: i for i, room in enumerate(rooms)}
    tops = {room.split('/')[0] for room in rooms}
    sources = sorted(path for path in known if path.split('/')[0] in tops)
    for room in sorted(set(rooms) - {os.path.dirname(path) for path in sources}):
        yield f'rooms: "{room}" has no source'
    for path in sources:
        room = os.path.dirname(path)
        if room not in place:
            yield f'{path}: "{room}" is no room of the list'
            continue
        for number, line in enumerate(open(os.path.join(root, path), errors='replace'), 1):
            found = INCLUDE.match(line)
            target = target_of(found[1], known) if found else None
            if target == '':
                yield f'{path}:{number}: there is no file {found[1].removeprefix("pagefuse/")}'
            elif target is not None and place.get(os.path.dirname(target), len(rooms)) > place[room]:
                yield f'{path}:{number}: {room} may not include {os.path.dirname(target)}'


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, '..', '..')
    rooms = rooms_of(sys.argv[2] if len(sys.argv) > 2 else os.path.join(here, 'rooms.txt'))
    broken = list(broken_lines(root, rooms))
    print(*broken, f'{len(broken)} lines against the order of {len(rooms)} rooms', sep='\n')
    sys.exit(1 if broken else 0)


if __name__ == '__main__': main()
