// SPDX-License-Identifier: BSD-3-Clause
// Calls of the real MPI, with a word for each argument.
#include "config.h"

#include "fabrail/abi.h"
#include "fabrail/core/meter.h"

#include <string.h>

#define W fr_word
typedef int call0(void);
typedef int call1(W);
typedef int call2(W, W);
typedef int call3(W, W, W);
typedef int call4(W, W, W, W);
typedef int call5(W, W, W, W, W);
typedef int call6(W, W, W, W, W, W);
typedef int call7(W, W, W, W, W, W, W);
typedef int call8(W, W, W, W, W, W, W, W);
typedef int call9(W, W, W, W, W, W, W, W, W);
typedef int call10(W, W, W, W, W, W, W, W, W, W);
typedef int call11(W, W, W, W, W, W, W, W, W, W, W);
typedef int call12(W, W, W, W, W, W, W, W, W, W, W, W);
typedef int call13(W, W, W, W, W, W, W, W, W, W, W, W, W);
typedef int call14(W, W, W, W, W, W, W, W, W, W, W, W, W, W);
#undef W

static int refuse_missing(enum fr_fn fn)
{
    fr_error("%s is not in this MPI library", fr_abi_rows[fn].name);
    return fr_abi_mpi.ERR_UNSUPPORTED_OPERATION;
}

FR_OFTEN int fr_abi_call_at(enum fr_fn fn, void *address, const fr_word *a)
{
    switch (fr_abi_rows[fn].arg_count) {
    case 0:
        return ((call0 *)address)();
    case 1:
        return ((call1 *)address)(a[0]);
    case 2:
        return ((call2 *)address)(a[0], a[1]);
    case 3:
        return ((call3 *)address)(a[0], a[1], a[2]);
    case 4:
        return ((call4 *)address)(a[0], a[1], a[2], a[3]);
    case 5:
        return ((call5 *)address)(a[0], a[1], a[2], a[3], a[4]);
    case 6:
        return ((call6 *)address)(a[0], a[1], a[2], a[3], a[4], a[5]);
    case 7:
        return ((call7 *)address)(a[0], a[1], a[2], a[3], a[4], a[5], a[6]);
    case 8:
        return ((call8 *)address)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]);
    case 9:
        return ((call9 *)address)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8]);
    case 10:
        return ((call10 *)address)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9]);
    case 11:
        return ((call11 *)address)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9],
                                   a[10]);
    case 12:
        return ((call12 *)address)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9],
                                   a[10], a[11]);
    case 13:
        return ((call13 *)address)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9],
                                   a[10], a[11], a[12]);
    default:
        return ((call14 *)address)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9],
                                   a[10], a[11], a[12], a[13]);
    }
}

FR_OFTEN int fr_abi_call(enum fr_fn fn, const fr_word *args)
{
    void *address = fr_abi_address(fn);
    if (!address)
        return refuse_missing(fn);
    uint64_t begin = fr_core_meter_begin();
    int result = fr_abi_call_at(fn, address, args);
    if (FR_UNLIKELY(begin))
        fr_core_meter_add(FR_METER_MPI, begin, fr_abi_is_poll(fn));
    return result;
}

bool fr_abi_has_world(void)
{
    int started = 0, ended = 0;
    FR_MPI(Initialized, FR_PTR(&started));
    FR_MPI(Finalized, FR_PTR(&ended));
    return started && !ended;
}

static fr_word size_comm;

// Open MPI recognises no wrong handles but null ones, so a communicator is of no use there.
void fr_abi_ask_on(fr_word comm)
{
    bool none = comm == fr_abi_mpi.COMM_NULL || fr_abi_is_open_mpi();
    size_comm = none ? 0 : comm;
}

int fr_abi_type_bytes(fr_word type)
{
    int bytes = -1, code;
    if (type == 0 || type == fr_abi_mpi.DATATYPE_NULL)
        return -1;
    if (size_comm)
        code = FR_MPI(Pack_size, 1, type, size_comm, FR_PTR(&bytes));
    else
        code = FR_MPI(Type_size, type, FR_PTR(&bytes));
    return code == fr_abi_mpi.SUCCESS ? bytes : -1;
}

int64_t fr_abi_status_size(const void *status)
{
    if (fr_abi_mpi.status_bytes_offset >= 0) {
        int64_t held;
        memcpy(&held, (const char *)status + fr_abi_mpi.status_bytes_offset, sizeof(held));
        return held;
    }
    int count = -1;
    FR_MPI(Get_count, FR_PTR(status), fr_abi_mpi.BYTE, FR_PTR(&count));
    return count;
}
