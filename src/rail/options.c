// SPDX-License-Identifier: BSD-3-Clause
// The options of rails as the settings have them. They are there in builds without rails, too.
#include "config.h"

#include "fabrail/rail/options.h"

struct fr_rail_options fr_rail_options(void)
{
    const struct fr_settings *settings = fr_core_settings();
    return (struct fr_rail_options){
        .max = (unsigned)settings->rail_max,
        .nics = settings->rail_nics,
        .provider = settings->rail_provider,
        .cache_bytes = settings->rail_cache_bytes,
        .timeout_ns = settings->timeout_s * 1000000000ull,
        .stall_ns = 2000000000ull, // far beyond any pause of a link that works
        .retry_ns = 10000000000ull,
        .flush = settings->rail_flush,
    };
}
