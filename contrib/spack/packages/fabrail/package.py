# SPDX-License-Identifier: BSD-3-Clause
# A recipe for Spack, 0.23 or newer. In a clone of the sources:
#
#   spack repo add contrib/spack
#   spack install fabrail                        # without benchmarks; or, with those of an MPI,
#   spack install fabrail mpi_family=openmpi
#   spack load fabrail
#
# builds what is committed in the clone. Version 0.1.0 is the archive of `make dist`, looked for in the
# current folder; it has no checksum here, which Spack wants to hear: spack install --no-checksum
# fabrail@0.1.0. A folder of sources without git is built by `spack dev-build -d FOLDER fabrail@0.1.0`.
#
# The library serves every MPI. Loading the package gives the command `fabrail`; it preloads nothing, and
# brings no MPI: that is the job's own.
import os

from spack.package import *

try:  # since Spack 1.0
    from spack_repo.builtin.build_systems.autotools import AutotoolsPackage
except ImportError:
    pass


class Fabrail(AutotoolsPackage):
    """Lets MPI programs pass GPU pointers to any MPI, by one preloaded library."""

    # The tree that this recipe stands in. A copy of the recipe elsewhere names the sources here.
    tree = os.path.realpath(os.path.join(os.path.dirname(__file__), *[".."] * 4))
    manual_download = True
    url = f"file://{os.getcwd()}/fabrail-0.1.0.tar.gz"

    license("BSD-3-Clause")

    version("main", git=f"file://{tree}", preferred=True)
    version("0.1.0")

    variant(
        "mpi_family",
        default="none",
        values=("none", "openmpi", "mpich"),
        multi=False,
        description="MPI that the benchmarks are built for",
    )
    variant("kernels", default=True, description="GPU kernels, which take nvcc")
    variant("rails", default=True, description="Transport over several NICs by libfabric")

    depends_on("c", type="build")
    depends_on("gmake", type="build")
    depends_on("python", type="build")
    depends_on("uthash", type="build")
    with when("@main"):
        depends_on("autoconf", type="build")
        depends_on("automake", type="build")
        depends_on("libtool", type="build")
        depends_on("m4", type="build")
    depends_on("json-c@0.15:")
    # Headers alone: neither CUDA nor an MPI is linked with the library; the benchmarks are MPI programs.
    depends_on("cuda@12.4:", type="build")
    depends_on("openmpi", when="mpi_family=openmpi", type=("build", "link"))
    depends_on("mpich", when="mpi_family=mpich", type=("build", "link"))
    # Opened at run time, and found by the run path that a dependency of type link gives.
    with when("+rails"):
        depends_on("libfabric@1.17:", type=("build", "link"))
        depends_on("hwloc@2", type=("build", "link"))

    conflicts("platform=darwin")
    conflicts("platform=windows")

    sanity_check_is_file = ["bin/fabrail", "lib/libfabrail.so"]

    def mpicc(self, family):
        """The compiler wrapper; of two MPIs in one prefix, as Debian has them, that of the family."""
        folder = self.spec[family].prefix.bin
        of_family = os.path.join(folder, "mpicc." + family)
        return of_family if os.path.exists(of_family) else os.path.join(folder, "mpicc")

    def configure_args(self):
        spec = self.spec
        family = spec.variants["mpi_family"].value
        mpis = [
            f"--with-{one}={self.mpicc(one) if one == family else 'no'}"
            for one in ("openmpi", "mpich")
        ]
        nvcc = spec["cuda"].prefix.bin.nvcc if spec.satisfies("+kernels") else "no"
        rails = spec.satisfies("+rails")
        return [
            f"--with-cuda={spec['cuda'].prefix}",
            f"--with-nvcc={nvcc}",
            f"--with-json-c={spec['json-c'].prefix}",
            f"--with-libfabric={spec['libfabric'].prefix if rails else 'no'}",
            f"--with-hwloc={spec['hwloc'].prefix if rails else 'no'}",
            *mpis,
            "--with-mpiabi=no",
        ]

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def says_what_it_is(self):
        Executable(self.prefix.bin.fabrail)("info", "--no-start")
