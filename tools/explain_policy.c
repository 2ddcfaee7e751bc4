// SPDX-License-Identifier: BSD-3-Clause
// The policy's answer for one buffer of one call: first which path a process takes by itself, then
// whether the ranks move the bytes themselves.
#include "config.h"

#include "explain.h"

#include "fabrail/ipc/engine.h"
#include "fabrail/policy.h"
#include "fabrail/policy/access_way.h"
#include "fabrail/policy/scheme.h"
#include "fabrail/rndv.h"
#include "intercept/gpu_aware.h"

#include <string.h>

static const struct {
    const char *name, *text;
} places[FR_PLACE_COUNT] = {
    [FR_PLACE_HOST] = {"host", "GPUs of one host that map each other's memory"},
    [FR_PLACE_GPU] = {"gpu", "ranks on one GPU without MPS"},
    [FR_PLACE_APART] = {"apart", "GPUs of one host that cannot map each other's memory"},
    [FR_PLACE_CLIQUE] = {"clique", "hosts that multi-node NVLink joins"},
    [FR_PLACE_AWAY] = {"away", "hosts that no NVLink joins"},
    [FR_PLACE_SELF] = {"self", "a rank and itself"},
};

const char *fr_explain_place_name(enum fr_explain_place place)
{
    return places[place].name;
}

const char *fr_explain_place_text(enum fr_explain_place place)
{
    return places[place].text;
}

enum fr_fn fr_explain_function(const char *name)
{
    int fn = 0;
    while (fn < FR_FN_COUNT && strcmp(fr_abi_rows[fn].name, name) != 0)
        fn++;
    return (enum fr_fn)fn;
}

static bool is_reduction(enum fr_fn fn)
{
    const struct fr_abi_shape *shape = fr_abi_rows[fn].shape;
    return shape && shape->reduces;
}

static bool is_nonblocking(enum fr_fn fn)
{
    return fr_abi_rows[fn].request >= 0;
}

// Messages, and collectives that are made of them: nonblocking ones where that is no detour, and
// others whose ranks are on several hosts.
static bool is_of_messages(enum fr_fn fn, enum fr_explain_place place)
{
    const bool here = place == FR_PLACE_HOST || place == FR_PLACE_GPU;
    return fr_abi_is_message(fn) ||
           (fr_abi_rows[fn].shape && !is_reduction(fn) && place != FR_PLACE_APART &&
            place != FR_PLACE_SELF &&
            (fr_intercept_nvlink_schedules(fn) || (is_nonblocking(fn) && here)));
}

static bool must_leave(enum fr_fn fn)
{
    return strstr(fr_abi_rows[fn].name, "send") != NULL &&
           (strstr(fr_abi_rows[fn].name, "Bs") != NULL ||
            strstr(fr_abi_rows[fn].name, "Ibs") != NULL);
}

// Returns whether other processes can map the application's own memory.
static bool kind_can(enum fr_device_kind kind, unsigned caps)
{
    return (fr_device_kind_caps(kind) & caps) != 0;
}

static struct fr_explain_answer answer(const char *path, const char *how, const char *reason)
{
    return (struct fr_explain_answer){path, how, reason};
}

static bool is_in_reach(const struct fr_explain_facts *facts)
{
    return facts->place == FR_PLACE_HOST || facts->place == FR_PLACE_GPU ||
           facts->place == FR_PLACE_SELF;
}

// Calls that a rank does alone, by copies on its device.
static bool is_done_alone(const struct fr_explain_facts *facts, enum fr_fn fn)
{
    const struct fr_abi_row *row = &fr_abi_rows[fn];
    bool packs = (row->class == FR_CLASS_PACK || row->class == FR_CLASS_UNPACK) &&
                 !(row->flags & FR_ROW_EXTERNAL);
    return (fr_core_settings()->paths & FR_PATH_BIT_PEER) &&
           (packs ||
            (facts->place == FR_PLACE_SELF && fr_abi_rows[fn].shape &&
             !(facts->gpu_aware && fr_intercept_family_accepts_device_ptr(facts->family, fn))));
}

// How a message goes that the MPI library cannot be given.
static struct fr_explain_answer explain_message(const struct fr_explain_facts *facts, enum fr_fn fn,
                                                enum fr_device_kind kind, size_t bytes)
{
    const struct fr_settings *settings = fr_core_settings();
    const struct fr_policy_message message = {
        .bytes = bytes,
        .here = is_in_reach(facts),
        .takes_turns = facts->place == FR_PLACE_GPU,
        .in_clique = facts->place == FR_PLACE_CLIQUE && facts->fabric_memory &&
                     settings->fabric != FR_FABRIC_OFF,
        .by_fragments = facts->place != FR_PLACE_SELF,
        .one_piece = !facts->has_gaps,
        .travels = facts->has_gaps,
        .wasted_bytes = facts->wasted_bytes,
        .pack_first_bytes = fr_ipc_tuned(FR_SIZE_PACK_FIRST),
        .must_leave = must_leave(fn),
        .host_memory = !kind_can(kind, FR_DEVICE_OWNED),
        .exported = kind_can(kind, FR_SHARE_ANY),
        .mapped = !facts->first || facts->place == FR_PLACE_SELF,
        .clique_min_bytes = settings->clique_min_bytes,
        .shared_min_bytes = settings->shared_gpu_min_bytes,
        .pipeline_min_bytes = settings->pipeline_min_bytes,
        .rails = facts->first || facts->place == FR_PLACE_APART ? 0 : facts->rails,
        .rails_reach_device = facts->hmem && settings->rail_hmem,
        .rail_use = settings->rail,
        .rail_min_bytes = fr_ipc_tuned(FR_SIZE_RAIL),
    };
    const char *without = message.host_memory ? "pass" : "host"; // a scheme
    if (bytes < FR_RNDV_RTS_BYTES)
        return answer(without, "", "the message is too short for an RTS");
    struct fr_policy_scheme_choice chosen = fr_policy_choose_scheme(&message);
    const char *name = fr_policy_scheme_name(chosen.scheme);
    if (chosen.scheme == FR_SCHEME_NONE)
        return answer(without, "", chosen.reason);
    return answer(fr_policy_path_name(fr_policy_scheme_path(chosen.scheme)), name, chosen.reason);
}

// Collectives in which the ranks move the bytes by themselves.
static bool is_served(const struct fr_explain_facts *facts, enum fr_fn fn)
{
    bool in_reach =
        is_in_reach(facts) || (facts->place == FR_PLACE_CLIQUE && facts->fabric_memory &&
                               fr_core_settings()->fabric != FR_FABRIC_OFF);
    bool here = facts->place == FR_PLACE_HOST || facts->place == FR_PLACE_GPU;
    return in_reach && fr_abi_rows[fn].shape && (!is_nonblocking(fn) || here) &&
           (fr_core_settings()->paths & FR_PATH_BIT_PEER);
}

// Returns the traffic of each of many ranks, or of the root where one alone does something.
static enum fr_policy_size traffic_of(enum fr_fn fn)
{
    const struct fr_abi_shape *shape = fr_abi_rows[fn].shape;
    return shape->receiver == FR_WHO_ROOT ? FR_SIZE_GATHER_CE
           : shape->sender == FR_WHO_ROOT ? FR_SIZE_SPREAD_CE
                                          : FR_SIZE_EXCHANGE_CE;
}

// Across hosts a kernel meets the others in any case; as between two of them.
static bool is_by_kernel(const struct fr_explain_facts *facts, enum fr_fn fn, size_t bytes)
{
    if (is_reduction(fn))
        return true;
    if (facts->place == FR_PLACE_CLIQUE)
        return fr_ipc_moves_at_once(bytes, bytes);
    return fr_ipc_engine(traffic_of(fn), bytes) == FR_ENGINE_SM;
}

static struct fr_explain_answer explain_collective(const struct fr_explain_facts *facts,
                                                   enum fr_fn fn, size_t bytes)
{
    return answer("peer", is_by_kernel(facts, fn, bytes) ? "kernel" : "copy engines",
                  is_reduction(fn)
                      ? "the ranks map each other's memory, and the operation is predefined"
                      : "the ranks map each other's memory");
}

static bool is_between_hosts(const struct fr_explain_facts *facts)
{
    return facts->place == FR_PLACE_CLIQUE || facts->place == FR_PLACE_AWAY;
}

// Returns whether a function makes a window over a buffer, or accesses one.
static bool is_of_window(enum fr_fn fn)
{
    switch (fr_abi_rows[fn].class) {
    case FR_CLASS_RMA:
    case FR_CLASS_WIN_MAKE:
    case FR_CLASS_WIN_ATTACH:
        return true;
    default:
        return false;
    }
}

// One-sided operations on windows over device memory, whose buffers and targets are of one kind.
// The making of such a window is answered by how its memory is accessed.
static struct fr_explain_answer explain_access(const struct fr_explain_facts *facts, enum fr_fn fn,
                                               enum fr_device_kind kind)
{
    bool on_host = is_in_reach(facts);
    unsigned needed = facts->place == FR_PLACE_CLIQUE ? FR_SHARE_FABRIC : FR_SHARE_ANY;
    const struct fr_policy_access access = {
        .mapped = facts->place == FR_PLACE_SELF ||
                  ((on_host || facts->place == FR_PLACE_CLIQUE) && kind_can(kind, needed)),
        .one_host = !is_between_hosts(facts),
        .updates = fr_abi_rows[fn].operation >= 0 || fn == FR_FN_MPI_Compare_and_swap,
        .by_device = fn != FR_FN_MPI_Compare_and_swap,
    };
    struct fr_policy_access_choice chosen = fr_policy_choose_access(&access);
    return answer(fr_policy_path_name(chosen.choice.path),
                  chosen.way == FR_WAY_MESSAGE ? "message" : "", chosen.choice.reason);
}

// Returns whether a function's buffers can be staged, which those that keep the memory cannot.
static bool can_stage(enum fr_fn fn)
{
    switch (fr_abi_rows[fn].class) {
    case FR_CLASS_REFUSE:
    case FR_CLASS_WIN_MAKE:
    case FR_CLASS_STREAM:
        return false;
    default:
        return true;
    }
}

static struct fr_policy_choice choose_alone(const struct fr_explain_facts *facts, enum fr_fn fn,
                                            enum fr_device_kind kind)
{
    const struct fr_settings *settings = fr_core_settings();
    const struct fr_policy_facts local = {
        .device_memory = kind_can(kind, FR_DEVICE_OWNED),
        .stageable = can_stage(fn),
        .mpi_gpu_aware = facts->gpu_aware,
        .function_gpu_safe = fr_intercept_family_accepts_device_ptr(facts->family, fn),
        .paths = settings->paths,
        .fabric_use = settings->fabric,
        .fabric_allocated = kind_can(kind, FR_SHARE_FABRIC),
        .multi_node_nvlink = facts->place == FR_PLACE_CLIQUE,
        .fabric_workspace = facts->fabric_memory,
    };
    return fr_policy_choose(&local);
}

static bool has_buffer(enum fr_fn fn)
{
    return fr_abi_rows[fn].buffer_count > 0;
}

// Returns the reason that the library would give, were all ranks to make this call in one place.
static const char *staged_because(const struct fr_explain_facts *facts, enum fr_fn fn,
                                  const char *reason)
{
    bool nonblocking_reduction = is_reduction(fn) && is_nonblocking(fn);
    if (!is_of_messages(fn, facts->place) && !fr_abi_rows[fn].shape && !nonblocking_reduction)
        return reason;
    if (!(fr_core_settings()->paths & FR_PATH_BIT_PEER))
        return "FABRAIL_PATHS excludes peer";
    if (!nonblocking_reduction)
        return "no NVLink joins the GPUs of all ranks";
    return "such reductions go over NVLink on one host alone";
}

struct fr_explain_answer fr_explain(const struct fr_explain_facts *given, enum fr_fn fn,
                                    enum fr_device_kind kind, size_t bytes)
{
    struct fr_explain_facts as_taken = *given;
    const struct fr_explain_facts *facts = &as_taken;
    if (fr_core_settings()->rail == FR_RAIL_FORCE)
        as_taken.gpu_aware = false;
    const unsigned needed = FR_PATH_BIT_PEER | FR_PATH_BIT_HOST;
    unsigned paths = fr_core_settings()->paths;
    if (!has_buffer(fn))
        return answer("pass", "", "the function has no buffer");
    struct fr_policy_choice local = choose_alone(facts, fn, kind);
    bool on_device = kind_can(kind, FR_DEVICE_OWNED);
    if (on_device && is_done_alone(facts, fn))
        return answer("peer", "copy",
                      fr_abi_rows[fn].shape ? "the communicator has one rank"
                                            : "both buffers are on one device");
    if (on_device && is_of_window(fn) && !facts->gpu_aware && (paths & FR_PATH_BIT_PEER))
        return explain_access(facts, fn, kind);
    if (on_device && is_served(facts, fn))
        return explain_collective(facts, fn, bytes);
    // Host memory on one host is the MPI library's, whatever the setting says.
    bool for_rails = !on_device && fr_core_settings()->rail_host && is_between_hosts(facts);
    bool is_left = for_rails || (on_device && local.path == FR_PATH_HOST);
    if (is_left && is_of_messages(fn, facts->place) && !facts->gpu_aware &&
        (paths & needed) == needed)
        return explain_message(facts, fn, kind, bytes);
    if (local.path == FR_PATH_HOST && !facts->gpu_aware)
        return answer(fr_policy_path_name(local.path), "", staged_because(facts, fn, local.reason));
    return answer(fr_policy_path_name(local.path), "", local.reason);
}
