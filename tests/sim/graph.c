// SPDX-License-Identifier: BSD-3-Clause
// Graphs of one kernel. An executable graph has its own copy of the node's parameters, which can be
// set anew. A launch takes them as they are then.
#include "config.h"

#include "sim.h"

#include <stdlib.h>
#include <string.h>

struct CUgraphNode_st {
    struct sim_object object;
    CUDA_KERNEL_NODE_PARAMS params; // `kernelParams` points to `copied`
    void *copied[1];
};

struct CUgraph_st {
    struct sim_object object;
    CUgraphNode node; // NULL: none yet
};

struct CUgraphExec_st {
    struct sim_object object;
    CUgraphNode made_of;
    struct CUgraphNode_st node;
};

// Takes a copy of a node's parameters, in place of those that it had.
static CUresult set_params(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
    size_t bytes = params ? sim_function_param_bytes(params->func) : 0;
    if (bytes == 0 || !params->kernelParams || !params->kernelParams[0] || params->extra)
        return CUDA_ERROR_INVALID_VALUE;
    void *copy = malloc(bytes);
    if (!copy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(copy, params->kernelParams[0], bytes);
    free(node->copied[0]);
    node->params = *params;
    node->copied[0] = copy;
    node->params.kernelParams = node->copied;
    return CUDA_SUCCESS;
}

CUresult sim_graph_create(CUgraph *out, unsigned flags)
{
    if (!out || flags)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraph graph = calloc(1, sizeof(*graph));
    if (!graph)
        return CUDA_ERROR_OUT_OF_MEMORY;
    graph->object.type = SIM_GRAPH;
    if (!sim_object_add(&graph->object)) {
        free(graph);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = graph;
    return CUDA_SUCCESS;
}

CUresult sim_graph_add_kernel(CUgraphNode *out, CUgraph handle, const CUgraphNode *needs,
                              size_t count, const CUDA_KERNEL_NODE_PARAMS *params)
{
    CUgraph graph = sim_object_find(handle, SIM_GRAPH);
    if (!out || !graph || needs || count)
        return CUDA_ERROR_INVALID_VALUE;
    if (graph->node)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUgraphNode node = calloc(1, sizeof(*node));
    if (!node)
        return CUDA_ERROR_OUT_OF_MEMORY;
    node->object.type = SIM_GRAPH_NODE;
    CUresult result = set_params(node, params);
    if (result == CUDA_SUCCESS && !sim_object_add(&node->object))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        free(node->copied[0]);
        free(node);
        return result;
    }
    *out = graph->node = node;
    return CUDA_SUCCESS;
}

CUresult sim_graph_destroy(CUgraph handle)
{
    CUgraph graph = sim_object_find(handle, SIM_GRAPH);
    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    if (graph->node) {
        sim_object_remove(&graph->node->object);
        free(graph->node->copied[0]);
        free(graph->node);
    }
    sim_object_remove(&graph->object);
    free(graph);
    return CUDA_SUCCESS;
}

CUresult sim_graph_instantiate(CUgraphExec *out, CUgraph handle, unsigned long long flags)
{
    CUgraph graph = sim_object_find(handle, SIM_GRAPH);
    if (!out || !graph || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (!graph->node)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUgraphExec exec = calloc(1, sizeof(*exec));
    if (!exec)
        return CUDA_ERROR_OUT_OF_MEMORY;
    exec->object.type = SIM_GRAPH_EXEC;
    exec->made_of = graph->node;
    CUresult result = set_params(&exec->node, &graph->node->params);
    if (result == CUDA_SUCCESS && !sim_object_add(&exec->object))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        free(exec->node.copied[0]);
        free(exec);
        return result;
    }
    *out = exec;
    return CUDA_SUCCESS;
}

CUresult sim_graph_set_kernel(CUgraphExec handle, CUgraphNode node_handle,
                              const CUDA_KERNEL_NODE_PARAMS *params)
{
    CUgraphExec exec = sim_object_find(handle, SIM_GRAPH_EXEC);
    CUgraphNode node = sim_object_find(node_handle, SIM_GRAPH_NODE);
    if (!exec || !node || exec->made_of != node)
        return CUDA_ERROR_INVALID_VALUE;
    return set_params(&exec->node, params);
}

CUresult sim_graph_launch(CUgraphExec handle, CUstream stream)
{
    CUgraphExec exec = sim_object_find(handle, SIM_GRAPH_EXEC);
    if (!exec)
        return CUDA_ERROR_INVALID_VALUE;
    const CUDA_KERNEL_NODE_PARAMS *p = &exec->node.params;
    return sim_launch(p->func, p->gridDimX, p->gridDimY, p->gridDimZ, p->blockDimX, p->blockDimY,
                      p->blockDimZ, p->sharedMemBytes, stream, p->kernelParams, NULL);
}

CUresult sim_graph_exec_destroy(CUgraphExec handle)
{
    CUgraphExec exec = sim_object_find(handle, SIM_GRAPH_EXEC);
    if (!exec)
        return CUDA_ERROR_INVALID_VALUE;
    sim_object_remove(&exec->object);
    free(exec->node.copied[0]);
    free(exec);
    return CUDA_SUCCESS;
}
