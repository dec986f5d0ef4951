"""The badge: what it says of a report, and its image."""

import json
from xml.etree import ElementTree as ET

import pytest
import reports
from reports import made, report

from adprotocol.conformance._reports import badge, state
from adprotocol.conformance._run.result import EXPECTED, FAIL, NOT_APPLICABLE, WRONG, Problem

CASES = [
    (report(made(), made("cond/a"), made("cond/n", NOT_APPLICABLE)), "2/2", "brightgreen", False),
    (report(made(), made("cond/a", EXPECTED)), "1/2, 1 declared", "green", False),
    (report(made(), made("cond/a", FAIL, level="MAY")), "1/2", "green", False),
    (reports.silent(1), "1/3, 1 declared silent", "yellowgreen", False),
    (reports.silent(5), "1/7, 5 declared silent", "yellowgreen", False),
    (reports.silent(5, total=312), "1/7 of 312 selected, 5 declared silent", "yellow", False),
    (reports.blocked(), "3 of 4 fail", "red", True),
    (reports.interrupted(), "1 problem", "orange", True),
    (report(made(), total=312), "1/1 of 312 selected", "yellow", False),
    (report(made(), made("cond/a", WRONG, level="MAY"), made("cond/b", FAIL)), "1 silently wrong", "red", True),
    (report(made(), made("cond/a", FAIL), total=312), "1 of 2 fail", "red", True),
    (report(made(), problems=(Problem(where="harness", message="it raised"),)), "1 problem", "orange", True),
    (report(), "nothing ran", "lightgrey", True),
    (reports.all_absent(), "nothing ran", "lightgrey", True),
]


@pytest.mark.parametrize(("found", "message", "colour", "error"), CASES)
def test_the_worst_is_what_the_badge_says(found, message, colour, error):
    assert json.loads(badge.to_badge(found)) == {
        "schemaVersion": 1,
        "label": "adprotocol",
        "message": message,
        "color": colour,
        "isError": error,
    }


@pytest.mark.parametrize("found", [case[0] for case in CASES])
def test_the_image_says_the_same_and_its_texts_do_not_overlap(found):
    root = ET.fromstring(badge.to_svg(found))  # noqa: S314  (made here)
    left, right = root.iter("{http://www.w3.org/2000/svg}text")
    message = json.loads(badge.to_badge(found))["message"]
    assert (left.text, right.text) == ("adprotocol", message)
    assert root.get("aria-label") == f"adprotocol: {message}"
    ends = [(float(t.get("x")), float(t.get("textLength")) / 2) for t in (left, right)]
    assert ends[0][0] + ends[0][1] < ends[1][0] - ends[1][1]
    assert ends[1][0] + ends[1][1] < float(root.get("width"))


def luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first, second):
    dark, light = sorted([luminance(first), luminance(second)])
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colour", badge._COLOURS.values())
def test_white_text_on_a_badge_has_the_contrast_of_wcag_aa(colour):
    assert contrast(colour, "#ffffff") >= 4.5


@pytest.mark.parametrize("look", state.LOOKS.values(), ids=state.LOOKS)
def test_signs_and_numbers_have_the_contrast_of_wcag_aa(look):
    assert contrast(look.fill, look.ink) >= 4.5
    assert contrast(look.dark_fill, look.dark_ink) >= 4.5


def test_no_two_states_share_a_sign_or_a_colour():
    for part in ("sign", "path", "fill", "dark_fill", "meaning"):
        assert len({getattr(look, part) for look in state.LOOKS.values()}) == len(state.STATES)
    assert set(state.SHOWN) == set(state.STATES) == set(state.LOOKS)


def test_no_two_colours_of_a_badge_are_the_same():
    assert len(set(badge._COLOURS.values())) == len(badge._COLOURS)
