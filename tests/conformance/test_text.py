"""The report on a terminal and in a log, and the progress of a run."""

import io
import re
import sys

import pytest
import reports
from reports import HOSTILE, made, report

from adprotocol.conformance._reports import text
from adprotocol.conformance._reports.text import Progress
from adprotocol.conformance._run.result import FAIL, NOT_APPLICABLE, WRONG, Problem

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def written(found, stream=None, **options):
    stream = stream or io.StringIO()
    text.write(found, stream, **options)
    return stream.getvalue()


def test_the_parts_come_in_the_order_of_what_matters():
    parts = [
        "adprotocol conformance of toyad 1.2",
        "PROBLEMS with the harness or the divergences (1)",
        "  harness: scan: it returned None",
        "SILENTLY WRONG (1)",
        "FAIL (2)",
        "EXPECTED FAILURE (2)",
        "!! SILENTLY WRONG: within_gradient/lost",
        "✗ FAIL: non_differentiable/raises",
        "✗ FAIL: non_differentiable/dull",
        "CAPABILITIES: 3 of 4 are there; 2 scenarios are n/a",
        "hook  ",
        "SLOWEST, of 2.5 s",
        "FAIL: 8 of 10 scenarios ran",
        "next: begin with the problems",
    ]
    lines = written(reports.mixed()).splitlines()
    places = [next(place for place, row in enumerate(lines) if row.startswith(part)) for part in parts]
    assert places == sorted(places)
    assert places[-1] == len(lines) - 1


def test_a_failure_is_told_in_full_with_a_repro_to_paste():
    whole = written(reports.mixed())
    block = whole.split("!! SILENTLY WRONG: within_gradient/lost\n")[1].split("\n✗ FAIL")[0]
    assert block == (
        "  level    MUST, rule W2, since 0.1\n"
        "  summary  Inside of grad the answer is True\n"
        "  found    it went wrong\n"
        "  source   the rule itself\n"
        "  to reproduce, paste into Python:\n\n"
        "      import adprotocol\n"
        "      print(adprotocol)\n"
    )


def test_tracebacks_and_expected_failures_in_full_only_if_verbose():
    brief, verbose = written(reports.mixed()), written(reports.mixed(), verbose=True)
    for detail in ("Traceback: lost", "Traceback: raised", "Traceback: scan", "~ EXPECTED FAILURE: within_gradient/ch"):
        assert detail not in brief
        assert detail in verbose


def test_an_expected_failure_is_one_line_with_the_title_and_the_remedy_of_its_divergence():
    whole = written(reports.mixed())
    assert "  ~  within_gradient/checkpoint  MUST W1  Checkpoint by *two* runs; remedy: Ask outside\n" in whole
    assert "  declared Checkpoint by *two* runs; remedy: Ask outside\n" in written(reports.mixed(), verbose=True)
    assert (
        "  ~  5 scenarios  Only one level; remedy: Ask outside\n     cond/w0, cond/w1, cond/w2 and 2 more\n"
    ) in written(reports.silent(5))


def test_what_one_fault_explains_is_one_entry():
    whole = written(reports.broken())
    head, listed = whole.split("\nFAIL (9): ")[1].split("\n\n")[0].splitlines()[1:3]
    assert head == "  ✗  7 scenarios  not run: grad of the harness is broken: RuntimeError: no tape at 0x7f01"
    assert listed == "     cond/ran, cond/s0, cond/s1 and 4 more"
    assert whole.count("✗ FAIL: ") == 2
    assert "  also     6 more: cond/s0, cond/s1, cond/s2 and 3 more\n" in whole
    for n in range(4):
        assert f"cond/s{n}" in written(reports.broken(), verbose=True)


def test_what_could_not_run_is_told_by_the_problem_alone():
    whole = written(reports.blocked())
    assert "  ✗  3 scenarios  not run: scan of the harness is broken: no\n     cond/s0, cond/s1, cond/s2\n" in whole
    assert "✗ FAIL: " not in whole


def test_every_answer_that_is_silently_wrong_is_named():
    whole = written(report(*(made(f"cond/w{n}", WRONG, message="6. is wrong") for n in range(9))))
    assert "  !! 9 scenarios  6. is wrong\n     cond/w0, cond/w1, " in whole
    assert ", cond/w8\n" in whole
    assert whole.count("to reproduce, paste into Python") == 1


@pytest.mark.parametrize(
    ("found", "begins"),
    [
        (reports.blocked(), "begin with the problems"),
        (reports.interrupted(), "run it again; "),
        (
            report(made("cond/a", FAIL, level="MAY"), made("cond/b", WRONG)),
            "begin with cond/b: paste its repro into Python, or run that alone with its traceback, by -k cond/b -v",
        ),
        (report(made(), made("cond/c", FAIL, cause="divergences", repro="")), "begin with cond/c: run that alone"),
        (report(made(), problems=(Problem(where="divergences", message="no"),)), "correct what the plugin declares"),
        (reports.all_absent(), "nothing ran: "),
    ],
)
def test_the_last_line_says_what_to_do_next(found, begins):
    verdict, following = written(found).splitlines()[-2:]
    assert verdict.startswith("FAIL: ")
    assert following.startswith(f"next: {begins}")
    assert "next: " not in written(report(made()))


def test_what_does_not_apply_is_one_line_for_each_reason():
    whole = written(reports.mixed())
    assert "  jit            absent: it does not compile; 1 n/a\n" in whole
    assert "  other          no hook value_and_grad; 1 n/a: cond/hook\n" in whole


def test_the_table_adds_up():
    rows = [row.split() for row in written(reports.mixed()).splitlines() if " of " in row and "-" in row]
    assert ["within_gradient", "4", "of", "4", "1", "-", "-", "1", "2", "-"] in rows
    assert ["cond", "1", "of", "3", "-", "-", "-", "-", "1", "2"] in rows
    assert "all                 8 of 10               1        -     2                 2     3    2\n" in written(
        reports.mixed()
    )


def test_the_slowest_come_with_their_time():
    lines = written(reports.mixed()).split("SLOWEST")[1].splitlines()
    assert lines[1:3] == ["    12.3 s  within_gradient/lost", "     1.5 s  within_gradient/staged"]
    assert len(lines) == 1 + 5 + 3


@pytest.mark.parametrize(
    ("found", "last"),
    [
        (report(made()), "PASS: 1 of 1 scenarios ran: 1 pass"),
        (
            reports.silent(2),
            (
                "PASS, with 2 answers declared silently wrong: 4 of 4 scenarios ran: "
                "3 expected failure (2 of them silently wrong), 1 pass"
            ),
        ),
    ],
)
def test_the_last_line_is_the_verdict(found, last):
    assert written(found).splitlines()[-1] == last


def test_hostile_text_moves_no_cursor_and_breaks_no_line():
    whole = written(reports.hostile(), verbose=True)
    assert all(character == "\n" or character.isprintable() for character in whole)
    assert "\\x1b[31mred" in whole
    (row,) = [row for row in whole.splitlines() if row.startswith("  !! ")]
    assert "second | line" in row
    assert row.endswith("…")


def test_a_message_is_told_in_full_however_long():
    assert "x" * 5000 in written(reports.hostile())


def test_a_stream_that_cannot_write_a_sign_gets_its_escape():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    text.write(reports.mixed(), stream)
    stream.flush()
    assert rb"\u2717 FAIL: non_differentiable/raises" in raw.getvalue()


def test_a_terminal_gets_the_same_words_in_colour(monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = written(reports.mixed(), Terminal())
    assert ANSI.search(coloured)
    assert ANSI.sub("", coloured) == written(reports.mixed())


def test_a_terminal_gets_lines_that_fit_and_brackets_stay(monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setenv("COLUMNS", "80")
    shown = ANSI.sub("", written(report(made(outcome=WRONG, message="[bold] words " * 40)), Terminal()))
    rows = [row for row in shown.splitlines() if "[bold]" in row]
    assert len(rows) > 5
    assert max(map(len, rows)) <= 80


def test_a_terminal_without_rich_gets_plain_text(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert written(reports.mixed(), Terminal()) == written(reports.mixed())


def progress(total, stream, outcome=None):
    with Progress(total, stream) as shown:
        for place in range(total):
            shown.advance(made(f"cond/n{place}", **({"outcome": outcome} if outcome else {})))
    return stream.getvalue()


def test_progress_is_a_line_for_each_tenth_where_there_is_no_terminal():
    lines = progress(200, io.StringIO()).splitlines()
    assert [row.split(",")[0] for row in lines] == [f"{done} of 200 scenarios" for done in range(20, 201, 20)]


def test_progress_of_a_few_scenarios_is_a_line_each():
    lines = progress(3, io.StringIO()).splitlines()
    assert [row.split(",")[0] for row in lines] == ["1 of 3 scenarios", "2 of 3 scenarios", "3 of 3 scenarios"]


def test_progress_tells_at_once_what_is_wrong():
    with Progress(stream=(stream := io.StringIO())) as shown:
        shown.start(2)
        shown.advance(made(outcome=WRONG))
        shown.advance(made(outcome=FAIL))
    first, second = stream.getvalue().splitlines()
    assert first.endswith("1 silently wrong")
    assert second.endswith("1 silently wrong  1 fail")


def test_progress_of_nothing_is_silent():
    assert progress(0, io.StringIO()) == ""


def test_progress_goes_to_standard_error(capsys):
    with Progress(1) as shown:
        shown.advance(made())
    out, err = capsys.readouterr()
    assert (out, err[:18]) == ("", "1 of 1 scenarios, ")


def test_progress_on_a_terminal_is_a_bar_that_no_thread_draws(monkeypatch):
    pytest.importorskip("rich")
    import threading

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    before, stream = threading.active_count(), Terminal()
    with Progress(2, stream) as shown:
        shown.advance(made(f"cond/\x1b[2J{HOSTILE}", WRONG))
        assert threading.active_count() == before
        shown.advance(made("cond/b"))
    drawn = ANSI.sub("", stream.getvalue())
    assert "1/2" in drawn
    assert "2/2" in drawn
    assert "1 silently wrong" in drawn
    assert "\\x1b[2J<script>" in drawn


def test_progress_on_a_terminal_works_without_rich(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert progress(1, Terminal()).startswith("1 of 1 scenarios")


def test_a_pass_in_spite_of_wrong_answers_is_not_green(monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    colours = [
        written(found, Terminal()).splitlines()[-1].partition("PASS")[0] for found in (report(made()), reports.silent())
    ]
    assert colours == ["\x1b[32m", "\x1b[33m"]


def test_what_could_not_run_is_not_counted_as_run():
    whole = written(reports.blocked())
    assert "cond             0 of 4" in whole
    assert "all              1 of 5" in whole


def test_what_no_scenario_shows_is_declared_with_its_remedy():
    part = written(reports.also()).split("\n\nALSO DECLARED (2): ")[1].split("\n\n")[0]
    assert part.splitlines()[1:] == ["  A `_callback` <pure>; remedy: Use the *other*", "  Elsewhere"]
    assert "ALSO DECLARED" not in written(reports.mixed())


def test_an_interrupted_run_is_no_problem_of_the_harness():
    whole = written(reports.interrupted())
    assert "\nPROBLEMS (1)\n  run: interrupted after 1 of 3\n" in whole
    assert "harness or the divergences" not in whole


def test_a_table_wider_than_the_terminal_becomes_lines(monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "dumb")
    for columns in (50, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        rows = ANSI.sub("", written(reports.mixed(), Terminal())).splitlines()
        heads = [row for row in rows if row.startswith("hook ")]
        totals = [row for row in rows if re.match("all +8 of 10", row)]
        assert len(totals) == 1
        assert len(heads) == (columns == 200)
        if columns == 50:
            assert re.match(r"all +8 of 10 ran: \d+ silently wrong, ", totals[0])


def test_a_few_functions_that_are_left_out_are_named_in_one_line():
    def lacks(name, *needs):
        return made(name, NOT_APPLICABLE, needs=needs, message="it needs more", seconds=0.0)

    absent = "absent: the harness does not define it"
    found = report(
        made(),
        lacks("cond/a", "grad", "sum"),
        lacks("cond/b", "sum", "cast"),
        lacks("cond/c", "sum", "jit"),
        lacks("cond/d", "where"),
        capabilities={"grad": "there", "sum": absent, "cast": absent, "jit": absent, "where": "absent: it has none"},
    )
    line = "more: 2 small functions more in the harness would run 2 scenarios: sum, cast\n"
    assert line in written(found)
    assert "more: " not in written(report(made()))
