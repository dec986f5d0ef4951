"""Signs and colours: readable, and apart from each other."""

import re

import pytest
from matrix_picture import PATHS

from adprotocol.conformance._reports import looks


def luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first, second):
    dark, light = sorted([luminance(first), luminance(second)])
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("look", looks.LOOKS.values(), ids=looks.LOOKS)
def test_signs_and_numbers_have_the_contrast_of_wcag_aa(look):
    assert contrast(look.fill, look.ink) >= 4.5
    assert contrast(look.dark_fill, look.dark_ink) >= 4.5


def test_no_two_states_share_a_sign_or_a_colour():
    for part in ("sign", "fill", "dark_fill", "meaning"):
        assert len({getattr(look, part) for look in looks.LOOKS.values()}) == len(looks.STATES)
    assert len(set(PATHS.values())) == len(PATHS) == len(looks.STATES)
    assert set(looks.LEGEND) == set(looks.STATES) == set(looks.LOOKS)


@pytest.mark.parametrize(("state", "look"), looks.LOOKS.items(), ids=looks.LOOKS)
def test_colours_and_paths_are_those_of_css_and_svg(state, look):
    for colour in (look.fill, look.ink, look.dark_fill, look.dark_ink):
        assert re.fullmatch("#[0-9a-f]{6}", colour)
    assert re.fullmatch(r"(M[\d. ]+([HV][\d. ]+|a[\d. -]+|[\d. ]+)*)+", PATHS[state])
