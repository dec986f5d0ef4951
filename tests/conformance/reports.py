"""Reports made by hand, for the tests of what is written of them."""

from adprotocol.conformance._run import result
from adprotocol.conformance._run.result import EXPECTED, FAIL, NOT_APPLICABLE, PASS, WRONG
from adprotocol.extend import Divergence

# What a framework's message may hold, and what would break text, a terminal, Markdown, HTML and XML.
HOSTILE = (
    "<script>alert('x')</script> | `code` ``` **bold** ]]> & \x1b[31mred\x1b[0m \x00\udc80\u202e [bold]\nsecond | line"
)


def made(identifier="within_gradient/grad", outcome=PASS, **known):
    bad = outcome in (WRONG, FAIL)
    base = {
        "level": "MUST",
        "rule": "W1",
        "transform": "grad",
        "needs": ("grad",),
        "since": "0.1",
        "source": "the rule itself",
        "summary": "Inside of grad the answer is True",
        "description": "Inside of grad the answer is True",
        "cause": "plugin" if bad else "",
        "message": "" if outcome == PASS else "it went wrong",
        "repro": "import adprotocol\nprint(adprotocol)\n" if bad else "",
        "seconds": 0.25,
    }
    return result.Result(id=identifier, hook=identifier.partition("/")[0], outcome=outcome, **(base | known))


def divergence(name="two-runs", outcome="error", **known):
    base = {
        "title": "Checkpoint by *two* runs",
        "text": "The first run records `nothing`.\n\n% raises: Error\n\n```python\nprint(1 < 2)\n```\n",
        "remedy": "Ask outside",
        "scenarios": ("within_gradient/checkpoint",),
    }
    return Divergence(name=name, outcome=outcome, **(base | known))


def report(*results, **known):
    base = {
        "backend": "toyad",
        "framework_version": "1.2",
        "plugin": "toyad-adprotocol",
        "plugin_version": "0.3",
        "device": None,
        "level": "MAY",
        "keywords": (),
        "total": len(results),
        "capabilities": {"array": "there", "to_numpy": "there", "grad": "there", "jit": "absent: it does not compile"},
        "seconds": 2.5,
        "adprotocol": "0.1.0",
        "python": "3.12.1",
        "platform": "Linux",
    }
    return result.Report(results=results, **(base | known))


def mixed():
    """Every outcome, one divergence of each kind, a capability that is not there and a problem."""
    return report(
        made("within_gradient/grad", summary="Plain grad"),
        made("within_gradient/staged", transform="grad of jit", staged=True, level="SHOULD", seconds=1.5),
        made("within_gradient/lost", WRONG, transform="jvp", rule="W2", detail="Traceback: lost", seconds=12.3),
        made("within_gradient/checkpoint", EXPECTED, transform="checkpoint", divergence="two-runs"),
        made("non_differentiable/twice", EXPECTED, transform="grad of grad", divergence="levels", rule="N1"),
        made("non_differentiable/raises", FAIL, transform="grad", rule="N2", detail="Traceback: raised"),
        made("non_differentiable/dull", FAIL, level="MAY", transform="vmap", rule="N2"),
        made("cond/jit", NOT_APPLICABLE, needs=("jit", "grad"), transform="jit", message="it needs jit", seconds=0.0),
        made("cond/hook", NOT_APPLICABLE, transform="", message="no hook value_and_grad", seconds=0.0),
        made("cond/plain", transform="", needs=(), rule="C1"),
        divergences=(divergence(), divergence("levels", "wrong", title="Only one level")),
        problems=(result.Problem(where="harness", message="scan: it returned None", detail="Traceback: scan"),),
        total=20,
    )


def hostile():
    """Hostile text wherever a framework, a plugin or a harness can put some."""
    texts = {
        "summary": HOSTILE,
        "description": HOSTILE,
        "source": HOSTILE,
        "message": HOSTILE + "x" * 5000,
        "detail": HOSTILE,
        "transform": HOSTILE,
    }
    return report(
        made(f"within_gradient/wrong@grad={HOSTILE}", WRONG, repro=f"print({HOSTILE!r})  # {HOSTILE}", **texts),
        made(f"within_gradient/failed@grad={HOSTILE}", FAIL, repro=HOSTILE, **texts),
        made("cond/expected", EXPECTED, divergence="hostile", **texts),
        made("cond/unknown", EXPECTED, divergence="nowhere", **texts),
        made("cond/absent", NOT_APPLICABLE, needs=("jit",), **texts),
        made("cond/other", NOT_APPLICABLE, needs=(), **texts),
        divergences=(
            divergence("hostile", title=HOSTILE, text=f"{HOSTILE}\n```\nopen", remedy=HOSTILE.splitlines()[0]),
        ),
        problems=(result.Problem(where=HOSTILE, message=HOSTILE, detail=HOSTILE),),
        capabilities={"jit": f"absent: {HOSTILE}", "grad": "there"},
        backend=f"toy{HOSTILE}",
        device=HOSTILE,
        keywords=(HOSTILE,),
        plugin=HOSTILE,
        platform=HOSTILE,
    )


def blocked():
    """Three that could not run because scan is broken, beside one that did and one that does not apply."""
    broken = {"cause": "harness", "message": "not run: scan of the harness is broken: no", "ran": False, "repro": ""}
    return report(
        made(),
        *(made(f"cond/s{i}", FAIL, transform="scan", needs=("scan",), seconds=0.0, **broken) for i in range(3)),
        made("cond/n", NOT_APPLICABLE, needs=("jit",), seconds=0.0),
        problems=(result.Problem(where="harness", message="scan: no"),),
        capabilities={"grad": "there", "scan": "broken: no", "jit": "absent: no compiler"},
    )


def interrupted():
    return report(made(), total=3, problems=(result.Problem(where="run", message="interrupted after 1 of 3"),))


def all_absent():
    return report(*(made(f"cond/n{i}", NOT_APPLICABLE, needs=("jit",), message="it needs jit") for i in range(3)))
