"""Writes which keys the classes of transformers compute from others where a file lacks them.

    pip install torch transformers
    python derived.py < ../defaults.json > derived.json

A key is computed if its value follows another one that is given and doubled.
"""
import json
import sys

from transformers import CONFIG_MAPPING

derived = {}
for name, keys in json.load(sys.stdin).items():
    if not keys or name not in CONFIG_MAPPING:
        continue
    plain = CONFIG_MAPPING[name]().to_dict()
    for key, value in sorted(plain.items()):
        if type(value) is not int or value < 1:
            continue
        try:
            other = CONFIG_MAPPING[name](**{key: 2 * value}).to_dict()
        except Exception:  # the class refuses the sizes
            continue
        for follows in keys:
            if follows != key and other.get(follows) != plain.get(follows):
                derived.setdefault(name, {}).setdefault(follows, []).append(key)
json.dump(derived, sys.stdout, indent=1, sort_keys=True)
print()
