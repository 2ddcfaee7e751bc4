// SPDX-License-Identifier: BSD-3-Clause
// The part of the MPI 5 standard ABI that Fabrail needs. Types, values and layout are those of the
// chapter "Application Binary Interface" and appendix A.1 of MPI 5.0. The coverage test compares
// them with an installed mpi.h of that ABI.
#ifndef FR_ABI_MPI5_H
#define FR_ABI_MPI5_H

#include <stddef.h>
#include <stdint.h>

typedef struct MPI_ABI_Comm *MPI_Comm;
typedef struct MPI_ABI_Request *MPI_Request;
typedef struct MPI_ABI_Message *MPI_Message;
typedef struct MPI_ABI_Datatype *MPI_Datatype;
typedef struct MPI_ABI_Op *MPI_Op;
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
#define MPI_ERRORS_ARE_FATAL          ((MPI_Errhandler)0x00000141)
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
#define MPI_AINT                      ((MPI_Datatype)0x00000201)
#define MPI_COUNT                     ((MPI_Datatype)0x00000202)
#define MPI_OFFSET                    ((MPI_Datatype)0x00000203)
#define MPI_SHORT                     ((MPI_Datatype)0x00000208)
#define MPI_INT                       ((MPI_Datatype)0x00000209)
#define MPI_LONG                      ((MPI_Datatype)0x0000020a)
#define MPI_LONG_LONG                 ((MPI_Datatype)0x0000020b)
#define MPI_UNSIGNED_SHORT            ((MPI_Datatype)0x0000020c)
#define MPI_UNSIGNED                  ((MPI_Datatype)0x0000020d)
#define MPI_UNSIGNED_LONG             ((MPI_Datatype)0x0000020e)
#define MPI_UNSIGNED_LONG_LONG        ((MPI_Datatype)0x0000020f)
#define MPI_FLOAT                     ((MPI_Datatype)0x00000210)
#define MPI_C_FLOAT_COMPLEX           ((MPI_Datatype)0x00000212)
#define MPI_C_COMPLEX                 ((MPI_Datatype)0x00000212)
#define MPI_CXX_FLOAT_COMPLEX         ((MPI_Datatype)0x00000213)
#define MPI_DOUBLE                    ((MPI_Datatype)0x00000214)
#define MPI_C_DOUBLE_COMPLEX          ((MPI_Datatype)0x00000216)
#define MPI_CXX_DOUBLE_COMPLEX        ((MPI_Datatype)0x00000217)
#define MPI_LOGICAL                   ((MPI_Datatype)0x00000218)
#define MPI_INTEGER                   ((MPI_Datatype)0x00000219)
#define MPI_REAL                      ((MPI_Datatype)0x0000021a)
#define MPI_COMPLEX                   ((MPI_Datatype)0x0000021b)
#define MPI_DOUBLE_PRECISION          ((MPI_Datatype)0x0000021c)
#define MPI_DOUBLE_COMPLEX            ((MPI_Datatype)0x0000021d)
#define MPI_2REAL                     ((MPI_Datatype)0x00000230)
#define MPI_2DOUBLE_PRECISION         ((MPI_Datatype)0x00000231)
#define MPI_2INTEGER                  ((MPI_Datatype)0x00000232)
#define MPI_C_BOOL                    ((MPI_Datatype)0x00000238)
#define MPI_CXX_BOOL                  ((MPI_Datatype)0x00000239)
#define MPI_INT8_T                    ((MPI_Datatype)0x00000240)
#define MPI_UINT8_T                   ((MPI_Datatype)0x00000241)
#define MPI_SIGNED_CHAR               ((MPI_Datatype)0x00000244)
#define MPI_UNSIGNED_CHAR             ((MPI_Datatype)0x00000245)
#define MPI_INT16_T                   ((MPI_Datatype)0x00000248)
#define MPI_UINT16_T                  ((MPI_Datatype)0x00000249)
#define MPI_INT32_T                   ((MPI_Datatype)0x00000250)
#define MPI_UINT32_T                  ((MPI_Datatype)0x00000251)
#define MPI_INT64_T                   ((MPI_Datatype)0x00000258)
#define MPI_UINT64_T                  ((MPI_Datatype)0x00000259)
#define MPI_LOGICAL1                  ((MPI_Datatype)0x000002c0)
#define MPI_INTEGER1                  ((MPI_Datatype)0x000002c1)
#define MPI_LOGICAL2                  ((MPI_Datatype)0x000002c8)
#define MPI_INTEGER2                  ((MPI_Datatype)0x000002c9)
#define MPI_LOGICAL4                  ((MPI_Datatype)0x000002d0)
#define MPI_INTEGER4                  ((MPI_Datatype)0x000002d1)
#define MPI_REAL4                     ((MPI_Datatype)0x000002d2)
#define MPI_LOGICAL8                  ((MPI_Datatype)0x000002d8)
#define MPI_INTEGER8                  ((MPI_Datatype)0x000002d9)
#define MPI_REAL8                     ((MPI_Datatype)0x000002da)
#define MPI_COMPLEX8                  ((MPI_Datatype)0x000002db)
#define MPI_COMPLEX16                 ((MPI_Datatype)0x000002e3)
#define MPI_SUM                       ((MPI_Op)0x00000021)
#define MPI_MIN                       ((MPI_Op)0x00000022)
#define MPI_MAX                       ((MPI_Op)0x00000023)
#define MPI_PROD                      ((MPI_Op)0x00000024)
#define MPI_BAND                      ((MPI_Op)0x00000028)
#define MPI_BOR                       ((MPI_Op)0x00000029)
#define MPI_BXOR                      ((MPI_Op)0x0000002a)
#define MPI_LAND                      ((MPI_Op)0x00000030)
#define MPI_LOR                       ((MPI_Op)0x00000031)
#define MPI_LXOR                      ((MPI_Op)0x00000032)
#define MPI_MINLOC                    ((MPI_Op)0x00000038)
#define MPI_MAXLOC                    ((MPI_Op)0x00000039)
#define MPI_NO_OP                     ((MPI_Op)0x0000003d)
#define MPI_BOTTOM                    ((void *)0)
#define MPI_IN_PLACE                  ((void *)1)
#define MPI_STATUS_IGNORE             ((MPI_Status *)0)
#define MPI_STATUSES_IGNORE           ((MPI_Status *)0)
#define MPI_PROC_NULL                 -3
#define MPI_ANY_SOURCE                -1
#define MPI_ANY_TAG                   -2
#define MPI_ROOT                      -4
#define MPI_UNDEFINED                 -32766
#define MPI_THREAD_MULTIPLE           4096
#define MPI_MAX_INFO_VAL              1024
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
#define MPI_TAG_UB                    501
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
