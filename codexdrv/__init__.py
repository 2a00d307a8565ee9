"""codexdrv delivers a message into a Codex thread once, and says truthfully where it stands.

As a library: open a `Journal`, `admit` an `Order`, `ring` the supervisor. The names below are
loaded when they are first used, so that `import codexdrv` costs nothing.
"""

import importlib


# As type checkers know it; `typing` itself costs every command 8 ms before it can hear a Ctrl-C.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from codexdrv.bell import ring
    from codexdrv.config import Config, load_config
    from codexdrv.driver import Driver
    from codexdrv.errors import CodexdrvError, ExitCode
    from codexdrv.journal.journal import Admission, Journal
    from codexdrv.rules.lifecycle import Delivery, Order, Outcome, Standing, WhenBusy
    from codexdrv.rules.ownership import Fact, Phase

__version__ = "0.1.0"

_HOMES = {
    "Admission": "codexdrv.journal.journal",
    "CodexdrvError": "codexdrv.errors",
    "Config": "codexdrv.config",
    "Delivery": "codexdrv.rules.lifecycle",
    "Driver": "codexdrv.driver",
    "ExitCode": "codexdrv.errors",
    "Fact": "codexdrv.rules.ownership",
    "Journal": "codexdrv.journal.journal",
    "Order": "codexdrv.rules.lifecycle",
    "Outcome": "codexdrv.rules.lifecycle",
    "Phase": "codexdrv.rules.ownership",
    "Standing": "codexdrv.rules.lifecycle",
    "WhenBusy": "codexdrv.rules.lifecycle",
    "load_config": "codexdrv.config",
    "ring": "codexdrv.bell",
}
"""Public name → the module that has it."""

__all__ = [
    "Admission",
    "CodexdrvError",
    "Config",
    "Delivery",
    "Driver",
    "ExitCode",
    "Fact",
    "Journal",
    "Order",
    "Outcome",
    "Phase",
    "Standing",
    "WhenBusy",
    "__version__",
    "load_config",
    "ring",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'codexdrv' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
