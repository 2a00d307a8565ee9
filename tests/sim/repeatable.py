"""An event loop in virtual time that does the same things in the same order, run for run.

Timers and callbacks are in order by themselves. But anyio cancels the tasks of a scope in the order
of a `set`, which is that of addresses in memory: so tasks are numbered here and hashed by that.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import TypeVar

import anyio
from anyio._backends import _asyncio

from tests.virtual_time import VirtualTimeLoop


Result = TypeVar("Result")


class NumberedTask(asyncio.Task):
    """A task whose hash is its number in this run."""

    numbers = count()

    def __new__(cls, *args, **kwargs):
        task = super().__new__(cls)
        task.number = next(cls.numbers)
        return task

    def __hash__(self):
        return self.number


class RepeatableLoop(VirtualTimeLoop):
    def __init__(self):
        super().__init__()
        NumberedTask.numbers = count()
        self.set_task_factory(
            lambda loop, coroutine, **named: NumberedTask(coroutine, loop=loop, **named)
        )


@contextmanager
def scopes_in_order() -> Iterator[None]:
    """Hash anyio's scopes by the task that entered them.

    Patched, because anyio makes them itself wherever our code waits: there is no argument for it.
    """
    scope = _asyncio.CancelScope
    scope.__hash__ = lambda self: hash(self._host_task)
    try:
        yield
    finally:
        scope.__hash__ = object.__hash__


def run_repeatably(work: Callable[[], Awaitable[Result]]) -> Result:
    """Run to the end, in virtual time that begins at 0."""
    with scopes_in_order():
        return anyio.run(work, backend_options={"loop_factory": RepeatableLoop})
