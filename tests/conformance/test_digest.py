"""What the written reports have in common: text that is fit to be shown, and what is counted where."""

import pytest
import reports
from reports import HOSTILE, divergence, made, report

from adprotocol.conformance._reports import digest, words
from adprotocol.conformance._reports.digest import Digest
from adprotocol.conformance._run.result import EXPECTED, FAIL, NOT_APPLICABLE, PASS
from adprotocol.divergence import CORE


def test_control_characters_are_escaped_and_lines_are_kept():
    assert words.clean("a\x1b[31m\r\nb\tc\x00\u202e\udc80\x7f\rd") == "a\\x1b[31m\nb\tc\\x00\\u202e\\udc80\\x7f\\rd"
    assert words.clean("ünïcode ✓ \u221e") == "ünïcode ✓ \u221e"
    assert words.line(" a\n\n  b ") == "a b"


def test_cleaned_text_can_be_written_as_utf8():
    assert words.clean(HOSTILE).encode().isascii()


def test_a_missing_capability_counts_at_each_that_lacks_and_not_where_it_did_not_matter():
    found = report(
        made("cond/a", NOT_APPLICABLE, needs=("jit", "vmap", "grad")),
        made("cond/b", NOT_APPLICABLE, needs=("jit",)),
        made("cond/c", NOT_APPLICABLE, needs=("grad",), message="no hook"),
        made("cond/d", needs=("jit",)),
        capabilities={
            "grad": "there",
            "jit": "absent: no compiler",
            "vmap": "broken: it raised: x",
            "scan": "absent: no",
        },
    )
    assert [(lack.capability, lack.state, lack.reason, lack.scenarios) for lack in Digest(found).missing] == [
        ("jit", "absent", "no compiler", 2),
        ("vmap", "broken", "it raised: x", 1),
        ("scan", "absent", "no", 0),
    ]
    assert Digest(found).other_reasons == {"no hook": ["cond/c"]}


def test_expected_failures_are_grouped_in_the_order_of_their_divergences():
    found = report(
        made("cond/a", EXPECTED, divergence="second"),
        made("cond/b", EXPECTED, divergence="unknown"),
        made("cond/c", EXPECTED, divergence="first"),
        divergences=(divergence("first", title="The first"), divergence("second")),
    )
    groups = {name: results for name, _, results in Digest(found).expected}
    assert {name: [one.id for one in group] for name, group in groups.items()} == {
        "first": ["cond/c"],
        "second": ["cond/a"],
        "unknown": ["cond/b"],
    }
    assert list(groups) == ["first", "second", "unknown"]
    assert found.reason(found.results[2]) == "The first"
    assert found.reason(found.results[1]) == "unknown"


def test_nothing_wrong_is_not_said_without_what_is_declared_wrong():
    wrong = made("cond/a", EXPECTED, divergence="levels")
    ours = report(made(), wrong, divergences=(divergence("levels", "wrong"),))
    assert Digest(ours).none_wrong.endswith("with no error, beyond the 1 declared below.")
    assert Digest(report(made())).none_wrong == "None of the 1 scenarios that ran gave a wrong answer with no error."


def test_whose_fault_it_is_stands_beside_the_level():
    failed = [made(outcome="fail", level="MAY", cause=cause) for cause in ("plugin", "time limit")]
    said = [Digest(report(*failed)).standing(one) for one in failed]
    assert said == [
        "MAY, rule W1, since 0.1; it does not fail the suite",
        "MAY, rule W1, since 0.1; it ran out of time",
    ]


def test_the_markdown_of_a_divergence_in_blocks():
    text = "One\ntwo.\n\n% raises: Error\n\n```python\n% 3\n~~~\n```\n100 % of\n~~~\nopen"
    assert list(digest.blocks(text)) == [
        ("prose", "One\ntwo."),
        ("code", "% 3\n~~~"),
        ("prose", "100 % of"),
        ("code", "open"),
    ]
    assert list(digest.blocks("")) == []


@pytest.mark.parametrize(("value", "said"), [(0.0, "0 ms"), (0.0123, "12 ms"), (1.25, "1.2 s"), (41.2, "41.2 s")])
def test_times(value, said):
    assert words.seconds(value) == said


def test_the_head_says_what_ran_on_what():
    found = reports.report(
        made(), device="cuda:0", keywords=("jit", "W5"), level="SHOULD", plugin=None, plugin_version=None
    )
    assert Digest(found).facts == {
        "plugin": "-",
        "framework": "toyad 1.2",
        "device": "cuda:0",
        "adprotocol": "0.1.0",
        "python": "3.12.1 on Linux",
        "selection": "--level SHOULD -k jit -k W5",
    }


@pytest.mark.parametrize(
    ("found", "verdict", "kind"),
    [
        (report(made()), "PASS", PASS),
        (report(made(), made("cond/a", EXPECTED, divergence="two-runs"), divergences=(divergence(),)), "PASS", PASS),
        (reports.silent(1), "PASS, with 1 answer declared silently wrong", EXPECTED),
        (reports.silent(5), "PASS, with 5 answers declared silently wrong", EXPECTED),
        (reports.mixed(), "FAIL", FAIL),
    ],
)
def test_the_verdict_says_what_it_is_in_spite_of(found, verdict, kind):
    assert Digest(found).verdict == verdict
    assert Digest(found).verdict_outcome == kind


def test_what_no_expected_failure_shows_is_declared_also():
    assert [entry.name for entry in Digest(reports.also()).also_declared] == ["pure", "elsewhere"]
    assert Digest(reports.silent()).also_declared == []


def test_a_divergence_of_a_plugin_with_the_name_of_one_of_every_framework_is_its_own():
    theirs = divergence(CORE[0].name, title="The plugin's own")
    assert Digest(report(made(), divergences=(theirs,))).also_declared == [theirs]


@pytest.mark.parametrize(
    ("number", "said"),
    [(1, "a/0"), (3, "a/0, a/1, a/2"), (4, "a/0, a/1, a/2 and 1 more"), (5, "a/0, a/1, a/2 and 2 more")],
)
def test_a_few_ids_stand_for_all(number, said):
    ids = [f"a/{place}" for place in range(number)]
    assert ", ".join(digest.first(ids)) + digest.more(ids) == said


def test_what_did_not_run_has_no_time():
    assert [digest.spent(one) for one in reports.blocked().results] == ["250 ms", "", "", "", ""]


def test_what_does_not_apply_and_gives_no_reason_is_listed_too():
    found = report(made("cond/a", NOT_APPLICABLE, message=" "), made("cond/b", NOT_APPLICABLE, message=""))
    assert Digest(found).other_reasons == {"no reason was given": ["cond/a", "cond/b"]}
