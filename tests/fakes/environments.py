"""Python environments in which codexdrv is installed, as far as a service can tell."""

import sysconfig
import venv
from pathlib import Path

from tests.fakes.children import CHECKOUT


def make_environment(root: Path) -> Path:
    """Make one that finds the checkout, also with `-I`; return its interpreter."""
    venv.create(root, symlinks=True)
    variables = {"base": str(root), "platbase": str(root)}
    packages = Path(sysconfig.get_path("purelib", "venv", variables))
    (packages / "checkout.pth").write_text(f"{CHECKOUT}\n")
    return root / "bin" / "python"
