// SPDX-License-Identifier: BSD-3-Clause
// Places in code: their object, their address in its file and their function; and files of which
// nothing is to be believed.
#include "fabrail/core/site.h"

#include "check.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static __attribute__((noinline)) uintptr_t a_place_of_its_own(void)
{
    return (uintptr_t)__builtin_return_address(0);
}

__attribute__((noinline)) uintptr_t calls_from_here(void);
uintptr_t calls_from_here(void)
{
    uintptr_t site = a_place_of_its_own();
    __asm__ volatile("" : "+r"(site)); // no tail call
    return site;
}

static void test_function(void)
{
    char text[FR_SITE_TEXT_BYTES];
    struct fr_core_site sites[3] = {
        {.call = calls_from_here()}, {.call = 0}, {.call = (uintptr_t)&calls_from_here + 1}};
    fr_core_sites_find(sites, FR_ARRAY_LENGTH(sites), false);
    CHECK(strcmp(sites[0].function, "calls_from_here") == 0, "%s", sites[0].function);
    CHECK(strstr(sites[0].object, "core_site"), "%s", sites[0].object);
    CHECK(sites[1].object[0] == '\0' && sites[1].function[0] == '\0' && sites[1].address == 0);
    // However the loader has placed the object, two places are as far apart in its file.
    CHECK(sites[0].address - sites[2].address == sites[0].call - 1 - (uintptr_t)&calls_from_here);
    fr_core_site_text(sites[0].function, "/a/program", 0x11d3, text);
    CHECK(strcmp(text, "calls_from_here (program+0x11d3)") == 0, "%s", text);
    fr_core_site_text(NULL, NULL, 0x11d3, text);
    CHECK(strcmp(text, "0x11d3") == 0, "%s", text);
}

// Code that no file holds, as compilers at run time make it.
static void test_nowhere(void)
{
    char *memory = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct fr_core_site site = {.call = (uintptr_t)memory + 8};
    fr_core_sites_find(&site, 1, true);
    CHECK(site.object[0] == '\0' && site.address == 0, "it lies elsewhere in each process");
    munmap(memory, 4096);
}

// Looks for a place in a file of these bytes.
static void look_into(const char *name, const char *bytes, size_t size)
{
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(file >= 0 && write(file, bytes, size) == (ssize_t)size);
    char *memory = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0);
    struct fr_core_site site = {.call = (uintptr_t)memory + 100};
    fr_core_sites_find(&site, 1, false);
    CHECK(memory == MAP_FAILED || strcmp(site.object, name) == 0, "%s", site.object);
    CHECK(memchr(site.function, '\0', sizeof(site.function)));
    munmap(memory, 4096);
    close(file);
    unlink(name);
}

static void test_damage(void)
{
    enum { TRIES = 60, WRONG = 40 };
    char name[64];
    struct stat facts;
    int file = open("/proc/self/exe", O_RDONLY);
    CHECK(file >= 0 && fstat(file, &facts) == 0);
    size_t size = (size_t)facts.st_size;
    char *whole = malloc(size), *bytes = malloc(size);
    CHECK(whole && bytes && read(file, whole, size) == (ssize_t)size);
    close(file);
    snprintf(name, sizeof(name), "/tmp/fabrail-site-%d", (int)getpid());
    for (int i = 0; i < TRIES; i++) {
        memcpy(bytes, whole, size);
        for (int w = 0; w < WRONG; w++) // mostly in the head, and in the table of sections
            bytes[(size_t)rand() % (w % 2 ? 64 : size)] = (char)rand();
        memcpy(bytes, whole, 16);
        look_into(name, bytes, i % 2 ? size : (size_t)rand() % size + 1);
    }
    free(whole);
    free(bytes);
}

int main(void)
{
    srand(37);
    test_function();
    test_nowhere();
    test_damage();
    return check_result();
}
