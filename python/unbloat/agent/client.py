"""The program unbloat-agent, as its front sees it: words in; one JSON object, or lines of them, out.

signal: what it prints, its exit code · model: `ok`, or `error` in one line · action: an answer, or an `AgentError` with its code.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from unbloat.errors import AgentError

Answer = dict[str, Any]
NAME = "unbloat-agent"
MISSING = 2
# Undoing what was done takes milliseconds; a host under load takes longer.
ENDS_S = 30.0
STOPPED = 130


@dataclass(frozen=True)
class Place:
    """Where an agent keeps what it keeps; nothing: where it does by itself."""

    runtime: str | None = None
    pins: str | None = None

    def argv(self, *words: str) -> list[str]:
        """A command line."""
        from unbloat.lab.requirements import found

        name = found(NAME)
        if name is None:
            raise AgentError(
                f"{NAME} is not there: it comes with unbloat; UNBLOAT_AGENT may name it", MISSING
            )
        pairs = (("--runtime", self.runtime), ("--pins", self.pins))
        return [
            name,
            *(word for option, value in pairs if value for word in (option, value)),
            *words,
        ]

    def ask(self, *words: str) -> Answer:
        """Its answer, which is well."""
        argv = self.argv("--json", *words)
        try:
            # A text within the answer fits the terminal, which the program does not see.
            columns = str(shutil.get_terminal_size().columns)
            done = subprocess.run(
                argv,
                env=os.environ | {"COLUMNS": columns},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            )
        except OSError as error:
            raise cannot_run(argv, error) from None
        answer = last_object(done.stdout)
        if done.returncode != 0:
            raise refusal(answer, done.stderr, done.returncode)
        if answer is None:
            raise AgentError(f"{NAME} answered nothing that is understood")
        return answer

    def become(self, *words: str) -> NoReturn:
        """Replaces this process by the program: text and exit code are the program's."""
        argv = self.argv(*words)
        sys.stdout.flush()
        try:
            os.execv(argv[0], argv)
        except OSError as error:
            raise cannot_run(argv, error) from None

    def stream(self, *words: str) -> Generator[Answer, None, None]:
        """Its objects as they come. However this ends, the program has ended and undone what it did."""
        argv = self.argv("--json", *words)
        try:
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as error:
            raise cannot_run(argv, error) from None
        last: Answer | None = None
        try:
            assert child.stdout is not None
            for line in child.stdout:
                last = last_object(line) or last
                if last is not None and last.get("ok") is not False:
                    yield last
            if child.wait(ENDS_S) != 0:
                raise refusal(last, child.stderr.read() if child.stderr else b"", child.returncode)
        finally:
            stopped(child)


def cannot_run(argv: Sequence[str], error: OSError) -> AgentError:
    """Why the program could not be started."""
    return AgentError(f"{argv[0]}: {(error.strerror or 'cannot be run').lower()}", MISSING)


def stopped(child: subprocess.Popen[bytes]) -> None:
    """Ends a program that still runs; it undoes its changes first. After a terminal's Ctrl-C it has
    had this signal already: a second one does no harm."""
    if child.poll() is None:
        with suppress(ProcessLookupError):
            child.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            child.communicate(timeout=ENDS_S)


def last_object(text: bytes) -> Answer | None:
    """The last line that is a JSON object."""
    for line in reversed(text.splitlines()):
        with suppress(ValueError):
            answer = json.loads(line)
            if isinstance(answer, dict):
                return answer
    return None


def refusal(answer: Answer | None, said: bytes, code: int) -> AgentError:
    """Why it ended, in one line."""
    why = (answer or {}).get("error")
    if not isinstance(why, str):
        lines = [line for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
        # clap says what is wrong first, and how it is meant below.
        why = lines[0].removeprefix("error: ") if lines else f"{NAME} ended with {code}"
    return AgentError(why.removeprefix(f"{NAME}: "), code if code > 0 else 1)
