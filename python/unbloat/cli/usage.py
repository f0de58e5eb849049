"""Errors of usage in our words: the libraries that check arguments speak of inputs and values."""

from __future__ import annotations

import re
from typing import Any

import typer
import typer.core

# What the library prints, and what we print.
WORDS = (
    (r"Input should be a valid integer.*", "expected a whole number"),
    (r"Input should be a valid number.*", "expected a number"),
    (r"Input should be a finite number.*", "expected a finite number"),
    (r"Input should be greater than or equal to (.*)", r"expected at least \1"),
    (r"Input should be less than or equal to (.*)", r"expected at most \1"),
    (r"Value error, (.*)", r"\1"),
)


def plain_words(message: str) -> str:
    """The message without the library's words."""
    for pattern, ours in WORDS:
        if re.fullmatch(pattern, message, re.DOTALL):
            return re.sub(pattern, ours, message, flags=re.DOTALL)
    return message


class PlainErrors(typer.core.TyperGroup):
    """A group whose commands complain in those words."""

    def invoke(self, ctx: Any) -> Any:
        """As any group."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = plain_words(error.message)
            raise
