// SPDX-License-Identifier: BSD-3-Clause
// Records by Hydra's key-value space: what is said to the proxy and what is made of its answers,
// which a thread in its place gives, the right ones and others.
#include "config.h"

#include "job/census.h"

#include "check.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

struct turn {
    const char *question;
    const char *answer; // NULL: the proxy goes away
};

struct proxy {
    const struct turn *turns;
    int file;
    int count;
};

#define GREETING "cmd=init pmi_version=1 pmi_subversion=1\n"
#define WELCOME  "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
#define WHO      "cmd=get_my_kvsname\n"
#define NAME     "cmd=my_kvsname kvsname=kvs_1\n"
#define PUT      "cmd=put kvsname=kvs_1 key=fabrail-1 value=A^1;B^2,3;host\n"
#define DONE     "cmd=put_result rc=0 msg=success\n"
#define GET(key) "cmd=get kvsname=kvs_1 key=" key "\n"
#define FOUND    "cmd=get_result rc=0 msg=success value="

static void *play(void *argument)
{
    struct proxy *proxy = argument;
    for (int i = 0; i < proxy->count; i++) {
        const struct turn *turn = &proxy->turns[i];
        char line[1024];
        size_t used = 0;
        while (used < sizeof(line) - 1 && read(proxy->file, line + used, 1) == 1 &&
               line[used++] != '\n')
            continue;
        line[used] = '\0';
        CHECK(strcmp(line, turn->question) == 0, "asked \"%s\", not \"%s\"", line, turn->question);
        if (!turn->answer || write(proxy->file, turn->answer, strlen(turn->answer)) < 0)
            break;
    }
    close(proxy->file);
    return NULL;
}

// Calls `use` with a proxy that knows so many turns; what it sends beyond them stays unread.
static void with_proxy(const struct turn *turns, int count, void (*use)(void))
{
    int ends[2];
    char number[16];
    pthread_t thread;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    snprintf(number, sizeof(number), "%d", ends[0]);
    setenv("PMI_FD", number, 1);
    struct proxy proxy = {.turns = turns, .file = ends[1], .count = count};
    CHECK(pthread_create(&thread, NULL, play, &proxy) == 0);
    use();
    pthread_join(thread, NULL);
    close(ends[0]);
}
#define WITH_PROXY(turns, use) with_proxy(turns, (int)(sizeof(turns) / sizeof(turns[0])), use)

static enum fr_job_record put(void)
{
    fr_job_hydra.put("A=1;B=2,3;host");
    return fr_job_hydra.has_put();
}

static void put_in_vain(void)
{
    CHECK(put() == FR_JOB_RECORD_FAILED);
}

static void check_record(int rank, const char *expected)
{
    char record[FR_JOB_RECORD_BYTES] = "";
    bool found = fr_job_hydra.get(rank, record);
    CHECK(found == (expected != NULL), "rank %d", rank);
    CHECK(!expected || strcmp(record, expected) == 0, "rank %d has %s", rank, record);
}

static void check_host(int rank, const char *expected)
{
    char host[FR_JOB_HOST_BYTES] = "";
    bool found = fr_job_hydra.get_host(rank, host);
    CHECK(found == (expected != NULL), "rank %d", rank);
    CHECK(!expected || strcmp(host, expected) == 0, "rank %d is on host %s", rank, host);
}

static void put_and_get(void)
{
    CHECK(put() == FR_JOB_RECORD_LEFT);
    check_record(0, "A=1;B=2,3;elsewhere");
    check_record(2, NULL);
    check_record(3, NULL); // longer than any
    check_host(4, "number 5");
    check_host(6, "number 0");
    check_host(3, NULL);
    check_host(3, NULL);
    check_record(5, NULL); // the proxy has gone
}

static void use_nothing(void)
{
    fr_job_hydra.put("A=1;host");
}

int main(void)
{
    static char long_answer[1500];
    snprintf(long_answer, sizeof(long_answer), FOUND "%01200d\n", 1);
    const struct turn all[] = {
        {GREETING, WELCOME},
        {WHO, NAME},
        {PUT, DONE},
        {GET("fabrail-0"), FOUND "A^1;B^2,3;elsewhere\n"},
        {GET("fabrail-2"), "cmd=get_result rc=-1 msg=key_fabrail-2_not_found value=unknown\n"},
        {GET("fabrail-3"), long_answer},
        {GET("PMI_process_mapping"), FOUND "(vector,(0,2,2),(5,1,1))\n"},
        {GET("PMI_process_mapping"), FOUND "(vector,(0,2,2),(5,1,1))\n"},
        {GET("PMI_process_mapping"), FOUND "(vector,(0,0,2)\n"},
        {GET("PMI_process_mapping"), FOUND "(vector,(0,2147483647,2147483647))\n"},
        {GET("fabrail-5"), NULL},
    };
    static const struct turn refused[] = {{GREETING, "cmd=response_to_init rc=-1\n"}};
    static const struct turn gone[] = {{GREETING, WELCOME}, {WHO, NULL}};
    static const struct turn duplicate[] = {
        {GREETING, WELCOME}, {WHO, NAME}, {PUT, "cmd=put_result rc=-1 msg=duplicate\n"}};
    fr_abi_mpi.family = "MPICH";
    setenv("PMI_RANK", "1", 1);
    setenv("PMI_SIZE", "7", 1);
    with_proxy(NULL, 0, use_nothing); // nobody by the name of Hydra's
    CHECK(fr_job_hydra.has_put() == FR_JOB_RECORD_NONE);
    prctl(PR_SET_NAME, "hydra_pmi_proxy");
    WITH_PROXY(refused, put_in_vain);
    WITH_PROXY(gone, put_in_vain);
    WITH_PROXY(duplicate, put_in_vain);
    WITH_PROXY(all, put_and_get);
    return check_result();
}
