"""Scenarios as data: what is entered is complete, and what is not is refused."""

import functools
import importlib
import inspect
import re
import subprocess
import sys

import pytest
from small import scenarios

from adprotocol.conformance import MAY, MUST, SHOULD, Scenario, all_scenarios
from adprotocol.conformance.harness import CAPABILITIES, REQUIRED
from adprotocol.conformance.scenario import HOOKS, LEVELS, RULES, defaults, scenario

ALL = list(all_scenarios().values())
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
        ("cond", {}, "hook/words-with-hyphens"),
        ("cond/", {}, "hook/words-with-hyphens"),
        ("cond/With-Capitals", {}, "hook/words-with-hyphens"),
        ("cond/under_scores", {}, "hook/words-with-hyphens"),
        ("cond/-hyphen", {}, "hook/words-with-hyphens"),
        ("cond/two--hyphens", {}, "hook/words-with-hyphens"),
        ("cond/a/b", {}, "hook/words-with-hyphens"),
        ("cond/a@grad=vjp", {}, "hook/words-with-hyphens"),
        ("cond/a\n", {}, "hook/words-with-hyphens"),
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


def test_a_function_needs_a_docstring():
    with scenarios(), pytest.raises(ValueError, match="lacks a docstring"):
        scenario("cond/a", **(GOOD | {"description": ""}))(lambda h: None)


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


def test_defaults_and_parts_of_the_id():
    made = enter("value_and_grad/words-1", needs=["grad"])
    assert (made.hook, made.name, made.level, made.needs, made.since) == (
        "value_and_grad",
        "words-1",
        MUST,
        ("grad",),
        "0.1",
    )
    assert (made.transform, made.varies) == ("", False)


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


def test_the_last_part_of_the_id_may_be_given():
    def function(h):
        """The docstring."""

    with scenarios():
        defaults("cond", **DATA)("other-words")(function)
        assert list(all_scenarios()) == ["cond/other-words"]


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


def test_the_hook_of_a_scenario_is_the_folder_of_its_module_or_the_module():
    for made in ALL:
        module = getattr(made.function, "func", made.function).__module__
        assert f"{module}.".startswith(f"adprotocol.conformance.scenarios.{made.hook}."), made.id


def test_what_is_refused_is_not_entered():
    with scenarios():
        with pytest.raises(ValueError, match="not known"):
            scenario("cond/a", **(GOOD | {"rule": "Z9"}))(lambda h: None)
        assert all_scenarios() == {}


def test_scenarios_cannot_be_changed():
    with pytest.raises(AttributeError):
        ALL[0].level = MAY


def test_the_key_is_the_id():
    assert all(key == made.id for key, made in all_scenarios().items())
    assert all(isinstance(made, Scenario) for made in ALL)


def test_there_are_at_least_150_for_a_full_harness():
    assert len(ALL) >= 150


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


def test_source_and_transform_are_one_line():
    assert [made.id for made in ALL if "\n" in made.source + made.transform] == []


def test_no_two_functions_of_a_hook_have_one_summary_under_one_transformation():
    seen = {}
    for made in ALL:
        function = getattr(made.function, "func", made.function)
        seen.setdefault((made.hook, made.summary, made.transform), {})[function] = made.id
    assert [ids for ids in seen.values() if len(ids) > 1] == []


def test_every_source_is_an_address_or_names_what_it_is():
    weak = [made.id for made in ALL if "http" not in made.source and len(made.source.split()) < 2]
    assert weak == []


def test_every_level_is_used():
    assert {made.level for made in ALL} == {MUST, SHOULD, MAY} == set(LEVELS)


def test_every_function_takes_the_harness_alone():
    for made in ALL:
        parameters = [
            p
            for p in inspect.signature(made.function).parameters.values()
            if p.default is p.empty and p.kind is not p.KEYWORD_ONLY
        ]
        assert len(parameters) == 1, made.id


ORDER = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
from adprotocol.conformance import all_scenarios
print("\\n".join(all_scenarios()))
"""


def test_the_order_depends_on_no_import_that_came_before():
    modules = sorted({getattr(made.function, "func", made.function).__module__ for made in ALL})
    assert len(modules) > 1
    shuffled = modules[::-1]
    done = subprocess.run([sys.executable, "-c", ORDER, *shuffled], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [made.id for made in ALL]


def test_hooks_come_in_their_order():
    places = [HOOKS.index(made.hook) for made in ALL]
    assert places == sorted(places)


def test_all_scenarios_may_be_called_twice_and_gives_a_dict_of_its_own():
    all_scenarios().clear()
    assert list(all_scenarios()) == [made.id for made in ALL]


def test_partial_functions_are_those_of_the_module_that_made_them():
    for made in ALL:
        if isinstance(made.function, functools.partial):
            module = importlib.import_module(made.function.func.__module__)
            assert getattr(module, made.function.func.__name__) is made.function.func
