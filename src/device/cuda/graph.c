// SPDX-License-Identifier: BSD-3-Clause
// Launches of kernels by graph, for what is launched again and again. On an H100 one kernel
// takes 8.1 us that way until the host has seen its word, and 10.5 us by cuLaunchKernel.
//
// A graph holds one kernel, whose parameters are set before each launch. It belongs to a stream. So
// one thread uses it at a time, there are no more than streams times kernels, and it goes with the
// stream's context.
#include "config.h"

#include "device/cuda/cuda_int.h"

// Launches of a kernel on a stream before it gets a graph, which takes as long as many launches.
enum { PLAIN_LAUNCHES = 16 };

static bool driver_has_graphs(void)
{
    return fr_cu.cuGraphAddKernelNode_v2 != NULL && fr_cu.cuGraphCreate != NULL &&
           fr_cu.cuGraphDestroy != NULL && fr_cu.cuGraphExecDestroy != NULL &&
           fr_cu.cuGraphExecKernelNodeSetParams_v2 != NULL &&
           fr_cu.cuGraphInstantiateWithFlags != NULL && fr_cu.cuGraphLaunch != NULL;
}

// Destroys what there is of a graph. Its context must be current, or gone.
static void destroy(struct fr_cuda_graph *graph)
{
    if (graph->exec != NULL)
        (void)fr_cu.cuGraphExecDestroy(graph->exec);
    if (graph->graph != NULL)
        (void)fr_cu.cuGraphDestroy(graph->graph);
    graph->exec = NULL;
    graph->graph = NULL;
}

static bool make(struct fr_cuda_graph *graph, const CUDA_KERNEL_NODE_PARAMS_v2 *params)
{
    CUresult result = fr_cu.cuGraphCreate(&graph->graph, 0);
    if (result != CUDA_SUCCESS)
        graph->graph = NULL;
    else
        result = fr_cu.cuGraphAddKernelNode_v2(&graph->node, graph->graph, NULL, 0, params);
    if (result == CUDA_SUCCESS)
        result = fr_cu.cuGraphInstantiateWithFlags(&graph->exec, graph->graph, 0);
    if (result == CUDA_SUCCESS)
        return true;
    graph->exec = NULL;
    fr_debug("no graph of a kernel: %s", fr_cuda_result_name(result));
    return false;
}

bool fr_cuda_graph_launch(struct fr_cuda_stream *stream, enum fr_device_kernel kernel,
                          CUfunction function, unsigned blocks, void **arguments)
{
    struct fr_cuda_graph *graph = &stream->graphs[kernel];
    if (graph->refused || graph->launches++ < PLAIN_LAUNCHES || !stream->cacheable)
        return false;
    const CUDA_KERNEL_NODE_PARAMS_v2 params = {
        .func = function,
        .gridDimX = blocks,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = FR_KERNEL_THREADS,
        .blockDimY = 1,
        .blockDimZ = 1,
        .kernelParams = arguments,
    };
    bool launched = false;
    if (graph->exec != NULL)
        launched = fr_cu.cuGraphExecKernelNodeSetParams_v2(graph->exec, graph->node, &params) ==
                   CUDA_SUCCESS;
    else
        launched = driver_has_graphs() && make(graph, &params);
    launched = launched && fr_cu.cuGraphLaunch(graph->exec, stream->handle) == CUDA_SUCCESS;
    if (!launched) { // the plain launch that follows tells what is wrong, if
                     // anything is
        destroy(graph);
        graph->refused = true;
    }
    return launched;
}

void fr_cuda_graphs_destroy(struct fr_cuda_stream *stream)
{
    for (size_t i = 0; i < FR_ARRAY_LENGTH(stream->graphs); i++)
        destroy(&stream->graphs[i]);
}
