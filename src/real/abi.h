// SPDX-License-Identifier: BSD-3-Clause
// The part of the MPI 5 standard ABI that Fabrail needs. Types, values and layout are those of the
// chapter "Application Binary Interface" and appendix A.1 of MPI 5.0; the coverage test compares
// them with an installed mpi.h of that ABI.
#ifndef FR_REAL_ABI_H
#define FR_REAL_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef struct MPI_ABI_Comm *MPI_Comm;
typedef struct MPI_ABI_Request *MPI_Request;
typedef struct MPI_ABI_Message *MPI_Message;
typedef struct MPI_ABI_Datatype *MPI_Datatype;
typedef struct MPI_ABI_Info *MPI_Info;
typedef struct MPI_ABI_Win *MPI_Win;
typedef struct MPI_ABI_File *MPI_File;
typedef struct MPI_ABI_Errhandler *MPI_Errhandler;

typedef struct {
    int MPI_SOURCE;
    int MPI_TAG;
    int MPI_ERROR;
    int MPI_internal[5];
} MPI_Status;

#define MPI_COMM_NULL                 ((MPI_Comm)0x00000100)
#define MPI_COMM_WORLD                ((MPI_Comm)0x00000101)
#define MPI_COMM_SELF                 ((MPI_Comm)0x00000102)
#define MPI_REQUEST_NULL              ((MPI_Request)0x00000180)
#define MPI_MESSAGE_NULL              ((MPI_Message)0x00000128)
#define MPI_MESSAGE_NO_PROC           ((MPI_Message)0x00000129)
#define MPI_DATATYPE_NULL             ((MPI_Datatype)0x00000200)
#define MPI_INFO_NULL                 ((MPI_Info)0x00000130)
#define MPI_WIN_NULL                  ((MPI_Win)0x00000110)
#define MPI_ERRORS_RETURN             ((MPI_Errhandler)0x00000143)
#define MPI_FILE_NULL                 ((MPI_File)0x00000118)
#define MPI_BYTE                      ((MPI_Datatype)0x00000247)
#define MPI_PACKED                    ((MPI_Datatype)0x00000207)
#define MPI_FLOAT_INT                 ((MPI_Datatype)0x00000228)
#define MPI_DOUBLE_INT                ((MPI_Datatype)0x00000229)
#define MPI_LONG_INT                  ((MPI_Datatype)0x0000022a)
#define MPI_SHORT_INT                 ((MPI_Datatype)0x0000022c)
#define MPI_2INT                      ((MPI_Datatype)0x0000022b)
#define MPI_LONG_DOUBLE_INT           ((MPI_Datatype)0x0000022d)
#define MPI_BOTTOM                    ((void *)0)
#define MPI_IN_PLACE                  ((void *)1)
#define MPI_STATUS_IGNORE             ((MPI_Status *)0)
#define MPI_STATUSES_IGNORE           ((MPI_Status *)0)
#define MPI_PROC_NULL                 -3
#define MPI_ANY_SOURCE                -1
#define MPI_ROOT                      -4
#define MPI_UNDEFINED                 -32766
#define MPI_SUCCESS                   0
#define MPI_ERR_BUFFER                1
#define MPI_ERR_COUNT                 2
#define MPI_ERR_TYPE                  3
#define MPI_ERR_ARG                   13
#define MPI_ERR_OTHER                 16
#define MPI_ERR_INTERN                17
#define MPI_ERR_NO_MEM                39
#define MPI_ERR_BASE                  24
#define MPI_ERR_PENDING               18
#define MPI_ERR_IN_STATUS             19
#define MPI_ERR_TRUNCATE              15
#define MPI_ERR_UNSUPPORTED_OPERATION 55
#define MPI_GRAPH                     212
#define MPI_CART                      211
#define MPI_DIST_GRAPH                213
#define MPI_ORDER_C                   0xC
#define MPI_ORDER_FORTRAN             0xF
#define MPI_DISTRIBUTE_BLOCK          17
#define MPI_DISTRIBUTE_CYCLIC         18
#define MPI_DISTRIBUTE_NONE           16
#define MPI_DISTRIBUTE_DFLT_DARG      19
#define MPI_COMBINER_NAMED            101
#define MPI_COMBINER_DUP              102
#define MPI_COMBINER_CONTIGUOUS       103
#define MPI_COMBINER_VECTOR           104
#define MPI_COMBINER_HVECTOR          105
#define MPI_COMBINER_INDEXED          106
#define MPI_COMBINER_HINDEXED         107
#define MPI_COMBINER_INDEXED_BLOCK    108
#define MPI_COMBINER_HINDEXED_BLOCK   109
#define MPI_COMBINER_STRUCT           110
#define MPI_COMBINER_SUBARRAY         111
#define MPI_COMBINER_DARRAY           112
#define MPI_COMBINER_F90_REAL         113
#define MPI_COMBINER_F90_COMPLEX      114
#define MPI_COMBINER_F90_INTEGER      115
#define MPI_COMBINER_RESIZED          116

#endif
