#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_rooms.py finds what is wrong with a small checkout, and nothing where nothing is."""
import os, subprocess, sys, tempfile, unittest

CHECK = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'check_rooms.py')


def check(files, rooms):
    with tempfile.TemporaryDirectory() as root:
        for path, text in {**files, 'rooms.txt': rooms}.items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), 'w') as out: out.write(text)
        subprocess.run(['git', 'init', '-q', root], check=True)
        done = subprocess.run([sys.executable, CHECK, root, os.path.join(root, 'rooms.txt')], capture_output=True, text=True)
        return done.returncode, done.stdout


LOW, HIGH = '#include "pagefuse/base/low.h"\n', '#include "pagefuse/top/high.h"\n'


class CheckRooms(unittest.TestCase):
    def test_includes_of_rooms_above_are_in_order(self):
        self.assertEqual(check({'base/low.h': '', 'top/high.h': LOW}, 'base\ntop\n'), (0, '0 lines against the order of 2 rooms\n'))

    def test_an_include_of_a_room_below_is_found(self):
        status, told = check({'base/low.h': HIGH, 'top/high.h': ''}, 'base\ntop\n')
        self.assertEqual(status, 1)
        self.assertIn('base/low.h:1: base may not include top', told)

    def test_an_include_that_is_no_path_is_found(self):
        status, told = check({'base/low.h': '#include "pagefuse/lower/low.h"\n'}, 'base\n')
        self.assertEqual(status, 1)
        self.assertIn('base/low.h:1: there is no file lower/low.h', told)

    def test_a_file_outside_of_the_rooms_is_found(self):
        status, told = check({'base/low.h': '', 'base/attic/old.h': ''}, 'base\n')
        self.assertEqual(status, 1)
        self.assertIn('base/attic/old.h: "base/attic" is no room of the list', told)

    def test_a_room_without_sources_is_found(self):
        status, told = check({'base/low.h': ''}, 'base\ncellar\n')
        self.assertEqual(status, 1)
        self.assertIn('rooms: "cellar" has no source', told)


if __name__ == '__main__': unittest.main()
