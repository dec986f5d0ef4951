"""Scenarios as data: what is entered is complete, and what is not is refused."""

import re

import pytest
from small import scenarios

from adprotocol.conformance import MAY, MUST, SHOULD, all_scenarios
from adprotocol.conformance.harness import CAPABILITIES, REQUIRED
from adprotocol.conformance.scenario import HOOKS, RULES, defaults, scenario

ALL = list(all_scenarios().values())
NO_IDS = (
    *("cond", "cond/", "cond/With-Capitals", "cond/under_scores", "cond/-hyphen", "cond/two--hyphens"),
    *("cond/a/b", "cond/a@grad=vjp", "cond/a\n"),
)
GOOD = {"rule": "C1", "source": "docs/rules.md, C1", "description": "A summary"}


def enter(identifier="cond/words-1", **known):
    def function(h):
        """The docstring."""

    with scenarios():
        scenario(identifier, **(GOOD | known))(function)
        return all_scenarios()[identifier]


@pytest.mark.parametrize(
    ("identifier", "known", "words"),
    [
        *((name, {}, "hook/words-with-hyphens") for name in NO_IDS),
        ("branch/words", {}, "its hook is none of within_gradient"),
        ("cond/a", {"level": "must"}, "its level is none of MUST, SHOULD, MAY"),
        ("cond/a", {"rule": "W10"}, "'W10' is not known"),
        ("cond/a", {"rule": "X1"}, "'X1' is not known"),
        ("cond/a", {"needs": ("jitt",)}, "unknown capability among ('jitt',)"),
        ("cond/a", {"needs": "jit"}, "unknown capability among ('j', 'i', 't')"),
        ("cond/a", {"source": " "}, "lacks a docstring or a source"),
        ("cond/a", {"description": "\n"}, "lacks a docstring or a source"),
        ("cond/a", {"varies": True}, "needs none"),
    ],
)
def test_bad_data_are_refused_with_the_id_and_the_fault(identifier, known, words):
    with pytest.raises(ValueError, match=re.escape(f"scenario {identifier!r}: ")) as caught:
        enter(identifier, **known)
    assert words in str(caught.value)


def test_an_id_is_taken_once():
    with scenarios():
        scenario("cond/a", **GOOD)(lambda h: None)
        with pytest.raises(ValueError, match="its id is taken"):
            scenario("cond/a", **GOOD)(lambda h: None)


@pytest.mark.parametrize(
    ("known", "needs"),
    [
        ({}, ()),
        ({"transform": "grad of jit"}, ("grad", "jit")),
        ({"transform": "grad of grad"}, ("grad", "grad of grad")),
        ({"transform": "grad of custom rule"}, ("grad", "custom_rule")),
        ({"transform": "import"}, ()),
        ({"transform": "grad", "needs": ("grad", "node")}, ("grad", "node")),
        ({"transform": "grad", "needs": ()}, ()),
    ],
)
def test_what_a_scenario_needs_follows_from_its_transform_unless_given(known, needs):
    assert enter(**known).needs == needs


def test_the_description_is_the_docstring_unless_one_is_given_and_the_summary_its_first_line():
    def function(h, way):
        """One line under {way} of {braces}.

        And more under {way}.
        """

    with scenarios():
        scenario("cond/a", {"way": "jit", "number": 1}, **(GOOD | {"description": ""}))(function)
        scenario("cond/b", **GOOD)(function)
        first, second = all_scenarios().values()
    assert first.description == "One line under jit of {braces}.\n\nAnd more under jit."
    assert [first.summary, second.summary] == ["One line under jit of {braces}.", "A summary"]
    assert first.function.keywords == {"way": "jit", "number": 1}


def entered(decorator, **known):
    """The scenarios that a decorator of a module's defaults makes of a function."""
    calls = []

    def three_words_long(h, **argument):
        """A summary under {way} and {transforms}."""
        calls.append(argument)

    with scenarios():
        assert decorator(**known)(three_words_long) is three_words_long
        made = list(all_scenarios().values())
    for one in made:
        one.function(None)
    return made, calls


DATA = {"rule": "C1", "source": "docs/rules.md, C1"}


def test_defaults_of_a_module_hold_unless_a_scenario_says_otherwise():
    (made,), calls = entered(defaults("cond", **DATA, level=SHOULD), rule="C2", transform="grad of jit")
    assert (made.id, made.rule, made.level, made.source) == ("cond/three-words-long", "C2", SHOULD, DATA["source"])
    assert (made.needs, made.native, calls) == (("grad", "jit"), "grad of jit", [{}])
    assert made.summary == "A summary under {way} and {transforms}."


def test_a_way_in_the_transform_makes_a_scenario_for_jit_and_one_for_compile():
    known = DATA | {"transform": "grad of {way}", "native": "grad of {way} of {way}"}
    made, calls = entered(defaults("cond", **known), also_needs=("node",))
    assert [one.id for one in made] == ["cond/three-words-long-under-jit", "cond/three-words-long-under-compile"]
    assert [one.needs for one in made] == [("grad", "jit", "node"), ("grad", "compile", "node")]
    assert [one.native for one in made] == ["grad of jit of jit", "grad of compile of compile"]
    assert [one.transform for one in made] == ["grad of jit", "grad of compile"]
    assert calls == [{"way": "jit"}, {"way": "compile"}]


def test_several_nestings_make_a_scenario_each():
    known = DATA | {"transform": ("jit", "grad of while_loop")}
    made, calls = entered(defaults("cond", **known))
    assert [one.id for one in made] == ["cond/three-words-long-jit", "cond/three-words-long-grad-of-while-loop"]
    assert [one.needs for one in made] == [("jit",), ("grad", "while_loop")]
    assert [one.summary for one in made][1] == "A summary under {way} and grad of while_loop."
    assert calls == [{"transforms": "jit"}, {"transforms": "grad of while_loop"}]


def test_params_make_a_scenario_each_with_data_and_arguments_of_its_own():
    def function(h, flag):
        """Ask for {name}, {flag}."""

    params = {"one-word": {"flag": True}, "two": {"flag": "off", "level": MAY, "transform": "grad"}}
    with scenarios():
        defaults("cond", **DATA, level=SHOULD)("a-{name}-b", params=params)(function)
        made = list(all_scenarios().values())
    assert [one.id for one in made] == ["cond/a-one-word-b", "cond/a-two-b"]
    assert [(one.level, one.needs) for one in made] == [(SHOULD, ()), (MAY, ("grad",))]
    assert [one.summary for one in made] == ["Ask for one word, {flag}.", "Ask for two, off."]
    assert [one.function.keywords for one in made] == [{"flag": True}, {"flag": "off"}]


# Themes that concern every hook.
OF_ALL = ("results", "variables", "again")


def test_the_hook_of_a_scenario_is_the_folder_of_its_module_or_the_module():
    for made in ALL:
        module = getattr(made.function, "func", made.function).__module__
        themes = (made.hook, *OF_ALL)
        assert f"{module}.".startswith(tuple(f"adprotocol.conformance.scenarios.{theme}." for theme in themes)), made.id


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_a_scenario(rule):
    assert [made.id for made in ALL if made.rule == rule]


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_has_scenarios_and_some_that_must(hook):
    assert [made.id for made in ALL if made.hook == hook and made.level == MUST]


# Every scenario takes the first two, `Checked` the third where it is there, and the command line the last.
@pytest.mark.parametrize(
    "capability", sorted({*REQUIRED, *CAPABILITIES} - {"array", "to_numpy", "value_and_grad", "devices"})
)
def test_every_capability_is_taken_by_a_scenario(capability):
    assert [made.id for made in ALL if capability in made.needs]


def test_no_two_functions_of_a_hook_have_one_summary_under_one_transformation():
    seen = {}
    for made in ALL:
        function = getattr(made.function, "func", made.function)
        seen.setdefault((made.hook, made.summary, made.transform), {})[function] = made.id
    assert [ids for ids in seen.values() if len(ids) > 1] == []
