"""The report as Markdown: what comes first, and that no text breaks it."""

import re

import pytest
import reports
from reports import HOSTILE, made, report

from adprotocol.conformance._reports import written
from adprotocol.conformance._run.result import EXPECTED, FAIL, NOT_APPLICABLE

HEADINGS = [
    "# Conformance of toyad 1.2",
    "## Support matrix",
    "## Problems with the harness or the divergences: 1",
    "## Silently wrong: 1",
    "## Fail: 2",
    "## Expected failures: 2",
    "## Capabilities: 3 of 4",
    "## Slowest, of 2.5 s",
    "## Every scenario: 10",
]


def tables(text):
    """The rows of each table, the rule below the head left out, as lists of cells; what stands in code is no table."""
    found, fence, rows = [], "", []
    for row in [*text.split("\n"), ""]:
        mark = re.match("`{3,}", row)
        if mark and (not fence or row == fence):
            fence = "" if fence else mark[0]
        elif row.startswith("| ") and not fence:
            rows.append(re.split(r"(?<!\\)\|", row)[1:-1])
        elif rows and not row.startswith("|"):
            found, rows = [*found, [rows[0], *rows[2:]]], []
    return found


def test_the_parts_come_in_the_order_of_what_matters():
    rows = written.to_markdown(reports.mixed()).splitlines()
    assert [row for row in rows if re.match("##? ", row)] == HEADINGS


def test_the_contents_come_first_and_each_leads_to_its_heading():
    text = written.to_markdown(reports.mixed())
    found = re.findall(r"(?m)^- \[(.*)\]\(#(.*)\)$", text)
    assert [f"## {heading}" for heading, _ in found] == HEADINGS[1:]
    assert text.index("- [Every scenario: 10](#every-scenario-10)") < text.index("| level |") < text.index("## ")
    # As GitHub and MyST make them.
    assert [anchor for _, anchor in found] == [
        "support-matrix",
        "problems-with-the-harness-or-the-divergences-1",
        "silently-wrong-1",
        "fail-2",
        "expected-failures-2",
        "capabilities-3-of-4",
        "slowest-of-25-s",
        "every-scenario-10",
    ]


def test_what_one_fault_explains_is_one_entry():
    text = written.to_markdown(reports.broken()).split("## Every scenario")[0]
    fail = text.split("\n## Fail: 9\n")[1].split("\n## ")[0]
    assert re.findall("### .*", fail) == ["### ✗ `cond/ran` and 6 more", "### ✗ `cond/other-1` and 1 more"]
    assert fail.count("- **found**: not run: grad of the harness is broken: RuntimeError") == 1
    assert (
        "<details><summary>The same in 6 more</summary>\n\n"
        "`cond/s0`, `cond/s1`, `cond/s2`, `cond/s3`, `cond/stop`, `trainable/s`\n\n</details>\n"
    ) in fail
    assert fail.count("To reproduce, paste into Python") == 2
    # The problem, its state among the capabilities, and the entry.
    assert text.count("no tape at 0x7f01") == 3


def test_expected_failures_of_one_message_are_one_row():
    text = written.to_markdown(reports.silent(3))
    assert "| `cond/w0`, `cond/w1`, `cond/w2` | MUST, rule W1, since 0.1 | it went wrong |" in text


def test_a_remedy_shows_its_code():
    assert "*An error.* Remedy: Ask outside, by `within_gradient(x)`.\n" in written.to_markdown(reports.stranger())


def test_the_summary_counts_outcomes_by_level():
    assert [[cell.strip() for cell in row] for row in tables(written.to_markdown(reports.mixed()))[0]] == [
        ["level", "ran", "silently wrong", "crashed", "fail", "expected failure", "pass", "n/a"],
        ["MUST", "6 of 8", "**!! 1**", "-", "**✗ 1**", "2", "2", "2"],
        ["SHOULD", "1 of 1", "0", "-", "-", "-", "1", "-"],
        ["MAY", "1 of 1", "0", "-", "**✗ 1**", "-", "-", "-"],
        ["all", "8 of 10", "**!! 1**", "-", "**✗ 2**", "2", "3", "2"],
    ]


def test_that_nothing_is_silently_wrong_is_said():
    text = written.to_markdown(report(made()))
    assert "## Silently wrong: 0\n\nNone of the 1 scenarios that ran gave a wrong answer with no error.\n" in text


def test_a_failure_has_its_repro_in_a_block_to_unfold():
    text = written.to_markdown(reports.mixed())
    assert (
        "<details><summary>To reproduce, paste into Python</summary>\n\n"
        "```python\nimport adprotocol\nprint(adprotocol)\n```\n\n</details>\n"
    ) in text


def test_an_expected_failure_has_the_reason_of_its_divergence_without_comments_for_tests():
    text = written.to_markdown(reports.mixed())
    assert (
        "### Checkpoint by *two* runs\n\n*An error.* Remedy: Ask outside.\n\nThe first run records `nothing`." in text
    )
    assert "### Only one level\n\n*A wrong answer, with no error.*" in text
    assert "```\nprint(1 < 2)\n```" in text
    assert "raises:" not in text


def test_every_scenario_has_a_row():
    text = written.to_markdown(reports.mixed())
    every = text.split("## Every scenario")[1]
    assert {row[0].strip().strip("`") for table in tables(every) for row in table[1:]} == {
        result.id for result in reports.mixed().results
    }
    assert "| `within_gradient/staged` | SHOULD | W1 | ✓ pass (staged) | 1.5 s |" in every
    assert "<summary>cond: 1 of 3 ran: 1 pass, 2 n/a</summary>" in every


@pytest.mark.parametrize("build", [reports.mixed, reports.hostile, reports.all_absent, report])
def test_the_rows_of_a_table_have_as_many_cells_as_its_head(build):
    found = tables(written.to_markdown(build()))
    assert found
    for rows in found:
        assert {len(row) for row in rows} == {len(rows[0])}


def test_hostile_text_stays_text():
    pytest.importorskip("markdown_it")
    from markdown_it import MarkdownIt

    text = written.to_markdown(reports.hostile())
    html = MarkdownIt("commonmark").enable("table").render(text)
    assert "<script" not in html
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", html)
    # All headings of the report are there still: nothing was swallowed, and nothing was added.
    headings = re.findall("<h2>(.*?)</h2>", html)
    assert headings == [re.sub("^## ", "", heading) for heading in _hostile_headings()]
    assert html.count("<details>") == html.count("</details>")
    # Nothing is bold or a link but what the report makes so, and the author of a divergence.
    assert "<strong>bold</strong>" not in html.split("<h2>Expected")[0]
    assert html.count("<a ") == len(headings)
    assert html.count('<a href="#') == len(headings)


def _hostile_headings():
    counts = {"## Fail: 2": "## Fail: 1", "## Capabilities: 3 of 4": "## Capabilities: 1 of 2"}
    counts["## Every scenario: 10"] = "## Every scenario: 6"
    return [counts.get(heading, heading) for heading in HEADINGS[1:]]


def test_a_fence_is_longer_than_any_in_the_text():
    assert written.fenced("a\n````\nb\n\n", "python") == "`````python\na\n````\nb\n`````"


def test_what_is_escaped():
    assert written.escape_markdown("a|b <i>*_`[x]` ~$#\n&") == r"a\|b &lt;i&gt;\*\_\`\[x\]\` \~\$\# &amp;"
    assert written.code("within_gradient/grad") == "`within_gradient/grad`"
    assert written.code("a|b") == r"a\|b"
    assert written.code("a`b") == r"a\`b"


def test_html_of_a_divergence_swallows_nothing_and_code_stays_code():
    known = reports.divergence(text="<!-- open `a < b` <details>", title="`x < y`")
    text = written.to_markdown(report(made(outcome=EXPECTED, divergence="two-runs"), divergences=(known,)))
    assert "&lt;!-- open `a < b` &lt;details>" in text
    assert "### `x < y`" in text


def test_a_failure_that_does_not_fail_the_suite_says_so():
    text = written.to_markdown(report(made(), made("cond/dull", FAIL, level="MAY")))
    assert "**PASS**" in text
    assert "- **level**: MAY, rule W1, since 0.1; it does not fail the suite\n" in text
    assert "| `cond/dull` | MAY | W1 | ✗ fail | 250 ms |" in text


def test_nothing_selected_is_said():
    text = written.to_markdown(report(total=9))
    assert "**FAIL**: 0 of 0 scenarios ran (selected from 9): nothing." in text
    assert text.endswith("## Every scenario: 0\n\nNone ran.\n")


def test_a_long_message_is_whole():
    assert "x" * 5000 in written.to_markdown(reports.hostile())
    assert HOSTILE not in written.to_markdown(reports.hostile())


def test_a_pass_in_spite_of_wrong_answers_says_so():
    assert "\n**PASS, with 2 answers declared silently wrong**: 4 of 4 " in written.to_markdown(reports.silent(2))


def test_what_could_not_run_is_not_counted_as_run():
    text = written.to_markdown(reports.blocked())
    assert tables(text)[0][-1][1].strip() == "1 of 5"
    assert "<summary>cond: 0 of 4 ran: 3 fail, 1 n/a</summary>" in text
    assert "| `cond/s0` | MUST | W1 | **✗ fail** | - |" in text
    assert "None of the 1 scenarios that ran" in text


def test_what_no_scenario_shows_is_declared_to_unfold():
    text = written.to_markdown(reports.also())
    part = text.split("## Also declared: 2\n")[1].split("\n## ")[0]
    assert part.count("<details>") == part.count("</details>") == 2
    assert (
        "<details><summary>A <code>_callback</code> &lt;pure&gt;; remedy: Use the *other*</summary>\n\n"
        "*An error.*\n\nThe first run records `nothing`."
    ) in part
    assert "<summary>Elsewhere</summary>\n\n*An error.*\n" in part
    assert "## Also declared" not in written.to_markdown(reports.mixed())


def test_the_line_to_unfold_is_html_in_which_nothing_is_escaped_twice():
    text = written.to_markdown(reports.mixed())
    assert "<summary>within_gradient: 4 of 4 ran: " in text


def test_a_reason_of_its_own_names_its_scenarios():
    many = [made(f"cond/n{i}", NOT_APPLICABLE, message="it refuses") for i in range(5)]
    text = written.to_markdown(report(made(), *many))
    assert "| other |  | it refuses: `cond/n0`, `cond/n1`, `cond/n2` and 2 more | 5 |" in text
    assert "the system itself refuses the nesting" in text


def test_an_interrupted_run_is_no_problem_of_the_harness():
    text = written.to_markdown(reports.interrupted())
    assert "\n## Problems: 1\n\n- **run**: interrupted after 1 of 3\n" in text
    assert "harness or the divergences" not in text
