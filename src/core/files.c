// SPDX-License-Identifier: BSD-3-Clause
// Small files of Fabrail's: their places and their text. A preloaded process must get over whatever
// it finds at a name. So nothing here waits for the other end of a pipe or reads without bound.
#include "config.h"

#include "fabrail/core/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool compose(const char *folder, const char *between, const char *name,
                    char path[FR_FILE_NAME_BYTES])
{
    int used = snprintf(path, FR_FILE_NAME_BYTES, "%s%s/fabrail/%s", folder, between, name);
    return used > 0 && used < FR_FILE_NAME_BYTES;
}

bool fr_core_file_of_user(const char *name, char path[FR_FILE_NAME_BYTES])
{
    // XDG Base Directory Specification: a relative path counts as unset.
    const char *folder = getenv("XDG_CONFIG_HOME");
    if (folder != NULL && *folder == '/')
        return compose(folder, "", name, path);
    folder = getenv("HOME");
    return folder != NULL && *folder == '/' && compose(folder, "/.config", name, path);
}

bool fr_core_file_of_system(const char *name, char path[FR_FILE_NAME_BYTES])
{
    return compose(FR_SYSCONFDIR, "", name, path);
}

// Reads up to the end of the file, which may be shorter by now than `room` bytes. Returns the bytes
// read, -1 on failure.
static ssize_t read_all(int file, char *text, size_t room)
{
    size_t used = 0;
    while (used < room) {
        ssize_t got = read(file, text + used, room - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        used += (size_t)got;
    }
    return (ssize_t)used;
}

static enum fr_status read_open(int file, size_t max_bytes, char **text, size_t *bytes)
{
    struct stat facts;
    if (fstat(file, &facts) != 0)
        return FR_ERR_INVALID;
    if (!S_ISREG(facts.st_mode) || facts.st_size < 0 || (size_t)facts.st_size > max_bytes) {
        errno = S_ISREG(facts.st_mode) ? EFBIG : S_ISDIR(facts.st_mode) ? EISDIR : ENOTSUP;
        return FR_ERR_INVALID;
    }
    size_t room = (size_t)facts.st_size;
    char *whole = malloc(room + 1);
    if (whole == NULL)
        return FR_ERR_NO_MEMORY;
    ssize_t got = read_all(file, whole, room);
    if (got < 0) {
        int why = errno;
        free(whole);
        errno = why;
        return FR_ERR_INVALID;
    }
    whole[got] = '\0';
    *text = whole;
    *bytes = (size_t)got;
    return FR_OK;
}

enum fr_status fr_core_file_read(const char *path, size_t max_bytes, char **text, size_t *bytes)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0)
        return errno == ENOENT || errno == ENOTDIR ? FR_ERR_NOT_FOUND : FR_ERR_INVALID;
    enum fr_status status = read_open(file, max_bytes, text, bytes);
    int why = errno;
    close(file);
    errno = why;
    return status;
}

int fr_core_folder_list(const char *folder, const char *inside, char *text, size_t room)
{
    int count = 0;
    size_t used = 0;
    DIR *entries = opendir(folder);
    text[0] = '\0';
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        char path[FR_FILE_NAME_BYTES];
        int length = snprintf(path, sizeof(path), "%s/%s/%s", folder, entry->d_name, inside);
        if (entry->d_name[0] == '.' || length >= (int)sizeof(path) || access(path, F_OK) != 0)
            continue;
        size_t more = strlen(entry->d_name) + (count ? 1 : 0);
        if (used + more >= room)
            break;
        used += (size_t)snprintf(text + used, room - used, "%s%s", count ? " " : "", entry->d_name);
        count++;
    }
    if (entries)
        closedir(entries);
    return count;
}
