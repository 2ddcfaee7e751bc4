// SPDX-License-Identifier: BSD-3-Clause
// A name for machines that are alike: their GPUs, the number of these, and the driver.
#include "config.h"

#include "device/device_int.h"

#include <stdio.h>
#include <string.h>

// Replaces what cannot stand in the name of a section of a file, which the text becomes.
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
    bool known = false;
    for (unsigned i = 0; fr_device_rows[i] != NULL && !known; i++)
        known = fr_device_rows[i]->machine(&machine);
    if (!known)
        return FR_ERR_NOT_FOUND;
    machine.name[sizeof(machine.name) - 1] = '\0';
    machine.driver[sizeof(machine.driver) - 1] = '\0';
    snprintf(text, FR_DEVICE_MACHINE_BYTES, "%s, %u GPU%s, driver %s", machine.name, machine.gpus,
             machine.gpus == 1 ? "" : "s", machine.driver);
    replace_brackets_and_control(text);
    return FR_OK;
}
