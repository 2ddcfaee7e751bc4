// SPDX-License-Identifier: BSD-3-Clause
// Communicators, their names and attributes, groups, and packing.
#include "with_without_preload.h"

static void say_name(struct run *run, MPI_Comm comm)
{
    char name[MPI_MAX_OBJECT_NAME] = "";
    int length = -7, size = -7, rank = -7, compared = -7, topology = -7;
    MPI_Comm_get_name(comm, name, &length);
    MPI_Comm_size(comm, &size);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_compare(comm, MPI_COMM_WORLD, &compared);
    MPI_Topo_test(comm, &topology);
    say(run, "'%s' of length %d, %d of %d, compared %d, topology %d", name, length, rank, size,
        compared, topology);
}

void run_comms(struct run *run)
{
    int dims[] = {RANKS}, periods[] = {1}, coords[1], source, target;
    int colour = draw(run, 2) != 0 ? MPI_UNDEFINED : run->rank % 2;
    MPI_Comm copy, part, grid;
    MPI_Request request;
    MPI_Comm_dup(run->comm, &copy);
    say_name(run, copy);
    MPI_Comm_set_name(copy, "a copy");
    say_name(run, copy);
    MPI_Comm_split(copy, colour, -run->rank, &part);
    if (part != MPI_COMM_NULL) {
        say_name(run, part);
        MPI_Comm_free(&part);
    }
    MPI_Cart_create(copy, 1, dims, periods, 0, &grid);
    say_name(run, grid);
    MPI_Cart_coords(grid, run->rank, 1, coords);
    MPI_Cart_shift(grid, 0, 1, &source, &target);
    say(run, "at %d from %d to %d", coords[0], source, target);
    MPI_Comm_free(&grid);
    MPI_Comm_idup(copy, &part, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    say_name(run, part);
    MPI_Comm_free(&part);
    MPI_Comm_free(&copy);
    say_name(run, MPI_COMM_WORLD);
    say_name(run, MPI_COMM_SELF);
}

// Whom callbacks tell.
static struct run *running;

static int copy_attribute(MPI_Comm comm, int key, void *extra, void *from, void *to, int *flag)
{
    (void)comm;
    (void)key;
    say(running, "copied %d with %d", *(int *)from, *(int *)extra);
    *(void **)to = from;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete_attribute(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm;
    (void)key;
    say(running, "deleted %d with %d", *(int *)value, *(int *)extra);
    return MPI_SUCCESS;
}

static void say_attribute(struct run *run, const char *name, MPI_Comm comm, int key)
{
    int flag = 0;
    void *value = NULL;
    MPI_Comm_get_attr(comm, key, (void *)&value, &flag);
    say(run, "%s: %d, %d", name, flag, flag ? *(int *)value : 0);
}

void run_attributes(struct run *run)
{
    static int extra = 5;
    int value = 3 + run->rank, key = MPI_KEYVAL_INVALID;
    MPI_Comm first, second;
    running = run;
    MPI_Comm_create_keyval(copy_attribute, delete_attribute, &key, &extra);
    MPI_Comm_dup(run->comm, &first);
    MPI_Comm_set_attr(first, key, &value);
    MPI_Comm_dup(first, &second);
    say_attribute(run, "copied", second, key);
    MPI_Comm_delete_attr(second, key);
    say_attribute(run, "deleted", second, key);
    say_attribute(run, "of the world", MPI_COMM_WORLD, key);
    MPI_Comm_free(&second);
    MPI_Comm_free(&first);
    MPI_Comm_free_keyval(&key);
    say_attribute(run, "largest tag", MPI_COMM_WORLD, MPI_TAG_UB);
    say_attribute(run, "clock", MPI_COMM_WORLD, MPI_WTIME_IS_GLOBAL);
    say_attribute(run, "process", MPI_COMM_WORLD, MPI_APPNUM);
    say_attribute(run, "universe", MPI_COMM_WORLD, MPI_UNIVERSE_SIZE);
}

void run_groups(struct run *run)
{
    const int order[] = {2, 0}, all[] = {0, 1};
    int found[2], size = -7, rank = -7, compared = -7;
    MPI_Group world, part, rest;
    MPI_Comm comm;
    MPI_Comm_group(run->comm, &world);
    MPI_Group_incl(world, 2, order, &part);
    MPI_Group_difference(world, part, &rest);
    MPI_Group_translate_ranks(part, 2, all, world, found);
    MPI_Group_size(rest, &size);
    MPI_Group_rank(part, &rank);
    MPI_Group_compare(world, part, &compared);
    say(run, "ranks %d %d, rest %d, rank %d, compared %d", found[0], found[1], size, rank,
        compared);
    MPI_Comm_create(run->comm, part, &comm);
    if (comm != MPI_COMM_NULL) {
        say_name(run, comm);
        MPI_Comm_free(&comm);
    }
    MPI_Group_free(&rest);
    MPI_Group_free(&part);
    MPI_Group_free(&world);
}

void run_pack(struct run *run)
{
    struct kind kind = draw_kind(run, draw_basic(run));
    int count = (int)draw(run, 20), size = -7, at = 0;
    MPI_Aint long_size = -7;
    MPI_Pack_size(count, kind.type, run->comm, &size);
    say_code(run, "pack",
             MPI_Pack(run->sent + ORIGIN, count, kind.type, run->in, ORIGIN, &at, run->comm));
    say(run, "%d of %d", at, size);
    at = 0;
    say_code(run, "unpack",
             MPI_Unpack(run->in, ORIGIN, &at, run->in + ORIGIN, count, kind.type, run->comm));
    MPI_Pack_external_size("external32", count, kind.type, &long_size);
    say(run, "%d, external %ld", at, (long)long_size);
    say_code(run, "short",
             MPI_Unpack(run->in, 1, &at, run->in, count, MPI_DATATYPE_NULL, run->comm));
    say_bytes(run, run->in);
    free_kind(&kind);
}
