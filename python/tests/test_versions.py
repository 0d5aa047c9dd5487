import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).resolve().parents[1] / "kvactor" / "vllm" / "versions.py"


@pytest.fixture
def versions():
    """The module by its path: its package needs a vLLM."""
    spec = importlib.util.spec_from_file_location("versions", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def base(versions, without=(), **changed):
    """A class with the interface that the connector is for, but for what is changed."""
    body = []
    for name, parameters in {**versions.METHODS, **changed}.items():
        if name not in without:
            names = ", ".join(("self", *parameters)).replace("kwargs", "**kwargs")
            body.append(f"    def {name}({names}): pass")
    space = {}
    exec("class Base:\n" + "\n".join(body), space)
    return space["Base"]


def test_versions_that_were_tried(versions):
    for version in ("0.32.0", "0.32.0+cpu", "0.32.0.dev3"):
        versions.require(version, object)


def test_another_version_with_the_same_interface(versions):
    with pytest.raises(versions.UntriedVersionError, match=r"not with 0\.33\.1: the interface"):
        versions.require("0.33.1", base(versions))
    versions.require("0.33.1", base(versions), untried=True)


def test_a_version_that_has_changed_methods(versions):
    other = base(versions, without=("wait_for_save",), reset_cache=("force",))
    with pytest.raises(versions.UntriedVersionError) as refused:
        versions.require("0.33.1", other, untried=True)
    assert "it has no wait_for_save" in str(refused.value)
    assert "reset_cache takes (force), not ()" in str(refused.value)
