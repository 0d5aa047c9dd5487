"""Reads the prompts that bench/peers writes for its drivers."""

import array
import sys


def read(path):
    """Returns own, size, pages and the requests of a file of little-endian numbers."""
    numbers = array.array("I")
    with open(path, "rb") as file:
        numbers.frombytes(file.read())
    if sys.byteorder == "big":
        numbers.byteswap()
    own, size, pages, count = numbers[:4]
    requests, at = [], 4
    for _ in range(count):
        n = numbers[at]
        requests.append(numbers[at + 1 : at + 1 + n])
        at += 1 + n
    return own, size, pages, requests
