// SPDX-License-Identifier: BSD-3-Clause
// Tells whether a NIC has a link, as the kernel knows it of network interfaces. NICs of other kinds
// end what is on its way with an error.
#include "config.h"

#include "rail/steps_int.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

bool fr_rail_has_link(const char *name)
{
    struct ethtool_value value = {.cmd = ETHTOOL_GLINK, .data = 1};
    struct ifreq request = {.ifr_data = (char *)&value};
    int handle = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (handle < 0)
        return true;
    strncpy(request.ifr_name, name, sizeof(request.ifr_name) - 1);
    bool known = ioctl(handle, SIOCETHTOOL, &request) == 0;
    close(handle);
    return !known || value.data != 0;
}
