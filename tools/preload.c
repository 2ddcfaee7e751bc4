// SPDX-License-Identifier: BSD-3-Clause
// Which libraries the ranks preload: whether they can be, and in which order.
#include "config.h"

#include "preload.h"

#include "command.h"
#include "elf_file.h"
#include "fabrail/core/files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOADER_SECONDS = 20 };

bool fr_preload_check(const char *what, const char *path)
{
    struct fr_elf library, own;
    if (!fr_elf_read(path, &library))
        return fr_tool_complain("%s%s cannot be read: %s", what, path, strerror(errno));
    if (!library.is_elf || !library.is_library)
        return fr_tool_complain("%s%s is no shared library", what, path);
    if (strpbrk(path, " :") != NULL)
        return fr_tool_complain("%s%s: LD_PRELOAD takes no blank and no colon in a name", what,
                                path);
    if (!fr_elf_read("/proc/self/exe", &own) || fr_elf_matches(&library, &own))
        return true;
    return fr_tool_complain("%s%s is for %s, and this machine is %s", what, path,
                            fr_elf_machine_name(&library), fr_elf_machine_name(&own));
}

// The loader complains of what it does not find, and starts the program all the same.
static bool loader_finds(const char *name)
{
    char preload[FR_FILE_NAME_BYTES];
    struct fr_child_result result;
    if (snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", name) >= (int)sizeof(preload))
        return false;
    char *const argv[] = {(char[]){"/proc/self/exe"}, (char[]){"--version"}, NULL};
    char *const assignments[] = {preload, NULL};
    fr_child_run(argv, assignments, LOADER_SECONDS, &result);
    bool finds = result.output == NULL || strstr(result.output, "cannot be preloaded") == NULL;
    free(result.output);
    return finds;
}

bool fr_preload_check_name(const char *what, const char *name)
{
    bool is_path = strchr(name, '/') != NULL && strchr(name, '$') == NULL; // of $LIB and the like
    if (is_path || access(name, F_OK) == 0 || strpbrk(name, " :") != NULL)
        return fr_preload_check(what, name);
    return loader_finds(name) ||
           fr_tool_complain("%s%s is not found by the loader; name it by its path", what, name);
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

// As GCC and LLVM name the runtimes: libasan.so.8, libclang_rt.asan-x86_64.so.
static bool is_sanitizer(const char *path)
{
    static const char *const kinds[] = {"asan", "hwasan", "lsan", "msan", "tsan", "ubsan"};
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    const char *kind = begins(name, "libclang_rt.") ? name + strlen("libclang_rt.")
                       : begins(name, "lib")        ? name + strlen("lib")
                                                    : "";
    for (size_t i = 0; i < FR_ARRAY_LENGTH(kinds); i++) {
        if (begins(kind, kinds[i]) && strchr(".-_", kind[strlen(kinds[i])]) != NULL)
            return true;
    }
    return false;
}

static void add_inherited(const char *library, struct fr_words *all)
{
    const char *one = getenv("LD_PRELOAD");
    while (one != NULL && *one != '\0') {
        size_t length = strcspn(one, ": ");
        if (length > 0 && (length != strlen(library) || strncmp(one, library, length) != 0))
            fr_words_add(all, "%.*s", (int)length, one);
        one += length + (one[length] != '\0');
    }
}

bool fr_preload_compose(const char *library, const struct fr_words *others, char *text, size_t room)
{
    struct fr_words all = {.list = NULL};
    fr_words_add(&all, "%s", library);
    for (size_t i = 0; i < others->count; i++)
        fr_words_add(&all, "%s", others->list[i]);
    add_inherited(library, &all);
    size_t used = 0;
    text[0] = '\0';
    for (int sanitizers = 1; sanitizers >= 0; sanitizers--) {
        for (size_t i = 0; i < all.count && used < room; i++) {
            if (is_sanitizer(all.list[i]) == (sanitizers == 1))
                used += (size_t)snprintf(text + used, room - used, used > 0 ? ":%s" : "%s",
                                         all.list[i]);
        }
    }
    bool failed = all.failed;
    fr_words_free(&all);
    return failed        ? fr_tool_complain("no memory")
           : used < room ? true
                         : fr_tool_complain("the list of libraries to preload is too long");
}
