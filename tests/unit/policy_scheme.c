// SPDX-License-Identifier: BSD-3-Clause
// By which scheme messages go: every combination of facts keeps the rules of each scheme, and the
// best one that the rules allow is taken; each limit one less and one more; each reason.
#include "config.h"

#include "fabrail/policy/scheme.h"

#include "check.h"

enum {
    FACTS = 15,
    SCHEMES = 4,
    SIZES = 15,
    RAILS = 9, // none, one or two, of each use
    MIN_SHARED = 3000,
    MIN_CLIQUE = 5000,
    MIN_RAIL = 7000,
    MIN_PIPELINE = 9000,
};

static const size_t sizes[SIZES] = {
    MIN_SHARED - 1,   MIN_SHARED,     MIN_SHARED + 1,   1,        MIN_CLIQUE - 1,
    MIN_CLIQUE,       MIN_CLIQUE + 1, MIN_RAIL - 1,     MIN_RAIL, MIN_RAIL + 1,
    MIN_PIPELINE - 1, MIN_PIPELINE,   MIN_PIPELINE + 1, 4095,     4096,
};

static struct fr_policy_message message_of(unsigned bits, unsigned failed, unsigned rails,
                                           size_t bytes)
{
    return (struct fr_policy_message){
        .rails = rails % 3,
        .rail_use = (enum fr_rail_use)(rails / 3),
        .rail_min_bytes = MIN_RAIL,
        .bytes = bytes,
        .here = bits & 1,
        .in_clique = bits & 2,
        .by_fragments = bits & 4,
        .one_piece = bits & 8,
        .must_leave = bits & 16,
        .absolute = bits & 32,
        .exported = bits & 64,
        .mapped = bits & 128,
        .workspace_full = bits & 256,
        .host_full = bits & 512,
        .may_wait = bits & 16384,
        .crowded = rails == 4, // one of those that decide least
        .staged_unmapped = bits & 1024,
        .host_memory = bits & 2048,
        .takes_turns = bits & 4096,
        .rails_reach_device = bits & 8192,
        .shared_min_bytes = MIN_SHARED,
        .failed = failed << FR_SCHEME_GET,
        .clique_min_bytes = MIN_CLIQUE,
        .pipeline_min_bytes = MIN_PIPELINE,
    };
}

// On the device, if the NICs reach it, or on the host.
static bool has_room_for_rails(const struct fr_policy_message *m)
{
    return !m->host_full || (m->rails_reach_device && !m->workspace_full && !m->host_memory);
}

// Returns whether a message may go by a scheme: a condition that is necessary and sufficient.
static bool is_allowed(const struct fr_policy_message *m, enum fr_policy_scheme scheme)
{
    if (scheme == FR_SCHEME_NONE)
        return true;
    if (m->crowded && m->bytes < 4096)
        return false;
    if (m->failed & 1u << scheme || (m->host_memory && scheme != FR_SCHEME_RAIL))
        return false;
    bool within_gpu = !m->takes_turns || m->bytes + 1 > MIN_SHARED || m->host_full;
    switch (scheme) {
    case FR_SCHEME_GET: // out of a buffer that stays, and that its receiver can read
        return within_gpu && m->here && m->mapped && m->exported && m->one_piece && !m->must_leave;
    case FR_SCHEME_STAGED_GET:
        return within_gpu && !m->workspace_full && !m->absolute &&
               (m->here || (m->in_clique && m->bytes + 1 > MIN_CLIQUE));
    case FR_SCHEME_RAIL: // what is worth it, between hosts
        return !m->here && !m->absolute && has_room_for_rails(m) && m->bytes + 1 > MIN_RAIL &&
               m->rail_use != FR_RAIL_OFF &&
               (m->rails > 1 || (m->rails == 1 && m->rail_use == FR_RAIL_FORCE));
    default:
        if (m->host_full && m->may_wait) // in the buffer, unless MPI sends it at once
            return m->by_fragments && m->bytes >= 4096 && !m->absolute && !m->must_leave;
        return m->by_fragments && m->bytes + 1 > MIN_PIPELINE && !m->host_full && !m->absolute &&
               !m->must_leave;
    }
}

static void check_all(void)
{
    static const enum fr_policy_scheme best[] = {
        FR_SCHEME_GET, FR_SCHEME_STAGED_GET, FR_SCHEME_RAIL, FR_SCHEME_PIPELINE, FR_SCHEME_NONE};
    unsigned seen[FR_SCHEME_COUNT] = {0};
    for (unsigned bits = 0; bits < 1u << FACTS; bits += check_step()) {
        for (unsigned rest = 0; rest < (1u << SCHEMES) * SIZES * RAILS; rest++) {
            struct fr_policy_message m =
                message_of(bits, rest / SIZES / RAILS, rest / SIZES % RAILS, sizes[rest % SIZES]);
            struct fr_policy_scheme_choice choice = fr_policy_choose_scheme(&m);
            size_t i = 0;
            while (!is_allowed(&m, best[i]))
                i++;
            CHECK(choice.scheme == best[i], "%s of facts %x, failed %x, %zu bytes",
                  fr_policy_scheme_name(choice.scheme), bits, m.failed, m.bytes);
            CHECK(choice.reason != NULL && choice.reason[0] != '\0', "facts %x", bits);
            seen[choice.scheme]++;
        }
    }
    for (unsigned scheme = 0; scheme < FR_SCHEME_COUNT; scheme++)
        CHECK(seen[scheme] > 0, "nothing goes by %u", scheme);
}

// A setting of 0 is without fragments, whatever the size; 0 bytes of the other one are all
// messages.
static void check_limits(void)
{
    struct fr_policy_message m = {.by_fragments = true, .bytes = SIZE_MAX};
    CHECK(fr_policy_choose_scheme(&m).scheme == FR_SCHEME_NONE);
    for (size_t least = 1; least < 100; least++) {
        m.pipeline_min_bytes = least;
        for (m.bytes = least - 1; m.bytes <= least + 1; m.bytes++)
            CHECK((fr_policy_choose_scheme(&m).scheme == FR_SCHEME_PIPELINE) == (m.bytes >= least),
                  "%zu of %zu bytes", m.bytes, least);
    }
    m = (struct fr_policy_message){
        .here = true, .exported = true, .mapped = true, .one_piece = true};
    CHECK(fr_policy_choose_scheme(&m).scheme == FR_SCHEME_GET);
    m.by_cpu = true; // as short messages of memory that the CPU reads
    CHECK(fr_policy_choose_scheme(&m).scheme == FR_SCHEME_NONE);
    m = (struct fr_policy_message){.here = true, .crowded = true};
    for (m.bytes = 4095; m.bytes <= 4097; m.bytes++)
        CHECK((fr_policy_choose_scheme(&m).scheme == FR_SCHEME_STAGED_GET) == (m.bytes >= 4096));
    m = (struct fr_policy_message){.in_clique = true};
    CHECK(fr_policy_choose_scheme(&m).scheme == FR_SCHEME_STAGED_GET);
    for (m.clique_min_bytes = 1; m.clique_min_bytes < 100; m.clique_min_bytes++) {
        size_t least = m.clique_min_bytes;
        for (m.bytes = least - 1; m.bytes <= least + 1; m.bytes++)
            CHECK((fr_policy_choose_scheme(&m).scheme == FR_SCHEME_STAGED_GET) ==
                      (m.bytes >= least),
                  "%zu of %zu bytes", m.bytes, least);
    }
}

// Blocks that the receiver is told of are read where they are, unless much would be read in vain,
// and workspace can be had. Ranks that take turns on a GPU pack later.
static void check_strided(void)
{
    enum { STAGED_FAILED = 1u << FR_SCHEME_STAGED_GET };
    static const struct {
        bool travels;
        size_t wasted_bytes;
        bool takes_turns, workspace_full;
        unsigned failed;
        enum fr_policy_scheme scheme;
    } rows[] = {
        {false, 0, false, false, 0, FR_SCHEME_STAGED_GET},
        {true, 0, false, false, 0, FR_SCHEME_GET},
        {true, (1 << 18) - 1, false, false, 0, FR_SCHEME_GET},
        {true, 1 << 18, false, false, 0, FR_SCHEME_STAGED_GET},
        {true, 4 << 20, true, false, 0, FR_SCHEME_GET},
        {true, (4 << 20) + 1, true, false, 0, FR_SCHEME_STAGED_GET},
        {true, SIZE_MAX, false, true, 0, FR_SCHEME_GET},
        {true, SIZE_MAX, false, false, STAGED_FAILED, FR_SCHEME_GET},
    };
    for (size_t i = 0; i < FR_ARRAY_LENGTH(rows); i++) {
        const struct fr_policy_message m = {.here = true,
                                            .mapped = true,
                                            .exported = true,
                                            .pack_first_bytes = 1 << 18,
                                            .takes_turns = rows[i].takes_turns,
                                            .workspace_full = rows[i].workspace_full,
                                            .failed = rows[i].failed,
                                            .travels = rows[i].travels,
                                            .wasted_bytes = rows[i].wasted_bytes,
                                            .bytes = 1 << 20};
        CHECK(fr_policy_choose_scheme(&m).scheme == rows[i].scheme, "row %zu", i);
    }
}

static void check_reason(struct fr_policy_message message, enum fr_policy_scheme scheme,
                         const char *reason)
{
    struct fr_policy_scheme_choice choice = fr_policy_choose_scheme(&message);
    CHECK(choice.scheme == scheme && strcmp(choice.reason, reason) == 0, "%s: %s, not %s",
          fr_policy_scheme_name(choice.scheme), choice.reason, reason);
}

static void check_reasons(void)
{
    static const char *const few = "no NVLink leads to the receiver, and too few rails so far";
    struct fr_policy_message m = {.bytes = 100, .one_piece = true, .exported = true};
    check_reason(m, FR_SCHEME_NONE, few);
    m.absolute = true;
    check_reason(m, FR_SCHEME_NONE, "the addresses of MPI_BOTTOM need not lie together");
    m.here = true;
    check_reason(m, FR_SCHEME_NONE, "the addresses of MPI_BOTTOM need not lie together");
    m.absolute = false;
    check_reason(m, FR_SCHEME_STAGED_GET, "the receiver maps the workspace");
    m.mapped = true;
    check_reason(m, FR_SCHEME_GET, "the receiver maps this memory");
    m.takes_turns = true;
    m.shared_min_bytes = m.bytes + 1;
    check_reason(m, FR_SCHEME_NONE,
                 "the ranks take turns on one GPU, and the message is shorter than "
                 "FABRAIL_SHARED_GPU_MIN");
    m.host_full = true;
    check_reason(m, FR_SCHEME_GET, "the receiver maps this memory");
    m.host_full = false;
    m.shared_min_bytes = m.bytes;
    check_reason(m, FR_SCHEME_GET, "the receiver maps this memory");
    m.failed = 1u << FR_SCHEME_GET | 1u << FR_SCHEME_STAGED_GET;
    m.staged_unmapped = true;
    check_reason(m, FR_SCHEME_NONE, "the receiver has not mapped the workspace yet");
    m.staged_unmapped = false;
    m.workspace_full = true;
    check_reason(m, FR_SCHEME_NONE, "no device workspace is left for the message");
    m.by_fragments = true;
    m.pipeline_min_bytes = 100;
    check_reason(m, FR_SCHEME_PIPELINE,
                 "in fragments, since no device workspace is left for the message");
    m.workspace_full = false;
    check_reason(m, FR_SCHEME_PIPELINE,
                 "in fragments, since the receiver could not be given access to the memory");
    m = (struct fr_policy_message){.bytes = 99, .no_rts = true, .absolute = true};
    check_reason(m, FR_SCHEME_NONE,
                 "the sender or the receiver takes no messages over NVLink or rails");
    m = (struct fr_policy_message){.bytes = 99, .in_clique = true, .clique_min_bytes = 100};
    check_reason(m, FR_SCHEME_NONE, "the message is shorter than FABRAIL_CLIQUE_MIN");
    m.bytes = 100;
    m.workspace_full = true;
    check_reason(m, FR_SCHEME_NONE, "no device workspace is left for the message");
    m = (struct fr_policy_message){.bytes = 100, .by_fragments = true};
    check_reason(m, FR_SCHEME_NONE, few);
}

// Why a message between hosts that no NVLink joins goes neither over rails nor, if long, by MPI
// alone.
static void check_reasons_between_hosts(void)
{
    struct fr_policy_message m = {
        .bytes = 99, .by_fragments = true, .rails = 1, .rail_min_bytes = 100};
    for (int i = 0; i < 2; i++) {
        bool in_fragments = i == 1;
        enum fr_policy_scheme scheme = in_fragments ? FR_SCHEME_PIPELINE : FR_SCHEME_NONE;
#define CHECK_REASON(reason)                                                                       \
    check_reason(m, scheme, in_fragments ? "in fragments, since " reason : reason)
        m.pipeline_min_bytes = in_fragments ? 1 : 0;
        m.bytes = 99;
        m.rail_use = FR_RAIL_AUTO;
        CHECK_REASON("no NVLink leads to the receiver, and the message is shorter than "
                     "FABRAIL_RAIL_MIN");
        m.bytes = 100;
        m.rails = 1;
        m.failed = 0;
        CHECK_REASON("no NVLink leads to the receiver, and too few rails so far");
        m.rails = 2;
        m.failed = 1u << FR_SCHEME_RAIL;
        CHECK_REASON("no NVLink leads to the receiver, and it could not be sent over rails");
        m.rail_use = FR_RAIL_OFF;
        CHECK_REASON("no NVLink leads to the receiver, and FABRAIL_RAIL=off");
#undef CHECK_REASON
    }
}

// Host memory is MPI's but for rails, and each thing that keeps it from them has its reason.
static void check_reasons_of_host(void)
{
    struct fr_policy_message m = {.bytes = 99,
                                  .host_memory = true,
                                  .one_piece = true,
                                  .exported = true,
                                  .mapped = true,
                                  .by_fragments = true,
                                  .pipeline_min_bytes = 1,
                                  .rails = 2,
                                  .rail_min_bytes = 100};
    check_reason(m, FR_SCHEME_NONE, "host memory, shorter than FABRAIL_RAIL_MIN");
    m.bytes = 100;
    check_reason(m, FR_SCHEME_RAIL, "over all NICs that both ends have in common");
    m.failed = 1u << FR_SCHEME_RAIL;
    check_reason(m, FR_SCHEME_NONE, "host memory that could not be sent over rails");
    m.failed = 0;
    m.rails = 1;
    check_reason(m, FR_SCHEME_NONE, "host memory, and too few rails lead to the receiver so far");
    m.rail_use = FR_RAIL_FORCE;
    check_reason(m, FR_SCHEME_RAIL, "over all NICs that both ends have in common");
    m.host_full = true;
    check_reason(m, FR_SCHEME_NONE, "host memory, and too much of it waits for receivers");
    m.absolute = true;
    check_reason(m, FR_SCHEME_NONE,
                 "host memory at the addresses of MPI_BOTTOM, which need not lie together");
    m.rail_use = FR_RAIL_OFF;
    check_reason(m, FR_SCHEME_NONE, "host memory, and FABRAIL_RAIL=off");
    m.here = true;
    check_reason(m, FR_SCHEME_NONE, "host memory, and the receiver is on this host");
}

static void check_reasons_of_rails(void)
{
    static const char *const from =
        "over all NICs that both ends have in common, from device memory";
    static const char *const into =
        "over all NICs that both ends have in common, into device memory";
    static const char *const by_host = "over all NICs that both ends have in common";
    struct fr_policy_message m = {.bytes = 100, .by_fragments = true, .rails = 2};
    check_reason(m, FR_SCHEME_RAIL, by_host);
    m.rails_reach_device = true;
    check_reason(m, FR_SCHEME_RAIL, from);
    m.host_full = true;
    check_reason(m, FR_SCHEME_RAIL, from);
    m.workspace_full = true;
    check_reason(m, FR_SCHEME_NONE,
                 "no NVLink leads to the receiver, and too much host memory waits for receivers");
    m.host_full = false;
    check_reason(m, FR_SCHEME_RAIL, by_host);
    static const char *const received[2][2] = {
        {by_host, into},
        {"over all NICs that both ends have in common, written by the sender",
         "over all NICs that both ends have in common, written into device memory"},
    };
    for (unsigned i = 0; i < 4; i++) {
        enum fr_policy_verb verb = i / 2 != 0 ? FR_VERB_WRITE : FR_VERB_READ;
        CHECK(strcmp(fr_policy_scheme_received(FR_SCHEME_RAIL, verb, i % 2 != 0),
                     received[i / 2][i % 2]) == 0,
              "%u", i);
    }
}

// A message is written where the setting says so or reads are known to be emulated and writes are
// not, the sender can, and nothing of an earlier request is open.
static void check_verbs(void)
{
    for (unsigned set = 0; set < 3 * 16; set++) {
        const struct fr_policy_rails rails = {
            .use = (enum fr_rail_verb)(set / 16),
            .emulates_reads = set & 1,
            .sender_writes = set & 2,
            .sender_emulates = set & 4,
            .sender_owes = set & 8,
        };
        bool can = rails.sender_writes && !rails.sender_owes;
        bool wanted = rails.emulates_reads && !rails.sender_emulates;
        bool writes = rails.use == FR_RAIL_VERB_WRITE  ? can
                      : rails.use == FR_RAIL_VERB_AUTO ? can && wanted
                                                       : false;
        struct fr_policy_verb_choice choice = fr_policy_choose_verb(&rails);
        CHECK(choice.verb == (writes ? FR_VERB_WRITE : FR_VERB_READ), "%u", set);
        CHECK(choice.reason != NULL && choice.reason[0] != 0, "%u", set);
    }
}

static void check_names(void)
{
    static const char *const names[FR_SCHEME_COUNT] = {"none", "get", "staged get", "rail",
                                                       "pipeline"};
    for (unsigned i = 0; i < FR_SCHEME_COUNT; i++) {
        CHECK(strcmp(fr_policy_scheme_name((enum fr_policy_scheme)i), names[i]) == 0, "%u", i);
        CHECK((strstr(fr_policy_scheme_received((enum fr_policy_scheme)i, FR_VERB_READ, false),
                      "fragments") != NULL) == (i == FR_SCHEME_PIPELINE),
              "%u", i);
    }
    CHECK(strcmp(fr_policy_scheme_name(FR_SCHEME_COUNT), "unknown") == 0);
}

static void check_stands_by(void)
{
    const struct fr_policy_receive most = {.room = 39, .rts_bytes = 40, .one_piece = true};
    struct fr_policy_receive other = most;
    CHECK(fr_policy_stands_by(&most));
    other.room = 40;
    CHECK(!fr_policy_stands_by(&other), "an RTS may come");
    other.room = 0;
    CHECK(!fr_policy_stands_by(&other), "nothing comes");
    other = most;
    other.one_piece = false;
    CHECK(!fr_policy_stands_by(&other), "blocks");
    other = most;
    other.takes_turns = true;
    CHECK(!fr_policy_stands_by(&other), "turns");
    other = most;
    other.by_cpu = true;
    CHECK(!fr_policy_stands_by(&other), "by the CPU");
}

int main(void)
{
    check_stands_by();
    check_all();
    check_limits();
    check_strided();
    check_reasons();
    check_reasons_between_hosts();
    check_reasons_of_host();
    check_reasons_of_rails();
    check_verbs();
    check_names();
    return check_result();
}
