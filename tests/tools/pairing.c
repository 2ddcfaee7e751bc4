// SPDX-License-Identifier: BSD-3-Clause
// Programs and launchers of other MPIs: what a soname tells, which pairs do not fit, and that
// broken ELF files tell nothing.
#include "config.h"

#include "../../tools/command.h"
#include "../../tools/elf_file.h"
#include "../../tools/pairing.c"
#include "../unit/check.h"

#include <stdarg.h>
#include <unistd.h>

static const struct fr_launcher openmpi = {.family = FR_LAUNCH_OPENMPI,
                                           .version = "Open MPI 4.1.4"};
static const struct fr_launcher hydra = {.family = FR_LAUNCH_MPICH, .version = "MPICH 4.0.2"};
static const struct fr_launcher prrte = {.family = FR_LAUNCH_OPENMPI, .version = "PRRTE 3.0.1"};
static const struct fr_launcher slurm = {.family = FR_LAUNCH_SLURM, .version = "Slurm 22.05.8"};

static char said[1024]; // by the command's own way to complain

bool fr_tool_complain(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(said, sizeof(said), format, arguments);
    va_end(arguments);
    return false;
}

static void check_sonames(void)
{
    static const struct {
        const char *soname;
        enum fr_pairing_family family;
    } known[] = {
        {"libmpi.so.40", FR_PAIRING_OPENMPI},
        {"libmpi.so.20", FR_PAIRING_OPENMPI},
        {"libmpi_mpifh.so.40", FR_PAIRING_OPENMPI},
        {"libmpi_usempif08.so.40", FR_PAIRING_OPENMPI},
        {"libmpi_ibm.so.3", FR_PAIRING_OPENMPI},
        {"libmpi.so.12", FR_PAIRING_MPICH},
        {"libmpich.so.12", FR_PAIRING_MPICH},
        {"libmpichfort.so.12", FR_PAIRING_MPICH},
        {"libmpifort.so.12", FR_PAIRING_MPICH},
        {"libmpi_cray.so.12", FR_PAIRING_MPICH},
        {"libmpi_gnu_123.so.12", FR_PAIRING_MPICH},
        {"libmpi_abi.so.0", FR_PAIRING_ABI},
        {"libmpi_abi.so.1", FR_PAIRING_ABI},
        {"libmpi.so", FR_PAIRING_NONE},
        {"libc.so.6", FR_PAIRING_NONE},
        {"libmpir.so.1", FR_PAIRING_NONE},
        {"libgmpi.so.40", FR_PAIRING_NONE},
        {"", FR_PAIRING_NONE},
    };
    for (size_t i = 0; i < FR_ARRAY_LENGTH(known); i++)
        CHECK(fr_pairing_family_of(known[i].soname) == known[i].family, "%s", known[i].soname);
}

static bool fits(const struct fr_launcher *launcher, const char *soname)
{
    return fits_launcher(launcher, "mpirun", "./program", soname, said, sizeof(said));
}

static void check_pairs(void)
{
    CHECK(fits(&openmpi, "libmpi.so.40") && said[0] == '\0');
    CHECK(fits(&hydra, "libmpi.so.12"));
    CHECK(fits(&openmpi, NULL));
    CHECK(fits(&openmpi, "libmpi_abi.so.0"));
    CHECK(fits(&hydra, "libmpi_abi.so.0"));
    CHECK(fits(&slurm, "libmpi.so.40"));
    CHECK(fits(&prrte, "libmpi.so.12"));
    CHECK(!fits(&openmpi, "libmpich.so.12"));
    CHECK(strstr(said,
                 "mpirun is of Open MPI 4.1.4, but ./program needs libmpich.so.12, of the MPICH"));
    CHECK(!fits(&hydra, "libmpi.so.40"));
    CHECK(strstr(said, "MPICH 4.0.2") && strstr(said, "libmpi.so.40, of Open MPI"), "%s", said);
    CHECK(strchr(said, '\n') == NULL);
}

// A file that is cut, and one with each byte of its head and program headers spoilt: anything may
// be said of it, as long as it is read within its bounds.
static void check_broken(void)
{
    char name[] = "/tmp/fabrail-pairing.XXXXXX";
    struct fr_words words = {.list = NULL};
    char *bytes = NULL;
    size_t size;
    int file = mkstemp(name);
    CHECK(file >= 0 && fr_core_file_read("/proc/self/exe", SIZE_MAX - 1, &bytes, &size) == FR_OK);
    if (file < 0 || !bytes)
        return;
    fr_elf_list_needed("/proc/self/exe", &words);
    bool found = false;
    for (size_t i = 0; i < words.count; i++)
        found = found || strncmp(words.list[i], "libc.so", 7) == 0;
    CHECK(found);
    fr_words_free(&words);
    CHECK(write(file, bytes, size) == (ssize_t)size);
    for (off_t i = 0; i < 1024 && (size_t)i < size; i++) {
        char spoilt = (char)~bytes[i];
        CHECK(pwrite(file, &spoilt, 1, i) == 1);
        fr_elf_list_needed(name, &words);
        fr_words_free(&words);
        CHECK(pwrite(file, &bytes[i], 1, i) == 1);
    }
    for (size_t length = size; length > 0; length /= 2) {
        CHECK(ftruncate(file, (off_t)length) == 0);
        fr_elf_list_needed(name, &words);
        fr_words_free(&words);
    }
    fr_elf_list_needed("/dev/null", &words);
    fr_elf_list_needed("/tmp", &words);
    CHECK(words.count == 0);
    free(bytes);
    close(file);
    unlink(name);
}

int main(void)
{
    check_sonames();
    check_pairs();
    check_broken();
    return check_result();
}
