// SPDX-License-Identifier: BSD-3-Clause
// The choice of NICs, replayed on recorded machines: tests/rail/machines, NAME.xml of hwloc and
// NAME.nics, a line a NIC.
#include "config.h"

#include "rail/choose.h"

#include "check.h"

#include <stdlib.h>

enum { NICS_MAX = 64 };

struct recorded {
    struct fr_rail_machine machine;
    struct fr_rail_nic nics[NICS_MAX];
    unsigned count;
};

static bool load(const char *name, struct recorded *recorded)
{
    char path[4096];
    const char *folder = getenv("top_srcdir");
    memset(recorded, 0, sizeof(*recorded));
    snprintf(path, sizeof(path), "%s/tests/rail/machines/%s.xml", folder, name);
    enum fr_status status = fr_rail_machine_load(path, &recorded->machine);
    if (status == FR_ERR_NOT_FOUND)
        return false;
    CHECK(status == FR_OK, "%s: %s", path, fr_core_status_text(status));
    snprintf(path, sizeof(path), "%s/tests/rail/machines/%s.nics", folder, name);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL, "%s", path);
    struct fr_rail_nic *nic = recorded->nics;
    while (file != NULL && fscanf(file, "%63s %23s", nic->name, nic->bus_id) == 2)
        nic = &recorded->nics[++recorded->count];
    if (file != NULL)
        fclose(file);
    return true;
}

// Checks the choice against names with spaces between.
static void expect(const struct recorded *recorded, struct fr_rail_wish wish, const char *names)
{
    unsigned chosen[FR_RAILS_MAX];
    char got[1024] = "";
    wish.max = wish.max != 0 ? wish.max : FR_RAILS_MAX;
    unsigned count =
        fr_rail_choose(&recorded->machine, recorded->nics, recorded->count, &wish, chosen);
    for (unsigned i = 0; i < count; i++) {
        strcat(got, i > 0 ? " " : "");
        strcat(got, recorded->nics[chosen[i]].name);
    }
    CHECK(strcmp(got, names) == 0, "GPU %s: \"%s\", not \"%s\"", wish.gpu ? wish.gpu : "none", got,
          names);
}

#define EXPECT(recorded, names, ...) expect(recorded, (struct fr_rail_wish){__VA_ARGS__}, names)

static void test_p5(const struct recorded *p5)
{
    CHECK(p5->count == 32);
    // Eight GPUs, each with the four NICs of its switch; the bus ids are as make numbers them.
    static const char *const gpus[] = {"0000:03:00.0", "0000:13:00.0", "0000:23:00.0",
                                       "0000:33:00.0", "0000:43:00.0", "0000:53:00.0",
                                       "0000:63:00.0", "0000:73:00.0"};
    for (unsigned g = 0; g < 8; g++) {
        char names[256];
        snprintf(names, sizeof(names), "rdmap%us0-rdm rdmap%us0-rdm rdmap%us0-rdm rdmap%us0-rdm",
                 4 * g, 4 * g + 1, 4 * g + 2, 4 * g + 3);
        EXPECT(p5, names, .gpu = gpus[g]);
    }
    EXPECT(p5, "rdmap8s0-rdm rdmap9s0-rdm", .gpu = "0000:23:00.0", .max = 2);
    EXPECT(p5, "rdmap9s0-rdm", .gpu = "0000:23:00.0", .nics = "rdmap9s0-rdm,rdmap1s0-rdm");
    EXPECT(p5, "rdmap8s0-rdm rdmap10s0-rdm rdmap11s0-rdm", .gpu = "0000:23:00.0",
           .nics = "^rdmap9s0-rdm,mlx*");
    // Two processes on one GPU have two NICs each, five have one each.
    EXPECT(p5, "rdmap8s0-rdm rdmap10s0-rdm", .gpu = "23:00.0", .local_count = 2);
    EXPECT(p5, "rdmap9s0-rdm rdmap11s0-rdm", .gpu = "23:00.0", .local_count = 2, .local_index = 1);
    EXPECT(p5, "rdmap11s0-rdm", .gpu = "23:00.0", .local_count = 5, .local_index = 4);
    // Four left for eight GPUs, under the switch of the first.
    EXPECT(p5, "rdmap1s0-rdm", .gpu = "23:00.0", .nics = "rdmap[0-3]s0-rdm");
    EXPECT(p5, "", .gpu = "23:00.0", .nics = "eth0");
}

static void test_dgx(const struct recorded *dgx)
{
    // Two GPUs and two NICs under each switch: one each.
    EXPECT(dgx, "mlx5_0", .gpu = "0000:05:00.0");
    EXPECT(dgx, "mlx5_1", .gpu = "0000:06:00.0");
    EXPECT(dgx, "mlx5_2", .gpu = "0000:15:00.0");
    EXPECT(dgx, "mlx5_3", .gpu = "0000:16:00.0");
    EXPECT(dgx, "mlx5_6", .gpu = "00000000:55:00.0");
    EXPECT(dgx, "mlx5_7", .gpu = "0000:56:00.0");
    // The switch of GPU 0 has lost its NICs: the two of the socket go to its two GPUs and to the
    // two whose own they are, of which nobody is kept from sharing.
    EXPECT(dgx, "mlx5_2", .gpu = "0000:05:00.0", .nics = "^mlx5_0,mlx5_1");
    EXPECT(dgx, "mlx5_2", .gpu = "0000:06:00.0", .nics = "^mlx5_0,mlx5_1");
    EXPECT(dgx, "mlx5_3", .gpu = "0000:15:00.0", .nics = "^mlx5_0,mlx5_1");
    EXPECT(dgx, "mlx5_0 mlx5_1 mlx5_2 mlx5_3 mlx5_4 mlx5_5 mlx5_6 mlx5_7", .gpu = NULL);
    EXPECT(dgx, "mlx5_1 mlx5_3 mlx5_5 mlx5_7", .gpu = NULL, .local_index = 1, .local_count = 2);
}

static void test_slingshot(const struct recorded *slingshot)
{
    EXPECT(slingshot, "cxi0", .gpu = "0000:03:00.0");
    EXPECT(slingshot, "cxi1", .gpu = "0000:43:00.0");
    EXPECT(slingshot, "cxi2", .gpu = "0000:83:00.0");
    EXPECT(slingshot, "cxi3", .gpu = "0000:c3:00.0");
    // A GPU whose socket has none takes those of the others, of which it has its share.
    EXPECT(slingshot, "cxi0 cxi1 cxi2", .gpu = "0000:c3:00.0", .nics = "^cxi3");
}

static void test_single(const struct recorded *single)
{
    EXPECT(single, "mlx5_0", .gpu = "0000:03:00.0");
    EXPECT(single, "mlx5_0", .gpu = "0000:04:00.0");
    EXPECT(single, "mlx5_0", .gpu = "0000:44:00.0");
    EXPECT(single, "mlx5_0", .gpu = NULL);
    EXPECT(single, "mlx5_0", .gpu = "no bus id");
}

// NICs that are no PCI devices, on a machine without a tree.
static void test_bare(void)
{
    static const struct recorded bare = {
        .nics = {{.name = "lo", .loopback = true},
                 {.name = "eth10"},
                 {.name = "eth2"},
                 {.name = "eth1"}},
        .count = 4,
    };
    EXPECT(&bare, "eth1 eth2 eth10", .gpu = "0000:03:00.0");
    EXPECT(&bare, "eth1", .gpu = NULL, .max = 1);
    EXPECT(&bare, "lo", .gpu = NULL, .nics = "lo");
    EXPECT(&bare, "eth1 eth2 eth10 lo", .gpu = NULL, .nics = "*");
    EXPECT(&bare, "eth10", .gpu = NULL, .nics = "^eth?");
    EXPECT(&bare, "", .gpu = NULL, .nics = ",");
}

static void test_bus_id(void)
{
    static const char *const good[] = {"0000:3B:00.0", "3b:00.0", "00000000:3b:00.0"};
    static const char *const bad[] = {
        "",         "3b",      "0000:3b:00", "0000:3b:00.8", "0000:3b:20.0", "0000:100:00.0",
        "3b:00.0 ", "nonsense"};
    char text[FR_RAIL_BUS_ID];
    for (size_t i = 0; i < FR_ARRAY_LENGTH(good); i++)
        CHECK(fr_rail_bus_id(good[i], text) && strcmp(text, "0000:3b:00.0") == 0, "%s", good[i]);
    for (size_t i = 0; i < FR_ARRAY_LENGTH(bad); i++)
        CHECK(!fr_rail_bus_id(bad[i], text), "%s", bad[i]);
}

// This very machine, whatever it is, has a tree; a broken file is an error.
static void test_load(void)
{
    struct fr_rail_machine machine;
    CHECK(fr_rail_machine_load(NULL, &machine) == FR_OK);
    CHECK(machine.count > 0 && machine.nodes[0].parent == -1);
    fr_rail_machine_free(&machine);
    CHECK(fr_rail_machine_load("/dev/null", &machine) == FR_ERR_INVALID);
    CHECK(machine.count == 0);
    fr_rail_machine_free(&machine);
}

int main(void)
{
    static const struct {
        const char *name;
        void (*test)(const struct recorded *recorded);
    } machines[] = {
        {"p5", test_p5}, {"dgx", test_dgx}, {"slingshot", test_slingshot}, {"single", test_single}};
    struct recorded recorded;
    test_bus_id();
    test_bare();
    for (size_t i = 0; i < FR_ARRAY_LENGTH(machines); i++) {
        if (!load(machines[i].name, &recorded)) {
            fprintf(stderr, "skipped: hwloc 2 is not installed\n");
            return check_result() == CHECK_PASS ? CHECK_SKIP : CHECK_FAIL;
        }
        machines[i].test(&recorded);
        fr_rail_machine_free(&recorded.machine);
    }
    test_load();
    return check_result();
}
