// SPDX-License-Identifier: BSD-3-Clause
// The fd channel passes file descriptors of VMM memory from the exporting process to importers.
//
// The exporter pushes. It connects to the abstract socket of the importer, makes sure whose it is,
// sends one message with the descriptor and hangs up. The message waits in the importer's backlog
// until a thread there looks. So neither end waits for the other and no thread is needed. There is
// one connection a message rather than datagrams. A datagram socket queues no more than
// net.unix.max_dgram_qlen of them, by default ten. The backlog takes net.core.somaxconn
// connections, by default 4096.
//
// The importer does not fetch the descriptor with pidfd_getfd. That needs the right to trace the
// exporter, which Yama's usual setting denies between ranks (children of one launcher). It also
// trusts a number: once the exporter has closed it, the number can be that of other memory, and all
// of the driver's descriptors look alike.
//
// Abstract sockets belong to a network namespace, which ranks in containers have to share. They are
// listed for everybody there. So the name is derived from the importer's cookie, which the job
// alone knows, by a function that cannot be inverted. Nobody can take the name before its owner, or
// learn the cookie from it. Both ends must have the same user id. Where one can see the process ids
// of the other, they must be the processes that they say they are.
#include "config.h"

#include "fabrail/core/list.h"
#include "ipc/ipc_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

// The most descriptors that are kept though nobody has asked for them yet. Beyond that the oldest
// is dropped; its sender can be asked again.
enum { MAX_WAITING = 256 };

// The most connections that are kept though nothing has been sent over them yet.
enum { MAX_SILENT = 64 };

struct waiting {
    struct fr_list link; // in a list, latest first
    uint64_t from;
    uint64_t buffer_id;
    int64_t pid; // of the sender in this pid namespace; 0 if it cannot be seen here
    int descriptor;
};

enum channel_state { CLOSED, OPEN, FAILED };

static _Atomic int state = CLOSED;
static struct fr_lock lock = FR_LOCK_INIT;
static int listener FR_GUARDED_BY(lock) = -1;
static uint64_t own_cookie FR_GUARDED_BY(lock);
static struct fr_list waiting FR_GUARDED_BY(lock) = FR_LIST_INIT(waiting);
static unsigned waiting_count FR_GUARDED_BY(lock);
static int silent[MAX_SILENT] FR_GUARDED_BY(lock);
static unsigned silent_count FR_GUARDED_BY(lock);

// Writes the address of the socket of a process, and returns its length.
static socklen_t name_of(uint64_t cookie, struct sockaddr_un *address)
{
    static const char use[] = "fd channel";
    struct fr_job_secret secret = {{0}};
    memcpy(secret.bytes, &cookie, sizeof(cookie));
    secret = fr_job_secret_derive(&secret, use, sizeof(use));
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    size_t used =
        (size_t)snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "fabrail-");
    for (size_t i = 0; i < sizeof(secret.bytes); i++)
        used += (size_t)snprintf(address->sun_path + 1 + used, 3, "%02x", secret.bytes[i]);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + used);
}

// Returns the listening socket, -1 if there can be none.
static int open_listener(uint64_t cookie)
{
    struct sockaddr_un address;
    socklen_t bytes = name_of(cookie, &address);
    int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made >= 0 && bind(made, (struct sockaddr *)&address, bytes) == 0 &&
        listen(made, SOMAXCONN) == 0)
        return made;
    fr_warn_once("no socket for descriptors of device memory (%m), so that memory of VMM kind from "
                 "other processes is not reached directly");
    if (made >= 0)
        close(made);
    return -1;
}

void fr_ipc_channel_open(uint64_t cookie)
{
    if (FR_LIKELY(atomic_load_explicit(&state, memory_order_acquire) != CLOSED))
        return;
    fr_core_lock(&lock);
    if (atomic_load_explicit(&state, memory_order_relaxed) == CLOSED) {
        own_cookie = cookie;
        listener = open_listener(cookie);
        atomic_store_explicit(&state, listener >= 0 ? OPEN : FAILED, memory_order_release);
    }
    fr_core_unlock(&lock);
}

static enum fr_status translate(const char *call)
{
    if (errno == EAGAIN) { // its backlog is full
        fr_warn_once("the channel of another process is full, so its messages take a slower path");
        return FR_ERR_LIMIT;
    }
    // Abstract names are unknown outside of their network namespace.
    fr_warn_once("a descriptor of device memory cannot be passed on: %s: %m%s", call,
                 errno == ECONNREFUSED ? "; have the processes a network namespace in common?"
                                       : "");
    return FR_ERR_UNSUPPORTED;
}

// Finds out which process is at the other end. Returns false when the kernel does not say.
static bool get_peer(int connection, struct ucred *peer)
{
    socklen_t bytes = sizeof(*peer);
    return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, peer, &bytes) == 0;
}

static bool is_own_user(int connection)
{
    struct ucred peer;
    return get_peer(connection, &peer) && peer.uid == geteuid();
}

static int64_t pid_behind(int connection)
{
    struct ucred peer;
    return get_peer(connection, &peer) ? peer.pid : 0;
}

// Returns whether a process id of this pid namespace can be that of a process. In another container
// a process has another id.
static bool can_be_pid_of(int64_t pid, const struct fr_job_process *process)
{
    uint32_t own = fr_job_control_self()->pid_namespace;
    return own == 0 || process->pid_namespace != own || process->pid == pid;
}

static enum fr_status post(int connection, const struct fr_ipc_fd_message *said, int descriptor)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {.space = {0}};
    struct iovec part = {.iov_base = (void *)(uintptr_t)said, .iov_len = sizeof(*said)};
    struct msghdr message = {
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof(control),
    };
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
    ssize_t sent;
    do {
        sent = sendmsg(connection, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)sizeof(*said) ? FR_OK : translate("sendmsg");
}

static enum fr_status refuse(const struct fr_job_process *to)
{
    fr_warn_once("a descriptor of device memory is not passed on: the socket of process %d is "
                 "another process's",
                 (int)to->pid);
    return FR_ERR_UNSUPPORTED;
}

enum fr_status fr_ipc_channel_send(const struct fr_job_process *to, uint64_t buffer_id,
                                   int descriptor)
{
    const struct fr_ipc_fd_message message = {
        .magic = FR_IPC_FD_MAGIC,
        .to = to->cookie,
        .from = fr_job_control_self()->cookie,
        .buffer_id = buffer_id,
    };
    struct sockaddr_un address;
    socklen_t bytes = name_of(to->cookie, &address);
    int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (connection < 0)
        return translate("socket");
    enum fr_status status = FR_OK;
    if (connect(connection, (struct sockaddr *)&address, bytes) != 0)
        status = translate("connect");
    else if (!is_own_user(connection) || !can_be_pid_of(pid_behind(connection), to))
        status = refuse(to);
    else
        status = post(connection, &message, descriptor);
    close(connection);
    return status;
}

// Reads the message of a connection. Returns its descriptor, -1 if it has none for this process.
// Sets *silent_yet when nothing has been sent yet.
static int read_message(int connection, struct fr_ipc_fd_message *said, bool *silent_yet)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {.iov_base = said, .iov_len = sizeof(*said)};
    struct msghdr message = {
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof(control),
    };
    ssize_t got = recvmsg(connection, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    *silent_yet = got < 0 && (errno == EAGAIN || errno == EINTR);
    if (got < 0)
        return -1;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    int descriptor = -1;
    if (header != NULL && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(&descriptor, CMSG_DATA(header), sizeof(int));
    if (got == (ssize_t)sizeof(*said) || descriptor < 0)
        return descriptor;
    close(descriptor);
    return -1;
}

// Finds a descriptor that waits here. A `pid` of -1 means any.
static struct waiting *find_waiting(uint64_t from, uint64_t buffer_id, int64_t pid)
    FR_REQUIRES(lock)
{
    for (struct fr_list *at = waiting.next; at != &waiting; at = at->next) {
        struct waiting *entry = FR_LIST_ENTRY(at, struct waiting, link);
        if (entry->from == from && entry->buffer_id == buffer_id && (pid < 0 || entry->pid == pid))
            return entry;
    }
    return NULL;
}

static int take_out(struct waiting *entry) FR_REQUIRES(lock)
{
    int descriptor = entry->descriptor;
    fr_list_remove(&entry->link);
    waiting_count--;
    free(entry);
    return descriptor;
}

static void keep(const struct fr_ipc_fd_message *said, int64_t pid, int descriptor)
    FR_REQUIRES(lock)
{
    struct waiting *entry = find_waiting(said->from, said->buffer_id, pid);
    if (entry != NULL)
        close(take_out(entry));
    if (waiting_count == MAX_WAITING)
        close(take_out(FR_LIST_ENTRY(waiting.prev, struct waiting, link)));
    entry = malloc(sizeof(*entry));
    if (entry == NULL) {
        close(descriptor);
        return;
    }
    *entry = (struct waiting){
        .from = said->from, .buffer_id = said->buffer_id, .pid = pid, .descriptor = descriptor};
    fr_list_push_front(&waiting, &entry->link);
    waiting_count++;
}

// Keeps the descriptor that came over a connection. Returns false, and leaves the connection open,
// when nothing has come.
static bool receive(int connection) FR_REQUIRES(lock)
{
    struct fr_ipc_fd_message said = {0};
    bool silent_yet = false;
    int descriptor = read_message(connection, &said, &silent_yet);
    if (silent_yet)
        return false;
    int64_t pid = pid_behind(connection);
    close(connection);
    if (descriptor >= 0 && said.magic == FR_IPC_FD_MAGIC && said.to == own_cookie)
        keep(&said, pid, descriptor);
    else if (descriptor >= 0)
        close(descriptor);
    return true;
}

static void receive_from_silent(void) FR_REQUIRES(lock)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < silent_count; i++) {
        if (!receive(silent[i]))
            silent[kept++] = silent[i];
    }
    silent_count = kept;
}

static void keep_silent(int connection) FR_REQUIRES(lock)
{
    if (silent_count == MAX_SILENT) { // the oldest one has had its time
        close(silent[0]);
        memmove(silent, silent + 1, --silent_count * sizeof(silent[0]));
    }
    silent[silent_count++] = connection;
}

// Accepts the next connection. Returns false when there is none.
static bool receive_next(void) FR_REQUIRES(lock)
{
    int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection < 0) {
        if (errno == EMFILE || errno == ENFILE)
            fr_warn_once("no file descriptor left to reach device memory of other processes");
        return errno == EINTR || errno == ECONNABORTED;
    }
    if (!is_own_user(connection))
        close(connection);
    else if (!receive(connection))
        keep_silent(connection);
    return true;
}

int fr_ipc_channel_take(const struct fr_job_process *owner, uint64_t buffer_id)
{
    int descriptor = -1;
    bool visible = !can_be_pid_of(-1, owner); // then only its own pid will do
    int64_t pid = visible ? owner->pid : -1;
    fr_core_lock(&lock);
    struct waiting *found = NULL;
    if (listener >= 0) {
        receive_from_silent();
        while ((found = find_waiting(owner->cookie, buffer_id, pid)) == NULL && receive_next())
            continue;
    }
    if (found != NULL)
        descriptor = take_out(found);
    fr_core_unlock(&lock);
    return descriptor;
}

void fr_ipc_channel_drop(const struct fr_job_process *owner, uint64_t buffer_id)
{
    fr_core_lock(&lock);
    // A descriptor in the backlog holds its memory, too. Those of other buffers go on waiting.
    if (listener >= 0) {
        receive_from_silent();
        while (receive_next())
            continue;
    }
    for (struct fr_list *at = waiting.next, *next; at != &waiting; at = next) {
        struct waiting *entry = FR_LIST_ENTRY(at, struct waiting, link);
        next = at->next;
        if (entry->from == owner->cookie && entry->buffer_id == buffer_id)
            close(take_out(entry));
    }
    fr_core_unlock(&lock);
}

void fr_ipc_channel_close(void)
{
    fr_core_lock(&lock);
    while (!fr_list_is_empty(&waiting))
        close(take_out(FR_LIST_ENTRY(waiting.next, struct waiting, link)));
    while (silent_count > 0)
        close(silent[--silent_count]);
    if (listener >= 0)
        close(listener);
    listener = -1;
    atomic_store_explicit(&state, CLOSED, memory_order_release);
    fr_core_unlock(&lock);
}
