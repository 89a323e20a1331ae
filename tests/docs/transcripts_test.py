#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""transcripts_test.py PAGEFUSE: transcripts.py finds what is wrong in a page, and docs/layer.svg has the numbers of its graph.

Run in the top folder."""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

import transcripts

PAGEFUSE = os.path.abspath(sys.argv.pop(1))


def complaints(text):
    """What is wrong in a page of this text."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("models", "tests", "docs", "plugin", "dev"):
            os.symlink(os.path.abspath(name), os.path.join(folder, name))
        with open(os.path.join(folder, "page.md"), "w", encoding="utf8") as file:
            file.write(text)
        pages = transcripts.Pages(folder, PAGEFUSE)
        pages.check("page.md")
        return "\n".join(pages.wrong)


def console(command, *lines):
    return "\n".join(["```console", "$ " + command, *lines, "```", ""])


class Transcripts(unittest.TestCase):
    def test_what_a_command_prints_passes(self):
        self.assertEqual(complaints(console("echo one; echo two", "one", "two")), "")

    def test_another_number_is_found(self):
        self.assertIn("582 rewrites", complaints(console("echo 585 rewrites", "582 rewrites")))

    def test_lines_more_or_less_are_found(self):
        self.assertNotEqual(complaints(console("printf 'a\\nb\\n'", "a")), "")
        self.assertNotEqual(complaints(console("echo a", "a", "b")), "")

    def test_steps_of_a_search_are_compared(self):
        self.assertNotEqual(complaints(console("echo '1-224 equal; 1-336 differ'", "1-231 equal; 1-347 differ")), "")

    def test_times_and_rates_are_the_machines(self):
        self.assertEqual(complaints(console("echo '9 tokens, 17 a second; 0.25 s'", "9 tokens, 2523 a second; 1.5 s")), "")
        self.assertNotEqual(complaints(console("echo '9 tokens, 17 a second'", "8 tokens, 17 a second")), "")

    def test_lines_may_be_left_out_where_the_page_says_so(self):
        self.assertEqual(complaints(console("seq 5", "1", "[...]", "5")), "")
        self.assertNotEqual(complaints(console("seq 5", "1", "[...]", "6")), "")

    def test_a_command_that_is_not_run_is_found(self):
        self.assertIn("no test runs", complaints("    pagefuse inspect MODEL\n"))
        self.assertIn("no test runs", complaints("```\n$ pagefuse inspect MODEL\n```\n"))

    def test_a_script_that_fails_is_found(self):
        self.assertIn("status 1", complaints("```sh\npagefuse inspect there_is_no_model.onnx\n```\n"))

    def test_names_that_do_not_exist_are_found(self):
        self.assertIn("no command", complaints("`pagefuse inspekt MODEL` tells\n"))
        self.assertIn("has no --jsonn", complaints("`pagefuse inspect MODEL --jsonn` tells\n"))
        self.assertIn("no `./dev tset`", complaints("`./dev tset` tests\n"))
        self.assertEqual(complaints("`pagefuse inspect MODEL --json` tells\n"), "")


class Picture(unittest.TestCase):
    """A layer of models/gemma3_recall, which has six: ops outside of the layers are fewer."""

    def nodes_of_a_layer(self, model):
        told = json.loads(subprocess.run([PAGEFUSE, "inspect", model, "--json"], check=True, capture_output=True).stdout)
        # The first norm and the last one are joined with no layer before or behind: one AddNorm less.
        return sum((count + (op == "pagefuse.AddNorm")) // 6 for op, count in told["ops"].items())

    def test_has_the_numbers_of_nodes(self):
        with open("docs/layer.svg", encoding="utf8") as file:
            picture = file.read()
        model = "models/gemma3_recall/model.onnx"
        with tempfile.TemporaryDirectory() as folder:
            fused = os.path.join(folder, "fused.onnx")
            subprocess.run([PAGEFUSE, "opt", model, "-o", fused, "--no-function-bodies"], check=True, capture_output=True)
            before, after = self.nodes_of_a_layer(model), self.nodes_of_a_layer(fused)
        self.assertIn("as exported: %d nodes" % before, picture)
        self.assertIn("After the passes: %d nodes" % after, picture)
        counts = [(int(x), int(count)) for x, count in re.findall(r'class="count" x="(\d+)"[^>]*>(\d+)<', picture)]
        left = min(x for x, _ in counts)
        self.assertEqual(sum(count for x, count in counts if x == left), before)
        self.assertEqual(sum(count for x, count in counts if x != left), after)


if __name__ == "__main__":
    unittest.main()
