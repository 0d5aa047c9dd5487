"""Warnings that requests can cause."""

from __future__ import annotations

import logging

LIMIT = 100
"""Different warnings that are given. Clients may cause any number of them."""

_given: set[str] = set()


def warn_once(logger: logging.Logger, text: str) -> None:
    """Logs a warning that was not given before, until there are too many."""
    if text in _given or len(_given) >= LIMIT:
        return
    _given.add(text)
    logger.warning("kvactor: %s", text)
