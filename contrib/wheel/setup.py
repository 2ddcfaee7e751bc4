# SPDX-License-Identifier: BSD-3-Clause
"""The part of the build that pyproject.toml cannot say: the version is configure's, and the wheel is of one
platform and of any Python 3. contrib/wheel/build sets both variables."""

import os

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel


class PlatformDistribution(Distribution):
    """Has files of one architecture, though no extension module."""

    def has_ext_modules(self):
        return True


class PlatformWheel(bdist_wheel):
    """Depends on the platform and on no version of Python."""

    def get_tag(self):
        return "py3", "none", os.environ["FABRAIL_WHEEL_PLATFORM"]


setup(version=os.environ["FABRAIL_WHEEL_VERSION"], distclass=PlatformDistribution,
      cmdclass={"bdist_wheel": PlatformWheel})
