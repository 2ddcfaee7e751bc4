// SPDX-License-Identifier: BSD-3-Clause
// A library whose file name says libfabrail: calls made from here are in the scope "fabrail".
#include "config.h"

__attribute__((visibility("default"))) int test_call(int (*function)(unsigned), unsigned argument);

int test_call(int (*function)(unsigned), unsigned argument)
{
    int result = function(argument);
    // A statement after the call keeps it from being a tail call with another function's return
    // address.
    __asm__ volatile("" : "+r"(result));
    return result;
}
