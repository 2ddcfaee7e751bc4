// SPDX-License-Identifier: BSD-3-Clause
// Records by Slurm's PMI: a thread takes the place of slurmstepd, which is greeted once, and the
// test that of the MPI library, which asks by way of the relay.
#include "config.h"

#include "world/census.h"

#include "check.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct turn {
    const char *question;
    const char *answer; // NULL: none
};

struct manager {
    const struct turn *turns;
    int file;
    int count;
};

static int library; // the descriptor that the MPI library has

#define GREETING(v) "cmd=init pmi_version=" v "\n"
#define WELCOME(v)  "cmd=response_to_init rc=0 pmi_version=" v "\n"
#define WHO         "cmd=get_my_kvsname\n"
#define NAME        "cmd=my_kvsname rc=0 kvsname=7.0\n"
#define PUT         "cmd=put kvsname=7.0 key=fabrail-1 value=A^1;B^2,3;host\n"
#define DONE        "cmd=put_result rc=0\n"
#define MAXES       "cmd=get_maxes\n"
#define SIZES       "cmd=maxes rc=0 vallen_max=1024\n"

// Slurm takes what it reads at once for one question.
static void *play(void *argument)
{
    struct manager *manager = argument;
    for (int i = 0; i < manager->count; i++) {
        const struct turn *turn = &manager->turns[i];
        char text[1024] = "";
        CHECK(read(manager->file, text, sizeof(text) - 1) >= 0);
        CHECK(strcmp(text, turn->question) == 0, "asked \"%s\", not \"%s\"", text, turn->question);
        if (turn->answer)
            CHECK(write(manager->file, turn->answer, strlen(turn->answer)) > 0);
    }
    close(manager->file);
    return NULL;
}

static void with_manager(const struct turn *turns, int count, void (*use)(void))
{
    int ends[2];
    char number[16];
    pthread_t thread;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    library = ends[0];
    snprintf(number, sizeof(number), "%d", library);
    setenv("PMI_FD", number, 1);
    struct manager manager = {.turns = turns, .file = ends[1], .count = count};
    CHECK(pthread_create(&thread, NULL, play, &manager) == 0);
    use();
    pthread_join(thread, NULL);
    close(library);
}
#define WITH_MANAGER(turns, use) with_manager(turns, (int)(sizeof(turns) / sizeof(turns[0])), use)

// What the MPI library asks, and has to be told.
static void ask(const char *question, const char *expected)
{
    char text[1024] = "";
    size_t used = 0;
    CHECK(write(library, question, strlen(question)) == (ssize_t)strlen(question));
    while (used < strlen(expected)) {
        ssize_t got = read(library, text + used, sizeof(text) - 1 - used);
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    CHECK(strcmp(text, expected) == 0, "told \"%s\", not \"%s\"", text, expected);
}

static void check_record(int rank, const char *expected)
{
    char record[FR_WORLD_RECORD_BYTES] = "";
    bool found = fr_world_slurm.get(rank, record);
    CHECK(found == (expected != NULL), "rank %d", rank);
    CHECK(!expected || strcmp(record, expected) == 0, "rank %d has %s", rank, record);
}

static void begin(void)
{
    fr_world_slurm.put("A=1;B=2,3;host");
}

static void check_records(void)
{
    CHECK(fr_world_slurm.has_put() == FR_WORLD_RECORD_LEFT);
    check_record(0, "A=1;B=2,3;elsewhere");
    check_record(2, NULL);
}

static void by_lines(void)
{
    begin();
    ask(GREETING("1"), WELCOME("1"));
    ask(MAXES, SIZES);
    check_records();
}

static void by_lengths(void)
{
    begin();
    ask(GREETING("2"), WELCOME("2"));
    ask("    14cmd=kvs-fence;", "    28cmd=kvs-fence-response;rc=0;");
    check_records();
}

// The library, and not Fabrail, judges that.
static void refused(void)
{
    begin();
    ask(GREETING("1"), "cmd=response_to_init rc=1 pmi_version=2\n");
    ask(MAXES, SIZES);
    CHECK(fr_world_slurm.has_put() == FR_WORLD_RECORD_FAILED);
}

// A library that has greeted before, or does not at all.
static void no_greeting(void)
{
    begin();
    ask(MAXES, SIZES);
    (void)fr_world_slurm.has_put();
    ask(MAXES, SIZES);
}

// What is said last of all comes through, though nobody waits for an answer.
static void aborts(void)
{
    pid_t child = fork();
    int status = 0;
    if (child == 0) {
        begin();
        ask(GREETING("1"), WELCOME("1"));
        CHECK(write(library, "cmd=abort\n", 10) == 10);
        exit(check_result());
    }
    close(library);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void)
{
    static const struct turn lines[] = {
        {GREETING("1"), WELCOME("1")},
        {WHO, NAME},
        {PUT, DONE},
        {MAXES, SIZES},
        {"cmd=get kvsname=7.0 key=fabrail-0\n", "cmd=get_result rc=0 value=A^1;B^2,3;elsewhere\n"},
        {"cmd=get kvsname=7.0 key=fabrail-2\n", "cmd=get_result rc=1\n"},
    };
    static const struct turn lengths[] = {
        {GREETING("2"), WELCOME("2")},
        {"    47cmd=kvs-put;key=fabrail-1;value=A^1|B^2,3|host;",
         "    26cmd=kvs-put-response;rc=0;"},
        {"    14cmd=kvs-fence;", "    28cmd=kvs-fence-response;rc=0;"},
        {"    42cmd=kvs-get;jobid=;srcid=-1;key=fabrail-0;",
         "    63cmd=kvs-get-response;rc=0;found=TRUE;value=A^1|B^2,3|elsewhere;"},
        {"    42cmd=kvs-get;jobid=;srcid=-1;key=fabrail-2;",
         "    38cmd=kvs-get-response;rc=0;found=FALSE;"},
    };
    static const struct turn refusal[] = {
        {GREETING("1"), "cmd=response_to_init rc=1 pmi_version=2\n"}, {MAXES, SIZES}};
    static const struct turn silence[] = {{MAXES, SIZES}, {MAXES, SIZES}};
    static const struct turn end[] = {
        {GREETING("1"), WELCOME("1")}, {WHO, NAME}, {PUT, DONE}, {"cmd=abort\n", NULL}};
    setenv("PMI_RANK", "1", 1);
    setenv("PMI_SIZE", "3", 1);
    with_manager(NULL, 0, begin); // nobody by the name of Slurm's
    CHECK(fr_world_slurm.has_put() == FR_WORLD_RECORD_NONE);
    prctl(PR_SET_NAME, "slurmstepd");
    WITH_MANAGER(silence, no_greeting);
    CHECK(fr_world_slurm.has_put() == FR_WORLD_RECORD_NONE);
    WITH_MANAGER(lines, by_lines);
    WITH_MANAGER(lengths, by_lengths);
    WITH_MANAGER(refusal, refused);
#ifndef __SANITIZE_THREAD__ // which takes no new threads in a child of a process that has some
    WITH_MANAGER(end, aborts);
#else
    (void)aborts;
    (void)end;
#endif
    return check_result();
}
