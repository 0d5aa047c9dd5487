import json

import numpy as np

from kvactor.fingerprint import fingerprint


def safetensors(path, tensors):
    header, at = {}, 0
    for name, values in tensors.items():
        header[name] = {
            "dtype": "F32",
            "shape": list(values.shape),
            "data_offsets": [at, at + values.nbytes],
        }
        at += values.nbytes
    text = json.dumps(header).encode()
    body = b"".join(v.tobytes() for v in tensors.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def weights(seed=0):
    r = np.random.default_rng(seed)
    return {f"layer{i}": r.standard_normal((300, 100)).astype(np.float32) for i in range(8)}


def test_a_description_is_read_in_any_order():
    assert fingerprint({"a": 1, "b": [2]}) == fingerprint({"b": [2], "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})
    assert len(fingerprint({})) == 32


def test_other_values_of_one_tensor_are_seen(tmp_path):
    path = tmp_path / "model.safetensors"
    tensors = weights()
    safetensors(path, tensors)
    first = fingerprint({}, tmp_path)
    assert fingerprint({}, tmp_path) == first
    for name in tensors:
        changed = {**tensors, name: tensors[name] * 1.001}
        safetensors(path, changed)
        assert fingerprint({}, tmp_path) != first, name


def test_the_folder_does_not_count(tmp_path):
    found = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        safetensors(tmp_path / folder / "model.safetensors", weights())
        found.append(fingerprint({}, tmp_path / folder))
    assert found[0] == found[1]


def test_files_of_other_kinds(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(bytes(range(256)) * 4096)
    first = fingerprint({}, path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert fingerprint({}, path) != first
    assert fingerprint({}, tmp_path / "none") == fingerprint({})


def test_a_safetensors_file_that_is_none(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 5000)
    assert len(fingerprint({}, tmp_path)) == 32
