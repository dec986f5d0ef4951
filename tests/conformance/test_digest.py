"""What the written reports have in common: text that is fit to be shown, and what is counted where."""

import pytest
import reports
from reports import HOSTILE, divergence, made, report

from adprotocol.conformance._reports import digest, words
from adprotocol.conformance._reports.digest import Digest
from adprotocol.conformance._reports.matrix import Matrix
from adprotocol.conformance._run.result import EXPECTED, FAIL, NOT_APPLICABLE, PASS, WRONG
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
    groups = [(entry.first.divergence, entry.ids) for entry in Digest(found).entries[EXPECTED]]
    assert groups == [("first", ["cond/c"]), ("second", ["cond/a"]), ("unknown", ["cond/b"])]
    assert found.reason(found.results[2]) == "The first; remedy: Ask outside"
    assert found.reason(found.results[1]) == "unknown"


def test_nothing_wrong_is_not_said_without_what_is_declared_wrong():
    wrong = made("cond/a", EXPECTED, divergence="levels")
    ours = report(made(), wrong, divergences=(divergence("levels", "wrong"),))
    assert Digest(ours).none_wrong.endswith("with no error, beyond the 1 declared below.")
    assert Digest(report(made())).none_wrong == "None of the 1 scenarios that ran gave a wrong answer with no error."


def test_whose_fault_it_is_stands_beside_the_level():
    failed = [made(outcome="fail", level="MAY", cause=cause) for cause in ("plugin", "time limit")]
    found = Digest(report(*failed))
    said = [found.standing(entry) for entry in found.entries[FAIL]]
    assert said == [
        "MAY, rule W1, since 0.1; it does not fail the suite",
        "MAY, rule W1, since 0.1; it ran out of time",
    ]


def test_the_markdown_of_a_divergence_in_blocks():
    text = "One\ntwo.\n\n% raises: Error\n\n```python\n% 3\n~~~\n```\n100 % of\n~~~\nopen"
    assert list(words.blocks(text)) == [
        ("prose", "One\ntwo."),
        ("code", "% 3\n~~~"),
        ("prose", "100 % of"),
        ("code", "open"),
    ]
    assert list(words.blocks("")) == []


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
    assert words.some(ids) == said


def test_what_did_not_run_has_no_time():
    assert [digest.spent(one) for one in reports.blocked().results] == ["250 ms", "", "", "", ""]


def test_what_does_not_apply_and_gives_no_reason_is_listed_too():
    found = report(made("cond/a", NOT_APPLICABLE, message=" "), made("cond/b", NOT_APPLICABLE, message=""))
    assert Digest(found).other_reasons == {"no reason was given": ["cond/a", "cond/b"]}


def test_what_has_one_cause_is_one_entry():
    found = Digest(reports.broken())
    blocked, other = found.entries[FAIL]
    assert blocked.ids == ["cond/ran", *(f"cond/s{n}" for n in range(4)), "cond/stop", "trainable/s"]
    assert blocked.message == "not run: grad of the harness is broken: RuntimeError: no tape at 0x7f01"
    assert found.standing(blocked) == "MUST, SHOULD, rules C0, C1, C2 and 2 more, since 0.1; the harness is at fault"
    assert other.ids == ["cond/other-1", "cond/other-3"]


@pytest.mark.parametrize(
    ("known", "same"),
    [
        ({"message": "no tape of 20 entries at 0x7FA1"}, True),
        ({"message": "no tape of 1.5e-3 entries at 0x1"}, True),
        ({"message": "no list of 10 entries at 0x1"}, False),
        ({"detail": ' File "b.py", line 3, in f'}, False),
        ({"detail": ' File "a.py", line 4, in f'}, False),
        ({"detail": ' File "b.py", line 9, in g\n File "a.py", line 3, in f'}, True),
        ({"level": "MAY"}, False),
        ({"cause": "time limit"}, False),
        ({"outcome": WRONG}, False),
    ],
)
def test_failures_are_one_entry_if_message_place_and_cause_are_the_same(known, same):
    base = {"outcome": FAIL, "message": "no tape of 10 entries at 0x1", "detail": ' File "a.py", line 3, in f'}
    found = Digest(report(made("cond/a", **base), made("cond/b", **(base | known))))
    assert sum(map(len, found.entries.values())) == (1 if same else 2)


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (made("cond/b", WRONG, message="3 was found"), True),
        (made("cond/b", WRONG, message="4 was found"), False),
        (made("trainable/b", WRONG, message="3 was found"), False),
    ],
)
def test_answers_that_are_silently_wrong_are_one_entry_only_if_they_are_the_same(other, same):
    found = Digest(report(made("cond/a", WRONG, message="3 was found"), other))
    assert len(found.entries[WRONG]) == (1 if same else 2)


def test_reasons_that_differ_in_the_nesting_or_in_numbers_are_one():
    messages = ["it refuses jvp of jit: Error: at 0x1", "it refuses vmap: Error: at 0x22", "it refuses vmap: Other"]
    found = report(*(made(f"cond/{n}", NOT_APPLICABLE, message=message) for n, message in enumerate(messages)))
    assert Digest(found).other_reasons == {messages[0]: ["cond/0", "cond/1"], messages[2]: ["cond/2"]}


def test_variants_with_one_id_have_entries_of_their_own():
    results = [made("cond/a", FAIL, message="one"), made("cond/a", FAIL, message="two"), made("cond/a")]
    found = Digest(report(*results))
    assert [found.anchor(result) for result in results[:2]] == ["entry-0", "entry-1"]
    assert found.entry(results[2]) is None


def test_the_matrix_of_a_report_has_no_row_in_which_nothing_applies():
    rows = Digest(reports.mixed()).matrix.rows
    assert set(rows) == {"no transform", "grad", "vmap", "jvp", "checkpoint", "grad of jit", "grad of grad"}
    assert "jit" in Matrix.of({"toyad": reports.mixed()}).rows
    assert set(Digest(reports.blocked()).matrix.rows) == {"scan", "grad"}
