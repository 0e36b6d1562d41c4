"""The blocks of docs/performance.md: python3 -m unittest discover -s benches -p '*_test.py'"""

import sys
import unittest
from unittest import mock

import core
import core_page as page

INTRO = "# Performance\n\n## A large backlog\n\nOf two\nlines.\n"
BEHIND = "\n### Earlier runs\n\nBy hand.\n\n## On your machine\n"


def names(text):
    return [it["name"] for it in page.BLOCK.finditer(text)]


class Blocks(unittest.TestCase):
    def placed(self, *blocks):
        text = INTRO + BEHIND
        for name, figures in blocks:
            text = page.placed(text, name, figures)
        # All that is written by hand stays.
        self.assertTrue(text.startswith(INTRO) and text.endswith(BEHIND), text)
        return text

    def test_the_first_block_comes_after_the_first_paragraph(self):
        text = self.placed(("1,000,000 messages", "12 ms"))
        block = (
            "\n<!-- Begin of run core: 1,000,000 messages -->\n\n### 1,000,000 messages\n\n12 ms\n\n"
            "<!-- End of run core: 1,000,000 messages -->\n"
        )
        self.assertEqual(text, INTRO + block + BEHIND)

    def test_sizes_come_by_number_and_other_builds_after_them(self):
        blocks = ["beside kew 0.1.0", "10,000,000 messages", "100,000,000 messages", "beside kew 0.2.0"]
        text = self.placed(*((name, "") for name in [*blocks, "1,000,000 messages"]))
        sizes = ["1,000,000 messages", "10,000,000 messages", "100,000,000 messages"]
        self.assertEqual(names(text), [*sizes, "beside kew 0.1.0", "beside kew 0.2.0"])

    def test_a_block_replaces_its_own_and_no_other(self):
        text = self.placed(("1,000 messages", "old"), ("2,000 messages", "other"), ("1,000 messages", "new"))
        self.assertEqual(names(text), ["1,000 messages", "2,000 messages"])
        self.assertTrue("new" in text and "other" in text and "old" not in text, text)

    def test_a_backslash_is_a_backslash(self):
        self.assertIn("\\1 \\n", self.placed(("1,000 messages", ""), ("1,000 messages", "\\1 \\n")))

    def test_text_behind_a_lost_end_marker_is_not_replaced(self):
        text = self.placed(("1,000 messages", ""))
        for lost in ["End", "Begin"]:
            broken = text.replace(f"<!-- {lost} of run core: 1,000 messages -->\n", "")
            with self.assertRaises(SystemExit):
                page.placed(broken, "1,000 messages", "")

    def test_the_page_has_room(self):
        page.check()


class Builds(unittest.TestCase):
    def test_a_block_names_the_builds_before_the_run(self):
        command = ["--kew", sys.executable, "--paired", sys.executable, "--paired-commit", "theirs"]
        with mock.patch.multiple(page, tree=lambda: "1111111", short=lambda _: "2222222", version=lambda _: "kew 1"):
            options = core.parse_options(command)
        # Meanwhile the operator works in the same tree, and builds.
        changed = "3333333 with changes"
        with mock.patch.multiple(page, tree=lambda: changed, short=lambda _: changed, version=lambda _: changed):
            _, backlog = page.backlog(options, [], {})
            name, pairs = page.pairs(options, [], [])
        self.assertEqual(name, "beside kew 1 at commit 2222222")
        for text in [backlog, pairs]:
            self.assertTrue("commit 1111111 (kew 1," in " ".join(text.split()) and "3333333" not in text, text)

    def test_a_block_names_no_directory_of_a_machine(self):
        arguments = ["--paired", "/home/me/old/kew", "--kew=/opt/kew", "--bin", "../old/bin", "--rounds", "5"]
        expected = "benches/run core --paired kew --kew=kew --bin ../old/bin --rounds 5"
        self.assertEqual(page.command_line(arguments), expected)
        with mock.patch.multiple(page, tree=lambda: "1111111", short=lambda _: "2222222", version=lambda _: "kew 1"):
            options = core.parse_options(["--kew", "/opt/new/kew", "--paired", "/opt/old/kew-before"])
        _, pairs = page.pairs(options, arguments, [])
        for build in ["with the binary `kew` and", "the binary `kew-before`"]:
            self.assertIn(build, " ".join(pairs.split()))


if __name__ == "__main__":
    unittest.main()
