"""Print the conda recipe for an sdist that is on PyPI, as conda-forge takes it (recipe.yaml, format 1).

python release/conda.py dist/adprotocol-0.1.0.tar.gz > recipe.yaml

Everything in it is read from the sdist. The package is the core, as the wheel without extras is; `run_constraints` are
the releases of the frameworks with which its plugins work.
"""

from __future__ import annotations

import hashlib
import sys
import tarfile
import tomllib
from pathlib import Path

RECIPE = """\
schema_version: 1

context:
  name: adprotocol
  version: "{version}"

package:
  name: ${{{{ name }}}}
  version: ${{{{ version }}}}

source:
  url: https://pypi.org/packages/source/${{{{ name[0] }}}}/${{{{ name }}}}/${{{{ name }}}}-${{{{ version }}}}.tar.gz
  sha256: {sha256}

build:
  number: 0
  noarch: python
  script: ${{{{ PYTHON }}}} -m pip install . --no-deps --no-build-isolation -vv
  python:
    entry_points:
      - adprotocol = adprotocol.__main__:main

requirements:
  host:
    - python ${{{{ python_min }}}}.*
    - pip
{build}
  run:
    - python >=${{{{ python_min }}}}
{run}
  run_constraints:
{constraints}

tests:
  - python:
      imports:
        - adprotocol
        - adprotocol.conformance
      python_version: ${{{{ python_min }}}}.*
      pip_check: true
  - script:
      - adprotocol doctor

about:
  homepage: {homepage}
  documentation: {documentation}
  repository: {source}
  summary: {summary}
  license: {license}
  license_file: LICENSE

extra:
  recipe-maintainers:
    - adprotocol
"""

# The name of a requirement of PyPI's on conda-forge, where it is another.
CONDA = {"torch": "pytorch"}


def recipe(sdist: Path) -> str:
    """Return the recipe for an sdist."""
    with tarfile.open(sdist) as archive:
        root = sdist.name.removesuffix(".tar.gz")
        read = {name: archive.extractfile(f"{root}/{name}") for name in ("pyproject.toml", "PKG-INFO")}
        texts = {name: file.read().decode() for name, file in read.items() if file is not None}
    data = tomllib.loads(texts["pyproject.toml"])
    project, urls = data["project"], data["project"]["urls"]
    frameworks = [project["optional-dependencies"][name][0] for name in project["entry-points"]["adprotocol"]]
    return RECIPE.format(
        version=root.removeprefix("adprotocol-"),
        sha256=hashlib.sha256(sdist.read_bytes()).hexdigest(),
        build=_lines(data["build-system"]["requires"]),
        run=_lines(project["dependencies"]),
        constraints=_lines(frameworks),
        homepage=urls["Homepage"],
        documentation=urls["Documentation"],
        source=urls["Source"],
        summary=f'"{project["description"]}"',
        license=project["license"],
    )


def _lines(requirements: list[str]) -> str:
    found = []
    for requirement in requirements:
        name, operator, floor = requirement.partition(">=")
        found.append(f"    - {CONDA.get(name, name)} {operator}{floor}")
    return "\n".join(found)


if __name__ == "__main__":
    sys.stdout.write(recipe(Path(sys.argv[1])))
