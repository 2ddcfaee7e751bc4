// SPDX-License-Identifier: BSD-3-Clause
// A library whose constructor calls back the program that loads it (bound.c).
void bound_construct(void);

__attribute__((constructor)) static void construct(void)
{
    bound_construct();
}
