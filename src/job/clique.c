// SPDX-License-Identifier: BSD-3-Clause
// Tells whether a communicator or window has partners over multi-node NVLink, from the facts of all
// processes. The answer is stored with the object, as an attribute that no copy inherits, and dies
// with it. So a handle that comes back for another object brings no old answer along, and no call
// that makes or frees communicators has to be watched.
#include "config.h"

#include "job/job_int.h"

// One kind of object that answers are remembered with.
struct kind {
    enum fr_fn create_keyval;
    enum fr_fn free_keyval;
    enum fr_fn get_attribute;
    enum fr_fn set_attribute;
    bool (*judge)(fr_word object);
    int keyval;
    bool has_keyval; // without a keyval every question is answered anew
};

static bool judge_communicator(fr_word comm);
static bool judge_window(fr_word win);

// Keyvals are written by the thread that is in MPI_Init or MPI_Finalize, while no other calls MPI.
static struct kind communicators = {
    .create_keyval = FR_FN_MPI_Comm_create_keyval,
    .free_keyval = FR_FN_MPI_Comm_free_keyval,
    .get_attribute = FR_FN_MPI_Comm_get_attr,
    .set_attribute = FR_FN_MPI_Comm_set_attr,
    .judge = judge_communicator,
};
static struct kind windows = {
    .create_keyval = FR_FN_MPI_Win_create_keyval,
    .free_keyval = FR_FN_MPI_Win_free_keyval,
    .get_attribute = FR_FN_MPI_Win_get_attr,
    .set_attribute = FR_FN_MPI_Win_set_attr,
    .judge = judge_window,
};

// The values of the attribute.
static const char answers[] = "ny";

// MPI calls this function with the family's own handles. It reads none of them.
static int delete_nothing(fr_word object, int keyval, void *value, void *extra)
{
    (void)object;
    (void)keyval;
    (void)value;
    (void)extra;
    return fr_abi_mpi.SUCCESS;
}

static void start_kind(struct kind *kind)
{
    int result = fr_abi_call(kind->create_keyval,
                             (const fr_word[]){FR_PTR(fr_job_copy_nothing), FR_PTR(delete_nothing),
                                               FR_PTR(&kind->keyval), 0});
    kind->has_keyval = result == fr_abi_mpi.SUCCESS;
    if (!kind->has_keyval)
        fr_warn("%s failed with MPI error %d, so answers on NVLink are not remembered",
                fr_abi_rows[kind->create_keyval].name, result);
}

void fr_job_clique_start(void)
{
    start_kind(&communicators);
    start_kind(&windows);
}

// Attributes that are still set stay until their objects go.
static void release_kind(struct kind *kind)
{
    if (kind->has_keyval)
        fr_abi_call(kind->free_keyval, (const fr_word[]){FR_PTR(&kind->keyval)});
    kind->has_keyval = false;
}

void fr_job_clique_release(void)
{
    release_kind(&communicators);
    release_kind(&windows);
}

// Returns whether one of the partners is in the group. Looks for the partners there, since they are
// few. Processes outside of MPI_COMM_WORLD do not count.
static bool has_partner(fr_word world, fr_word group)
{
    enum { AT_ONCE = 64 };
    const int *partners = NULL;
    int found[AT_ONCE];
    int count = fr_job_partners(&partners);
    for (int first = 0; first < count; first += AT_ONCE) {
        int n = count - first < AT_ONCE ? count - first : AT_ONCE;
        if (FR_MPI(Group_translate_ranks, world, (fr_word)n, FR_PTR(partners + first), group,
                   FR_PTR(found)) != fr_abi_mpi.SUCCESS)
            return false;
        for (int i = 0; i < n; i++)
            if (found[i] != fr_abi_mpi.UNDEFINED)
                return true;
    }
    return false;
}

// Returns whether one of the partners is in the group that `get_group` returns for an object.
static bool judge_group(enum fr_fn get_group, fr_word object)
{
    fr_word world_storage = 0, storage = 0;
    if (FR_MPI(Comm_group, fr_abi_mpi.COMM_WORLD, FR_PTR(&world_storage)) != fr_abi_mpi.SUCCESS)
        return false;
    bool found = false;
    if (fr_abi_call(get_group, (const fr_word[]){object, FR_PTR(&storage)}) == fr_abi_mpi.SUCCESS) {
        found = has_partner(fr_abi_handle_load(&world_storage, 0), fr_abi_handle_load(&storage, 0));
        FR_MPI(Group_free, FR_PTR(&storage));
    }
    FR_MPI(Group_free, FR_PTR(&world_storage));
    return found;
}

static bool judge_communicator(fr_word comm)
{
    int is_inter = 0;
    if (judge_group(FR_FN_MPI_Comm_group, comm))
        return true;
    if (FR_MPI(Comm_test_inter, comm, FR_PTR(&is_inter)) != fr_abi_mpi.SUCCESS || !is_inter)
        return false;
    return judge_group(FR_FN_MPI_Comm_remote_group, comm);
}

static bool judge_window(fr_word win)
{
    return judge_group(FR_FN_MPI_Win_get_group, win);
}

// Threads that ask at the same time find the same answer and set the same attribute.
static bool ask(struct kind *kind, fr_word object)
{
    const void *remembered = NULL;
    int is_set = 0;
    fr_word keyval = (fr_word)kind->keyval;
    if (!kind->has_keyval)
        return kind->judge(object);
    int result =
        fr_abi_call(kind->get_attribute,
                    (const fr_word[]){object, keyval, FR_PTR(&remembered), FR_PTR(&is_set)});
    if (FR_LIKELY(result == fr_abi_mpi.SUCCESS && is_set))
        return remembered == &answers[1];
    bool found = kind->judge(object);
    fr_abi_call(kind->set_attribute, (const fr_word[]){object, keyval, FR_PTR(&answers[found])});
    return found;
}

bool fr_job_comm_has_fabric(fr_word comm)
{
    const int *partners;
    if (FR_LIKELY(fr_job_partners(&partners) == 0) || comm == fr_abi_mpi.COMM_NULL)
        return false;
    return ask(&communicators, comm);
}

bool fr_job_win_has_fabric(fr_word win)
{
    const int *partners;
    if (FR_LIKELY(fr_job_partners(&partners) == 0) || win == fr_abi_mpi.WIN_NULL)
        return false;
    return ask(&windows, win);
}
