"""Makes a wheel of the package that CMake built: python3 setup.py bdist_wheel, in build/python."""

from setuptools import Distribution, setup


class Binary(Distribution):
    def has_ext_modules(self):  # of this machine and this Python
        return True


setup(
    name="pagefuse",
    version=open("VERSION").read().strip(),
    description="Runs exported decoder graphs over a paged KV cache",
    packages=["pagefuse"],
    package_data={"pagefuse": ["*.so", "py.typed"]},
    install_requires=["numpy"],
    distclass=Binary,
)
