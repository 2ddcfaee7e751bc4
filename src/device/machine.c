// SPDX-License-Identifier: BSD-3-Clause
// A name for machines that are alike: their GPUs, how many, and the driver.
#include "config.h"

#include "device/cuda/cuda_int.h"

#include <stdio.h>
#include <string.h>

// Where NVML is missing, as in containers that are given nothing but CUDA.
static bool ask_driver(struct fr_device_machine *machine)
{
    CUdevice first;
    int count = 0;
    if (!fr_device_present() || fr_cu.cuDeviceGetCount == NULL || fr_cu.cuDeviceGetName == NULL ||
        fr_cu.cuDeviceGetCount(&count) != CUDA_SUCCESS || count <= 0 ||
        fr_cu.cuDeviceGet(&first, 0) != CUDA_SUCCESS ||
        fr_cu.cuDeviceGetName(machine->name, (int)sizeof(machine->name), first) != CUDA_SUCCESS)
        return false;
    machine->gpus = (unsigned)count;
    snprintf(machine->driver, sizeof(machine->driver), "of CUDA %d.%d", fr_cu.version / 1000,
             fr_cu.version % 1000 / 10);
    return true;
}

// The text becomes the name of a section in a file.
static void replace_brackets_and_control(char *text)
{
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c == 0x7f || c == '[' || c == ']')
            *text = '?';
    }
}

enum fr_status fr_device_machine_text(char text[FR_DEVICE_MACHINE_BYTES])
{
    struct fr_device_machine machine;
    memset(&machine, 0, sizeof(machine));
    if (!fr_device_nvml_machine(&machine) && !ask_driver(&machine))
        return FR_ERR_NOT_FOUND;
    machine.name[sizeof(machine.name) - 1] = '\0';
    machine.driver[sizeof(machine.driver) - 1] = '\0';
    snprintf(text, FR_DEVICE_MACHINE_BYTES, "%s, %u GPU%s, driver %s", machine.name, machine.gpus,
             machine.gpus == 1 ? "" : "s", machine.driver);
    replace_brackets_and_control(text);
    return FR_OK;
}
