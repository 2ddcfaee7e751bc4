# SPDX-License-Identifier: BSD-3-Clause
# A recipe for Spack. From the source tree, after `make dist` has made the archive there:
#
#   spack repo add contrib/spack
#   spack install fabrail mpi_family=openmpi
#
# The library serves the MPI standard ABI besides the family that it is built with. Loading the package
# gives the command `fabrail`; it preloads nothing.
import os

from spack.package import *

try:  # since Spack 1.0
    from spack_repo.builtin.build_systems.autotools import AutotoolsPackage
except ImportError:
    pass


class Fabrail(AutotoolsPackage):
    """Lets MPI programs pass GPU pointers to any MPI, by one preloaded library."""

    # The archive is looked for in the current folder.
    manual_download = True
    url = f"file://{os.getcwd()}/fabrail-0.1.0.tar.gz"

    license("BSD-3-Clause")

    version("0.1.0")

    variant(
        "mpi_family",
        default="openmpi",
        values=("openmpi", "mpich"),
        multi=False,
        description="Family of MPI whose ABI the library serves",
    )
    variant("kernels", default=True, description="GPU kernels, which take nvcc")

    depends_on("c", type="build")
    depends_on("gmake", type="build")
    depends_on("python", type="build")
    depends_on("uthash")
    depends_on("json-c@0.15:")
    # Headers alone: neither CUDA nor an MPI is linked with the library; the benchmarks are MPI programs.
    depends_on("cuda@12:", type="build")
    depends_on("openmpi", when="mpi_family=openmpi", type=("build", "link"))
    depends_on("mpich", when="mpi_family=mpich", type=("build", "link"))

    conflicts("platform=darwin")
    conflicts("platform=windows")

    def configure_args(self):
        spec = self.spec
        family = spec.variants["mpi_family"].value
        other = "mpich" if family == "openmpi" else "openmpi"
        nvcc = spec["cuda"].prefix.bin.nvcc if spec.satisfies("+kernels") else "no"
        return [
            "--disable-werror",
            f"--with-cuda={spec['cuda'].prefix}",
            f"--with-nvcc={nvcc}",
            f"--with-json-c={spec['json-c'].prefix}",
            f"--with-{family}={spec[family].prefix.bin.mpicc}",
            f"--with-{other}=no",
            "--with-mpiabi=no",
        ]

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def says_what_it_is(self):
        Executable(self.prefix.bin.fabrail)("info", "--no-start")
