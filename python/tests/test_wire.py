import re
from pathlib import Path

import numpy as np
import pytest

from kvactor import wire

PROTO = Path(__file__).resolve().parents[2] / "cmd" / "kvactord" / "wire" / "kvactord.proto"


def test_the_compiled_schema_is_that_of_the_daemon():
    if not PROTO.exists():
        pytest.skip("not in the repository")
    text = re.sub(r"//.*", "", PROTO.read_text())
    found = {}
    for name, body in re.findall(r"message (\w+) \{((?:[^{}]|\{[^{}]*\})*)\}", text):
        fields = re.findall(r"(\w+) = (\d+);", body)
        found[name] = {field: int(number) for field, number in fields}
    compiled = {
        name: {field.name: field.number for field in message.DESCRIPTOR.fields}
        for name, message in wire._classes.items()
    }
    assert compiled == found


@pytest.mark.parametrize(
    "tokens", [[1, 2, 2**31 - 1], np.array([1, 2, 2**31 - 1]), np.array([1, 2, 2**31 - 1], ">i4")]
)
def test_tokens_are_packed_little_endian(tokens):
    assert bytes(wire.pack(tokens)) == b"\1\0\0\0\2\0\0\0\xff\xff\xff\x7f"


@pytest.mark.parametrize(
    "tokens", [[2**32 + 5], np.array([2**32 + 5]), np.array([1, -1]), np.array([2**31], "u4")]
)
def test_tokens_out_of_range_are_refused(tokens):
    with pytest.raises(ValueError, match="2147483647"):
        wire.pack(tokens)


def test_tokens_are_integers():
    with pytest.raises(ValueError, match="not integers"):
        wire.pack(np.array([1.5]))


def test_packed_tokens_stay_as_they_are():
    packed = bytearray(b"\1\0\0\0")
    assert wire.pack(packed) is packed
    assert wire.unpack(b"\xff\xff\xff\xff\3\0\0\0").tolist() == [-1, 3]
