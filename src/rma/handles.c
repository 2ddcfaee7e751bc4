// SPDX-License-Identifier: BSD-3-Clause
// The table in which the handle of the real MPI finds a window.
#include "config.h"

#include "rma/rma_int.h"

_Atomic unsigned fr_rma_window_count;

// A window is bound once all ranks have agreed on it, so the table needs no memory for that.
enum { PLACE_BITS = 6 };
static struct fr_lock table_lock = FR_LOCK_INIT;
static struct fr_rma_window *table[1 << PLACE_BITS] FR_GUARDED_BY(table_lock);

// Handles are small numbers or addresses, so their low bits are spread.
static size_t place_of(fr_word win)
{
    return (size_t)((uint64_t)win * UINT64_C(0x9e3779b97f4a7c15) >> (64 - PLACE_BITS));
}

// Returns what Fortran has for a handle. It is the same number where there is no function for it.
static int fortran_of(fr_word win)
{
    int (*convert)(fr_word) = NULL;
    *(void **)&convert = fr_abi_find_loaded("PMPI_Win_c2f");
    return convert ? convert(win) : (int)win;
}

void fr_rma_window_bind(struct fr_rma_window *window, fr_word win)
{
    window->win = win;
    window->fortran = fortran_of(win);
    fr_core_lock(&table_lock);
    window->next = table[place_of(win)];
    table[place_of(win)] = window;
    fr_core_unlock(&table_lock);
    atomic_fetch_add(&fr_rma_window_count, 1);
}

void fr_rma_window_unbind(struct fr_rma_window *window)
{
    fr_core_lock(&table_lock);
    struct fr_rma_window **at = &table[place_of(window->win)];
    while (*at != window)
        at = &(*at)->next;
    *at = window->next;
    fr_core_unlock(&table_lock);
    atomic_fetch_sub(&fr_rma_window_count, 1);
}

struct fr_rma_window *fr_rma_window_find(fr_word win)
{
    fr_core_lock(&table_lock);
    struct fr_rma_window *window = table[place_of(win)];
    while (window && window->win != win)
        window = window->next;
    fr_core_unlock(&table_lock);
    return window;
}

struct fr_rma_window *fr_rma_window_find_fortran(int win)
{
    struct fr_rma_window *window = NULL;
    fr_core_lock(&table_lock);
    for (size_t index = 0; !window && index < FR_ARRAY_LENGTH(table); index++) {
        window = table[index];
        while (window && window->fortran != win)
            window = window->next;
    }
    fr_core_unlock(&table_lock);
    return window;
}
