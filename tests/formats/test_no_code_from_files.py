"""Nothing in the package can run code that a model file brings: no pickle, no eval, no remote code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "gristmill"
FORBIDDEN_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
FORBIDDEN_CALLS = {"eval", "exec", "__import__"}
FORBIDDEN_METHODS = {("torch", "load"), ("builtins", "eval"), ("builtins", "exec")}
FORBIDDEN_NAMES = {"trust_remote_code", "allow_pickle"}


def violations(source: str) -> Iterator[str]:
    """What in `source` could run or unpickle what a file holds."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (a.name for a in names if a.name.split(".")[0] in FORBIDDEN_MODULES)
            case ast.ImportFrom(module=str(module), names=names):
                if module.split(".")[0] in FORBIDDEN_MODULES:
                    yield module
                yield from (f"{module}.{a.name}" for a in names if (module, a.name) in FORBIDDEN_METHODS)
            case ast.Call(func=ast.Name(id=name)) if name in FORBIDDEN_CALLS:
                yield name
            case ast.Attribute(value=ast.Name(id=module), attr=name) if (module, name) in FORBIDDEN_METHODS:
                yield f"{module}.{name}"
            case ast.keyword(arg=str(name), value=value) if name in FORBIDDEN_NAMES:
                if not (isinstance(value, ast.Constant) and value.value is False):
                    yield name


def test_no_file_of_the_package() -> None:
    sources = list(PACKAGE.rglob("*.py"))
    assert len(sources) > 10
    found = {f"{path.relative_to(PACKAGE)}: {what}" for path in sources for what in violations(path.read_text())}
    assert found == {"formats/torch_files.py: torch.load"}


def test_the_one_reader_of_pickles_takes_weights_alone_and_serves_convert_alone() -> None:
    """And it is imported where a file is converted, nowhere else."""
    tree = ast.parse((PACKAGE / "formats" / "torch_files.py").read_text())
    loads = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == "torch.load"]
    assert loads
    for call in loads:
        flags = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        assert flags["weights_only"] == "True"
    users = {str(p.relative_to(PACKAGE)) for p in PACKAGE.rglob("*.py") if "torch_files" in p.read_text()}
    assert users == {"cli/convert.py"}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import pickle as p",
        "from pickle import loads",
        "import torch\ntorch.load('x')",
        "from torch import load",
        "x = torch.load",
        "eval('1')",
        "def f():\n    exec(code, {})",
        "__import__('os')",
        "AutoModel.from_pretrained(x, trust_remote_code=True)",
        "f(trust_remote_code=flag)",
        "np.load(x, allow_pickle=True)",
    ],
)
def test_the_check_finds(source: str) -> None:
    assert list(violations(source))


def test_the_check_allows() -> None:
    allowed = (
        "import torch\nmodel.eval()\nasyncio.create_subprocess_exec('ls')\njson.load(f)\nnp.load(x, allow_pickle=False)"
    )
    assert list(violations(allowed)) == []
