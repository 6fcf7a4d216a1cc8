"""The wheel as a stranger has it: built, and installed in an environment of its own."""

import os
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class InstalledWheel:
    """`programs` holds python and penstock. The package is the wheel's; what it needs comes from
    the environment of the tests, so that no network is needed."""

    programs: Path

    def environment(self) -> dict[str, str]:
        """No settings of ours, no path to the checkout."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PENSTOCK_", "PYTHON", "VIRTUAL_ENV", "COV_", "PYTEST_"))
        }
        return kept | {"PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}"}


def install_wheel(directory: Path) -> InstalledWheel:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory / "dist")],
        cwd=_ROOT,
        check=True,
        capture_output=True,
    )
    [wheel] = (directory / "dist").glob("*.whl")
    home = directory / "environment"
    venv.EnvBuilder(with_pip=True).create(home)
    python = home / "bin" / "python"
    # pip looks for what is needed nowhere: the line below brings it in.
    options = ["install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    subprocess.run([python, "-m", "pip", *options, str(wheel)], check=True)
    paths = sysconfig.get_paths(vars={"base": str(home), "platbase": str(home)})
    others = Path(paths["purelib"]) / "zz_tests_environment.pth"
    others.write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return InstalledWheel(home / "bin")
