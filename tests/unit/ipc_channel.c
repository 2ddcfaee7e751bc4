// SPDX-License-Identifier: BSD-3-Clause
// The fd channel and who is at its other end: descriptors go to the process that they are for and
// come from the process that they are of, whatever others with or without the same user id do.
#include "config.h"

#include "processes.h"

#include "ipc/channel.c"

#include <errno.h>
#include <fcntl.h>

enum { OTHER_USER = 12345, BUFFER = 77 };

static struct fr_job_process all[PROCESSES_MAX];

// Everybody learns who all are.
static void introduce(void)
{
    all[process_rank] = *fr_job_control_self();
    if (process_rank != 0)
        process_say(0, &all[process_rank], sizeof(all[0]));
    for (int rank = 1; rank < process_count && process_rank == 0; rank++)
        process_hear(rank, &all[rank], sizeof(all[0]));
    for (int rank = 1; rank < process_count && process_rank == 0; rank++)
        process_say(rank, all, sizeof(all));
    if (process_rank != 0)
        process_hear(0, all, sizeof(all));
}

// A descriptor that the receiver can tell by what is in it.
static int make_descriptor(char letter)
{
    char path[] = "/tmp/memory_channel.XXXXXX";
    int file = mkstemp(path);
    CHECK(file >= 0 && unlink(path) == 0 && pwrite(file, &letter, 1, 0) == 1);
    return file;
}

static void check_taken(const struct fr_job_process *from, char expected)
{
    char letter = 0;
    int file = fr_ipc_channel_take(from, BUFFER);
    CHECK((file >= 0) == (expected != 0), "descriptor %d", file);
    if (file < 0)
        return;
    CHECK(pread(file, &letter, 1, 0) == 1 && letter == expected, "%c", letter);
    CHECK(fcntl(file, F_GETFD) & FD_CLOEXEC);
    close(file);
}

static enum fr_status send_to(const struct fr_job_process *to, char letter)
{
    int file = make_descriptor(letter);
    enum fr_status status = fr_ipc_channel_send(to, BUFFER, file);
    close(file);
    return status;
}

// As a program of its own would, which says that it is `from`. Returns whether the socket took it.
static bool send_raw(const struct fr_job_process *to, const struct fr_job_process *from,
                     char letter)
{
    struct fr_ipc_fd_message said = {
        .magic = FR_IPC_FD_MAGIC, .to = to->cookie, .from = from->cookie, .buffer_id = BUFFER};
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {.space = {0}};
    struct iovec part = {.iov_base = &said, .iov_len = sizeof(said)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    int file = make_descriptor(letter);
    memcpy(CMSG_DATA(header), &file, sizeof(int));
    struct sockaddr_un address;
    socklen_t bytes = name_of(to->cookie, &address);
    int connection = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    bool sent = connect(connection, (struct sockaddr *)&address, bytes) == 0 &&
                sendmsg(connection, &message, MSG_NOSIGNAL) == (ssize_t)sizeof(said);
    close(connection);
    close(file);
    return sent;
}

static void run_plain(void)
{
    introduce();
    if (process_rank == 0)
        fr_ipc_channel_open(all[0].cookie);
    process_meet();
    if (process_rank == 1)
        CHECK(send_to(&all[0], 'a') == FR_OK && send_to(&all[0], 'b') == FR_OK);
    process_meet();
    if (process_rank == 0) {
        check_taken(&all[1], 'a');
        check_taken(&all[1], 'b');
        check_taken(&all[1], 0);
    }
    process_meet();
    fr_ipc_channel_close();
}

// Memory that is gone, of which nobody has taken the descriptor: nothing keeps it any longer.
static void run_gone(void)
{
    int ends[2] = {-1, -1};
    const uint64_t buffer = BUFFER;
    char none;
    introduce();
    if (process_rank == 0)
        fr_ipc_channel_open(all[0].cookie);
    process_meet();
    if (process_rank == 1) {
        CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
        CHECK(fr_ipc_channel_send(&all[0], BUFFER, ends[1]) == FR_OK);
        close(ends[1]);
        CHECK(read(ends[0], &none, 1) < 0 && errno == EAGAIN, "it is on its way");
    }
    process_meet();
    if (process_rank == 0)
        fr_ipc_channel_drop(&all[1], buffer);
    process_meet();
    if (process_rank == 1)
        CHECK(read(ends[0], &none, 1) == 0, "it is still on its way");
    process_meet();
    fr_ipc_channel_close();
}

// Names are listed for everybody, and say nothing of the cookies.
static void run_name(void)
{
    char line[512], cookie[32];
    unsigned names = 0;
    introduce();
    fr_ipc_channel_open(all[0].cookie);
    FILE *file = fopen("/proc/net/unix", "r");
    CHECK(file != NULL);
    snprintf(cookie, sizeof(cookie), "%llx", (unsigned long long)all[0].cookie);
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        names += strstr(line, "@fabrail-") != NULL;
        CHECK(strstr(line, cookie) == NULL, "%s", line);
    }
    CHECK(names > 0);
    if (file != NULL)
        fclose(file);
    fr_ipc_channel_close();
}

// Process 1 has taken the name of process 0, whose cookie it has got hold of somehow.
static void run_impostor(void)
{
    introduce();
    if (process_rank == 1)
        fr_ipc_channel_open(all[0].cookie);
    process_meet();
    if (process_rank == 2) {
        struct fr_job_process contained = all[0];
        CHECK(send_to(&all[0], 'a') == FR_ERR_UNSUPPORTED, "its id is another's");
        contained.pid_namespace ^= 1;
        CHECK(send_to(&contained, 'b') == FR_OK, "of which nothing can be told");
    }
    process_meet();
    fr_ipc_channel_close();
}

// Process 1 says that it is process 2.
static void run_liar(void)
{
    introduce();
    if (process_rank == 0)
        fr_ipc_channel_open(all[0].cookie);
    process_meet();
    if (process_rank == 1)
        CHECK(send_raw(&all[0], &all[2], 'a'));
    process_meet();
    if (process_rank == 2)
        CHECK(send_to(&all[0], 'b') == FR_OK);
    process_meet();
    if (process_rank == 0) {
        check_taken(&all[2], 'b');
        check_taken(&all[2], 0);
        check_taken(&all[1], 0);
    }
    process_meet();
    fr_ipc_channel_close();
}

static bool become_other(void)
{
    return geteuid() == 0 && setresgid(OTHER_USER, OTHER_USER, OTHER_USER) == 0 &&
           setresuid(OTHER_USER, OTHER_USER, OTHER_USER) == 0;
}

static void want_root(void)
{
    if (geteuid() == 0)
        return;
    printf("skipped: only root can run as another user\n");
    exit(CHECK_SKIP);
}

// Another user listens under the name of process 0, and sends to process 2 in its name.
static void run_stranger(void)
{
    want_root();
    introduce();
    if (process_rank == 1) {
        CHECK(become_other());
        fr_ipc_channel_open(all[0].cookie);
    }
    if (process_rank == 2)
        fr_ipc_channel_open(all[2].cookie);
    process_meet();
    struct fr_job_process contained = all[0];
    contained.pid_namespace ^= 1; // so that the user id decides
    if (process_rank == 0) {
        CHECK(send_to(&all[0], 'a') == FR_ERR_UNSUPPORTED);
        CHECK(send_to(&contained, 'a') == FR_ERR_UNSUPPORTED);
    }
    if (process_rank == 1)
        CHECK(send_raw(&all[2], &contained, 'c'), "the kernel lets it");
    process_meet();
    if (process_rank == 2)
        check_taken(&contained, 0);
    if (process_rank == 1)
        check_taken(&contained, 0);
    process_meet();
    fr_ipc_channel_close();
}

int main(int count, char **arguments)
{
    static const struct process_case cases[] = {
        {.name = "plain", .count = 2, .run = run_plain},
        {.name = "gone", .count = 2, .run = run_gone},
        {.name = "name", .count = 1, .run = run_name},
        {.name = "impostor", .count = 3, .run = run_impostor},
        {.name = "liar", .count = 3, .run = run_liar},
        {.name = "stranger", .count = 3, .run = run_stranger},
        {.name = NULL},
    };
    return process_main(cases, count, arguments);
}
