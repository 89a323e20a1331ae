# SPDX-License-Identifier: Apache-2.0
"""Makes a wheel of the package that CMake built: python3 setup.py bdist_wheel, in build/release/python.

The wheel carries the shared libraries that the package is linked with, so that it installs where nothing but Python, the C
library and the runtime of C++ is.
"""

import platform
import re
import shutil
import subprocess
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

# Every Linux has them, and two of them in one process would not get along.
SYSTEM = re.compile(r"(lib(c|m|dl|rt|pthread|gcc_s)\.so|libstdc\+\+\.so|ld-linux|linux-vdso)")


def dependencies(library):
    """The shared libraries that it needs, those of others included, by name."""
    listed = subprocess.run(["ldd", library], check=True, capture_output=True, text=True).stdout
    found = {}
    for line in listed.splitlines():
        name, _, path = line.strip().partition(" => ")
        if not path or SYSTEM.match(name):
            continue
        if path.startswith("not found"):
            raise FileNotFoundError(f"{library}: {name} is not found")
        found[name] = Path(path.rsplit(" (", 1)[0])
    return found


def copy_license(library, folder):
    """What the Debian package of a library says of its copyright goes along with it."""
    owner = subprocess.run(["dpkg", "-S", f"*/{library.resolve().name}"], capture_output=True, text=True).stdout
    notice = Path("/usr/share/doc", owner.split(":")[0], "copyright")
    if owner and notice.is_file():
        folder.mkdir(exist_ok=True)
        shutil.copy(notice, folder / owner.split(":")[0])


def carry_libraries(package):
    """Copies into package/lib what the libraries of the package need, and lets all of them look there first."""
    carried = package / "lib"
    carried.mkdir(exist_ok=True)
    for own in package.glob("*.so"):
        for name, path in dependencies(own).items():
            if not (carried / name).exists():
                shutil.copy(path, carried / name)
                copy_license(path, carried / "licenses")
        subprocess.run(["patchelf", "--force-rpath", "--set-rpath", "$ORIGIN/lib", own], check=True)
    for library in carried.glob("*.so*"):
        subprocess.run(["patchelf", "--force-rpath", "--set-rpath", "$ORIGIN", library], check=True)


class Build(build_py):
    def run(self):
        super().run()
        carry_libraries(Path(self.build_lib) / "pagefuse")


class Binary(Distribution):
    def has_ext_modules(self):  # of this machine and this Python
        return True


def platform_tag():
    """Where the wheel installs: from the C library on that it was built with."""
    kind, version = platform.libc_ver()
    if kind != "glibc":
        return None
    return f"manylinux_{version.replace('.', '_')}_{platform.machine()}"


setup(
    name="pagefuse",
    version=Path("VERSION").read_text().strip(),
    description="Runs exported decoder graphs over a paged KV cache",
    packages=["pagefuse"],
    package_data={"pagefuse": ["*.so", "*.pyi", "py.typed"]},
    python_requires=">=3.9",
    install_requires=[Path("NUMPY").read_text().strip()],
    cmdclass={"build_py": Build},
    distclass=Binary,
    options={"bdist_wheel": {"plat_name": platform_tag()}},
)
