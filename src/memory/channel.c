// SPDX-License-Identifier: BSD-3-Clause
// How file descriptors of VMM memory get from the process that exports to those that import.
//
// The exporter pushes: it connects to the abstract socket of the importer, sends one letter with
// the descriptor and hangs up. The letter waits in the importer's backlog until somebody there
// looks, so neither end waits for the other and no thread is needed. A connection a letter, rather
// than datagrams, because a datagram socket queues no more than net.unix.max_dgram_qlen letters, by
// default ten, and the backlog as many as net.core.somaxconn, by default 4096.
//
// The importer could fetch the descriptor instead, with pidfd_getfd. It does not: that needs the
// right to trace the exporter, which Yama's usual setting denies between ranks (children of one
// launcher), and it trusts a number: once the exporter has closed it, the number can be that of
// other memory, and all of the driver's descriptors look alike.
//
// Abstract sockets belong to a network namespace, which ranks in containers have to share. The
// sender must have the user id of the receiver.
#include "config.h"

#include "core/list.h"
#include "memory/memory_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

// Letters that were read in search of another one. Those beyond are dropped, oldest first, as each
// holds a descriptor; the sender can be asked again.
enum { MAX_PARKED = 256 };

// Connections whose sender has not got to sending yet.
enum { MAX_SILENT = 64 };

#define LETTER_MAGIC 0x46526c6574746572u

struct letter {
    uint64_t magic;
    uint64_t to; // cookies
    uint64_t from;
    uint64_t buffer_id;
};

struct parked {
    struct fr_list link; // latest first
    uint64_t from;
    uint64_t buffer_id;
    int descriptor;
};

enum channel_state { CLOSED, OPEN, FAILED };

static _Atomic int state = CLOSED;
static struct fr_lock lock = FR_LOCK_INIT;
static int listener FR_GUARDED_BY(lock) = -1;
static uint64_t own_cookie FR_GUARDED_BY(lock);
static struct fr_list parked FR_GUARDED_BY(lock) = FR_LIST_INIT(parked);
static unsigned parked_count FR_GUARDED_BY(lock);
static int silent[MAX_SILENT] FR_GUARDED_BY(lock);
static unsigned silent_count FR_GUARDED_BY(lock);

static socklen_t name_of(uint64_t cookie, struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "fabrail-%016llx",
                          (unsigned long long)cookie);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
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

void fr_memory_channel_open(uint64_t cookie)
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

static enum fr_status post(int connection, const struct letter *letter, int descriptor)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {.space = {0}};
    struct iovec part = {.iov_base = (void *)(uintptr_t)letter, .iov_len = sizeof(*letter)};
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
    return sent == (ssize_t)sizeof(*letter) ? FR_OK : translate("sendmsg");
}

enum fr_status fr_memory_channel_send(const struct fr_control_process *to, uint64_t buffer_id,
                                      int descriptor)
{
    const struct letter letter = {
        .magic = LETTER_MAGIC,
        .to = to->cookie,
        .from = fr_control_self()->cookie,
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
    else
        status = post(connection, &letter, descriptor);
    close(connection);
    return status;
}

static bool is_own_user(int connection)
{
    struct ucred peer;
    socklen_t bytes = sizeof(peer);
    return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
           peer.uid == geteuid();
}

// Reads the letter of a connection. Returns its descriptor, -1 if it has none that is meant for
// this process; *silent_yet when nothing has been sent yet.
static int read_letter(int connection, struct letter *letter, bool *silent_yet)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {.iov_base = letter, .iov_len = sizeof(*letter)};
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
    if (got == (ssize_t)sizeof(*letter) || descriptor < 0)
        return descriptor;
    close(descriptor);
    return -1;
}

static struct parked *find_parked(uint64_t from, uint64_t buffer_id) FR_REQUIRES(lock)
{
    for (struct fr_list *at = parked.next; at != &parked; at = at->next) {
        struct parked *entry = FR_LIST_ENTRY(at, struct parked, link);
        if (entry->from == from && entry->buffer_id == buffer_id)
            return entry;
    }
    return NULL;
}

static int unpark(struct parked *entry) FR_REQUIRES(lock)
{
    int descriptor = entry->descriptor;
    fr_list_remove(&entry->link);
    parked_count--;
    free(entry);
    return descriptor;
}

static void park(const struct letter *letter, int descriptor) FR_REQUIRES(lock)
{
    struct parked *entry = find_parked(letter->from, letter->buffer_id);
    if (entry != NULL)
        close(unpark(entry));
    if (parked_count == MAX_PARKED)
        close(unpark(FR_LIST_ENTRY(parked.prev, struct parked, link)));
    entry = malloc(sizeof(*entry));
    if (entry == NULL) {
        close(descriptor);
        return;
    }
    *entry = (struct parked){
        .from = letter->from, .buffer_id = letter->buffer_id, .descriptor = descriptor};
    fr_list_push_front(&parked, &entry->link);
    parked_count++;
}

// Parks what came through one connection. Returns false, and leaves it open, when nothing has.
static bool receive(int connection) FR_REQUIRES(lock)
{
    struct letter letter = {0};
    bool silent_yet = false;
    int descriptor = read_letter(connection, &letter, &silent_yet);
    if (silent_yet)
        return false;
    close(connection);
    if (descriptor >= 0 && letter.magic == LETTER_MAGIC && letter.to == own_cookie)
        park(&letter, descriptor);
    else if (descriptor >= 0)
        close(descriptor);
    return true;
}

static void receive_from_silent(void) FR_REQUIRES(lock)
{
    unsigned left = 0;
    for (unsigned i = 0; i < silent_count; i++) {
        if (!receive(silent[i]))
            silent[left++] = silent[i];
    }
    silent_count = left;
}

static void keep_silent(int connection) FR_REQUIRES(lock)
{
    if (silent_count == MAX_SILENT) { // the oldest has had its time
        close(silent[0]);
        memmove(silent, silent + 1, --silent_count * sizeof(silent[0]));
    }
    silent[silent_count++] = connection;
}

// Takes in the next connection. Returns false when there is none.
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

int fr_memory_channel_take(const struct fr_control_process *owner, uint64_t buffer_id)
{
    int descriptor = -1;
    fr_core_lock(&lock);
    struct parked *found = NULL;
    if (listener >= 0) {
        receive_from_silent();
        while ((found = find_parked(owner->cookie, buffer_id)) == NULL && receive_next())
            continue;
    }
    if (found != NULL)
        descriptor = unpark(found);
    fr_core_unlock(&lock);
    return descriptor;
}

void fr_memory_channel_drop(const struct fr_control_process *owner, const uint64_t *buffer_id)
{
    fr_core_lock(&lock);
    for (struct fr_list *at = parked.next, *next; at != &parked; at = next) {
        struct parked *entry = FR_LIST_ENTRY(at, struct parked, link);
        next = at->next;
        if (entry->from == owner->cookie && (buffer_id == NULL || entry->buffer_id == *buffer_id))
            close(unpark(entry));
    }
    fr_core_unlock(&lock);
}

void fr_memory_channel_close(void)
{
    fr_core_lock(&lock);
    while (!fr_list_is_empty(&parked))
        close(unpark(FR_LIST_ENTRY(parked.next, struct parked, link)));
    while (silent_count > 0)
        close(silent[--silent_count]);
    if (listener >= 0)
        close(listener);
    listener = -1;
    atomic_store_explicit(&state, CLOSED, memory_order_release);
    fr_core_unlock(&lock);
}
